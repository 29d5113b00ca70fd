"""Sparse multi-class classification: training time to logistic-softmax's own held-out log loss.

latentgp: logistic-softmax by augmented updates, and by natural gradients with quasi-Monte Carlo.
GPflow: robust-max and softmax; GPyTorch: softmax; each with Adam on everything, and with natural
gradients for q (robust-max fails with these at 0.02 and 0.1). The peers take mini-batch steps until
`--max-seconds` of training; latentgp stops by itself. One kernel for all classes, 200 shared
k-means points held fixed unless `--learn-inducing` (the peers' only). Held-out rows: all others, at
most 5,000. `first s` and `median s` are the training time to the log loss that augmented updates
ended at, `variational_s` to that which natural gradients ended at, without compilation and without
evaluating the scores. A dash: not reached.
"""

import harness
from data import inducing_points, multiclass
from harness import OURS, OWN

COLUMNS = (
    "variational_s",
    "start_seconds",
    "compile_seconds",
    "training_seconds",
    "log_loss",
    "lowest_log_loss",
    "calibration_error",
    "error",
    "evaluations",
    "peak_MiB",
)
SIZES = {"segment": 1540, "vehicle": 677, "shuttle": 5000}
MOST_TEST_ROWS = 5000


def main() -> None:
    parser = harness.parser(__doc__, peers=("gpflow", "gpytorch"), repeats=0)
    parser.add_argument("--sets", nargs="+", choices=SIZES, default=list(SIZES))
    harness.add_training_arguments(
        parser, inducing=200, batch_size=500, learning_rate=0.05, max_seconds=60.0, natural=0.1
    )
    arguments = parser.parse_args()
    contestants = harness.own_methods()
    for worker, likelihood in (
        ("gpflow", "robust-max"),
        ("gpflow", "softmax"),
        ("gpytorch", "softmax"),
    ):
        contestants += harness.with_and_without_natural(
            worker, arguments.natural, {"likelihood": likelihood}, likelihood
        )
    with harness.Session(arguments) as session:
        for name in arguments.sets:
            split = multiclass(arguments.data_dir, name, SIZES[name], MOST_TEST_ROWS)
            arrays = split._asdict() | {"Z": inducing_points(split.X, arguments.inducing)}
            classes = int(split.y.max()) + 1
            session.compare(
                f"{name}, {len(split.y)} x {split.X.shape[1]}, K = {classes}, "
                f"M = {arguments.inducing}: seconds to the first two rows' log losses",
                "sparse_multiclass",
                arrays,
                COLUMNS,
                harness.training_options(arguments) | {"classes": classes},
                contestants,
                finish=finish,
            )


def finish(runs: harness.Runs) -> None:
    """Everyone's time to the log losses that latentgp's methods ended at."""
    own = [runs.get(f"{OURS} {name}") for name in OWN]
    for results in runs.values():
        for index, result in enumerate(results):
            targets = [done[index]["log_loss"] if done else float("-inf") for done in own]
            harness.note_time_to(result, "log_loss", targets[0])
            result["variational_s"] = harness.seconds_to(result, "log_loss", targets[1])


if __name__ == "__main__":
    main()
