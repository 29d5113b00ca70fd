"""Sparse multi-class classification: training time to the best peer's held-out log loss.

latentgp: what `method="auto"` is for several classes (softmax, natural gradients with quasi-Monte
Carlo) with its weak priors on hyper-parameters, the same without them, augmented updates of the
logistic-softmax, and robust-max by quadrature with weak priors. GPflow: robust-max and softmax;
GPyTorch: softmax; each with Adam on everything, and with natural gradients for q (robust-max fails
with these at 0.02 and 0.1). The peers take mini-batch steps until `--max-seconds` of training;
latentgp stops by itself. With `--large`: shuttle and MNIST, nine tenths of their rows, latentgp by
batches (softmax and robust-max, weak priors, five epochs). One kernel for all classes, 200 shared
k-means points (the distinct rows where they are no more) held fixed unless `--learn-inducing` (the
peers' only). Held-out rows: all others, at most 5,000. `median s` is the training time to the
lowest log loss that any peer of the same turn ended at, `times_faster` that peer's own time over
it, `times_first` that of whichever peer was there first, `auto_seconds` and so on the time to the
losses that latentgp's ended at, without compilation and without evaluating the scores. A dash, and
0 times: not reached.
"""

import harness
from data import inducing_points, multiclass
from harness import OURS, Contestant

OWN = {
    "auto": {"likelihood": "softmax", "method": "VariationalInference", "priors": True},
    "no_priors": {"likelihood": "softmax", "method": "VariationalInference"},
    "augmented": {"likelihood": "logistic-softmax", "method": "AugmentedVI"},
    "robust_max": {"likelihood": "robust-max", "method": "VariationalInference", "priors": True},
}
BY_BATCHES = {
    "batches": {"likelihood": "softmax", "method": "VariationalInference", "epochs": 5},
    "robust_max": {"likelihood": "robust-max", "method": "VariationalInference", "epochs": 5},
}
COLUMNS = (
    *(f"{name}_seconds" for name in OWN | BY_BATCHES),
    "times_faster",
    "times_first",
    "to_lowest_seconds",
    "start_seconds",
    "compile_seconds",
    "training_seconds",
    "step_ms",
    "log_loss",
    "lowest_log_loss",
    "calibration_error",
    "error",
    "evaluations",
    "peak_MiB",
)
SIZES = {
    "glass": 171,
    "vehicle": 677,
    "segment": 1540,
    "wine": 142,
    "shuttle": 5000,
    "usps": 7291,
    "mnist": 5000,
}
LARGE = ("shuttle", "mnist")
MOST_TEST_ROWS = 5000


def main() -> None:
    parser = harness.parser(__doc__, peers=("gpflow", "gpytorch"), repeats=0)
    parser.add_argument("--sets", nargs="+", choices=SIZES)
    parser.add_argument("--size", type=int, help="training rows, at most, but with --large")
    parser.add_argument("--large", action="store_true", help="whole sets, latentgp by batches")
    harness.add_training_arguments(
        parser, inducing=200, batch_size=500, learning_rate=0.05, max_seconds=60.0, natural=0.1
    )
    arguments = parser.parse_args()
    contestants = [
        Contestant(OURS, {**options, "max_seconds": harness.MOST_OWN_SECONDS}, f"{OURS} {name}")
        for name, options in (BY_BATCHES if arguments.large else OWN).items()
    ]
    for worker, likelihood in (
        ("gpflow", "robust-max"),
        ("gpflow", "softmax"),
        ("gpytorch", "softmax"),
    ):
        contestants += harness.with_and_without_natural(
            worker, arguments.natural, {"likelihood": likelihood}, likelihood
        )
    with harness.Session(arguments) as session:
        for name in arguments.sets or (LARGE if arguments.large else SIZES):
            size = None if arguments.large else min(SIZES[name], arguments.size or SIZES[name])
            split = multiclass(arguments.data_dir, name, size, MOST_TEST_ROWS)
            arrays = split._asdict() | {"Z": inducing_points(split.X, arguments.inducing)}
            classes = int(split.y.max()) + 1
            session.compare(
                f"{name}, {len(split.y)} x {split.X.shape[1]}, K = {classes}, "
                f"M = {len(arrays['Z'])}: seconds to the best peer's log loss",
                "sparse_multiclass",
                arrays,
                COLUMNS,
                harness.training_options(arguments) | {"classes": classes},
                contestants,
                finish=finish,
                cold=False,
            )


def finish(runs: harness.Runs) -> None:
    """Everyone's time to the best peer's last log loss, and to those of latentgp."""
    harness.note_time_to_best_peer(runs)
    for results in runs.values():
        for index, result in enumerate(results):
            for name in OWN | BY_BATCHES:
                if own := runs.get(f"{OURS} {name}"):
                    seconds = harness.seconds_to(result, "log_loss", own[index]["log_loss"])
                    result[f"{name}_seconds"] = seconds


if __name__ == "__main__":
    main()
