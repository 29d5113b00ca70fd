"""Sparse binary classification on electricity: training time to a held-out log loss.

Random 90/10 split, 100 shared k-means points held fixed, logit link. The peers take mini-batch
steps until `--max-seconds` of training; `first s` and `median s` are the training time to
`--target`, without compilation and without evaluating the loss. A dash: not reached.
"""

import harness
from data import binary, inducing_points
from harness import OURS, Contestant

COLUMNS = (
    "compile_seconds",
    "training_seconds",
    "log_loss",
    "lowest_log_loss",
    "error",
    "peak_MiB",
)


def main() -> None:
    parser = harness.parser(__doc__, peers=("gpytorch", "gpflow", "gpjax"), repeats=0)
    parser.add_argument("--inducing", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=1000)
    # Of 0.02 and 0.05 for Adam on everything, and natural gradients of 0.1 with Adam on the kernel,
    # this took every peer to the target soonest, or as soon as any.
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--max-seconds", type=float, default=60.0)
    parser.add_argument("--evaluate-every", type=float, default=0.25, help="seconds of training")
    parser.add_argument("--target", type=float, default=0.4346)
    arguments = parser.parse_args()
    split = binary(arguments.data_dir, "electricity")
    arrays = split._asdict() | {"Z": inducing_points(split.X, arguments.inducing)}
    options = {
        name: getattr(arguments, name)
        for name in ("batch_size", "learning_rate", "max_seconds", "evaluate_every", "target")
    }
    methods = ("AugmentedVI", "VariationalInference")
    contestants = [Contestant(OURS, {"method": name}, f"{OURS} {name}") for name in methods]
    contestants += [Contestant(name) for name in arguments.peers]
    title = f"electricity, {len(split.y)} x {split.X.shape[1]}, M = {arguments.inducing}"
    with harness.Session(arguments) as session:
        session.compare(
            f"{title}: seconds to a log loss of {arguments.target}",
            "sparse_binary",
            arrays,
            COLUMNS,
            options,
            contestants,
        )


if __name__ == "__main__":
    main()
