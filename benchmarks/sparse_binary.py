"""Sparse binary classification on electricity: training time to a held-out log loss.

Random 90/10 split, 100 shared k-means points held fixed, logit link. The peers take mini-batch
steps until `--max-seconds` of training; `first s` and `median s` are the training time to
`--target`, without compilation and without evaluating the loss. A dash: not reached. `Stochastic`
has weak priors, and its time holds the start on 4,096 rows.
"""

from itertools import chain

import harness
from data import binary, inducing_points
from harness import OURS, Contestant

COLUMNS = (
    "compile_seconds",
    "training_seconds",
    "step_ms",
    "log_loss",
    "lowest_log_loss",
    "error",
    "peak_MiB",
)


def main() -> None:
    parser = harness.parser(__doc__, peers=("gpytorch", "gpflow", "gpjax"), repeats=0)
    # Of 0.02 and 0.05 for Adam on everything, and natural gradients of 0.1 with Adam on the kernel,
    # this took every peer to the target soonest, or as soon as any.
    harness.add_training_arguments(
        parser, inducing=100, batch_size=1000, learning_rate=0.05, max_seconds=60.0
    )
    parser.add_argument("--target", type=float, default=0.4346)
    arguments = parser.parse_args()
    split = binary(arguments.data_dir, "electricity")
    arrays = split._asdict() | {"Z": inducing_points(split.X, arguments.inducing)}
    methods = ("AugmentedVI", "VariationalInference")
    contestants = [harness.stops_by_itself(name, f"{OURS} {name}") for name in methods]
    batches = {"method": "VariationalInference", "epochs": 20, "max_seconds": 60.0}
    contestants.append(Contestant(OURS, batches, f"{OURS} Stochastic"))
    contestants += [Contestant(name) for name in arguments.peers]
    title = f"electricity, {len(split.y)} x {split.X.shape[1]}, M = {arguments.inducing}"

    def finish(runs: harness.Runs) -> None:
        for result in chain.from_iterable(runs.values()):
            harness.note_time_to(result, "log_loss", arguments.target)

    with harness.Session(arguments) as session:
        session.compare(
            f"{title}: seconds to a log loss of {arguments.target}",
            "sparse_binary",
            arrays,
            COLUMNS,
            harness.training_options(arguments),
            contestants,
            finish=finish,
        )


if __name__ == "__main__":
    main()
