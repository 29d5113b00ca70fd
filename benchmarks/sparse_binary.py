"""Sparse binary classification: training time to the best peer's own final held-out log loss.

Random 90/10 splits (at most 10,000 rows held out), shared k-means points held fixed, logit link, no
priors for latentgp with all rows at once, weak ones for `Stochastic`, whose time holds the start on
4,096 rows. The peers take mini-batch steps until `--max-seconds` of training; `median s` is the
training time to the best peer's last log loss of the same turn, `times_faster` that peer's own time
over it, `times_first` that of whichever peer was there first, `to_lowest_seconds` the time to the
lowest that any peer was seen at, without compilation and without evaluating the loss. A dash, and
0 times: not reached.
"""

import harness
from data import Split, binary, inducing_points
from harness import OURS, Contestant

COLUMNS = (
    "times_faster",
    "times_first",
    "to_lowest_seconds",
    "start_seconds",
    "compile_seconds",
    "training_seconds",
    "step_ms",
    "log_loss",
    "lowest_log_loss",
    "error",
    "peak_MiB",
)
SETS = ("electricity", "magic", "a9a", "eeg", "airline_delay", "mnist")
MOST_TEST_ROWS = 10_000
MOST_AT_ONCE = 100_000


def main() -> None:
    parser = harness.parser(__doc__, peers=("gpytorch", "gpflow", "gpjax"), repeats=0)
    # Of 0.02 and 0.05 for Adam on everything, and natural gradients of 0.1 with Adam on the kernel,
    # this took every peer to its loss on electricity soonest, or as soon as any.
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--size", type=int, help="training rows, at most")
    harness.add_training_arguments(
        parser, inducing=100, batch_size=1000, learning_rate=0.05, max_seconds=60.0, natural=0.1
    )
    arguments = parser.parse_args()
    batches = {"method": "VariationalInference", "epochs": 20, "max_seconds": 60.0}
    contestants = [Contestant(OURS, batches, f"{OURS} Stochastic")]
    at_once = harness.stops_by_itself("VariationalInference", f"{OURS} at once")
    for peer in arguments.peers:
        if peer == "gpjax":
            contestants.append(Contestant(peer))
        else:
            contestants += harness.with_and_without_natural(peer, arguments.natural)
    with harness.Session(arguments) as session:
        for name in arguments.sets:
            split = _thinned(binary(arguments.data_dir, name, seed=0), arguments.size)
            arrays = split._asdict() | {"Z": inducing_points(split.X, arguments.inducing)}
            rows = len(split.y)
            session.compare(
                f"{name}, {rows} x {split.X.shape[1]}, M = {arguments.inducing}: seconds to the "
                "best peer's log loss",
                "sparse_binary",
                arrays,
                COLUMNS,
                harness.training_options(arguments),
                [at_once, *contestants] if rows <= MOST_AT_ONCE else contestants,
                finish=harness.note_time_to_best_peer,
                cold=False,
            )


def _thinned(split: Split, size: int | None) -> Split:
    X, y, X_test, y_test = split
    return Split(X[:size], y[:size], X_test[:MOST_TEST_ROWS], y_test[:MOST_TEST_ROWS])


if __name__ == "__main__":
    main()
