"""Sparse regression: training time to the best peer's own final held-out log density.

kin40k and protein: random 90/10 splits. Airline delays: 700,000 rows to train on, and every tenth
of the 100,000 that follow them in time to score (Bonilla et al. 2019, 9.7.1, of other years).
Batches have weak priors, and the start on 4,096 rows in their time. Shared k-means points held
fixed. The peers' stochastic bounds (SVGP) take mini-batch steps until `--max-seconds`; their
collapsed bounds (SGPR) are in `collapsed_sparse.py`. Columns as in `sparse_binary.py`.
"""

import harness
from data import airline_in_time, inducing_points, regression
from harness import OURS, Contestant

COLUMNS = (
    "times_faster",
    "times_first",
    "to_lowest_seconds",
    "start_seconds",
    "compile_seconds",
    "training_seconds",
    "step_ms",
    "nlpd",
    "lowest_nlpd",
    "rmse",
    "peak_MiB",
)
SETS = ("kin40k_std_split", "protein", "airline")
MOST_TEST_ROWS = 10_000


def main() -> None:
    parser = harness.parser(__doc__, peers=("gpytorch", "gpflow"), repeats=0)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    harness.add_training_arguments(
        parser, inducing=200, batch_size=1000, learning_rate=0.05, max_seconds=60.0, natural=0.1
    )
    arguments = parser.parse_args()
    batches = {"method": "CollapsedVI", "epochs": 5, "max_seconds": 60.0}
    at_once = harness.stops_by_itself("CollapsedVI", f"{OURS} at once")
    peers = []
    for peer in arguments.peers:
        peers += harness.with_and_without_natural(peer, arguments.natural)
    with harness.Session(arguments) as session:
        for name in arguments.sets:
            if name == "airline":
                split = airline_in_time(arguments.data_dir)
                own = [Contestant(OURS, batches, f"{OURS} Stochastic")]
            else:
                split = regression(arguments.data_dir, name)
                own = [at_once, Contestant(OURS, batches, f"{OURS} Stochastic")]
            every = slice(None, None, -(-len(split.y_test) // MOST_TEST_ROWS))
            split = split._replace(X_test=split.X_test[every], y_test=split.y_test[every])
            arrays = split._asdict() | {"Z": inducing_points(split.X, arguments.inducing)}
            session.compare(
                f"{name}, {len(split.y)} x {split.X.shape[1]}, M = {arguments.inducing}: seconds "
                "to the best peer's NLPD",
                "sparse_regression",
                arrays,
                COLUMNS,
                harness.training_options(arguments),
                [*own, *peers],
                finish=finish,
                cold=False,
            )


def finish(runs: harness.Runs) -> None:
    """Everyone's time to the best peer's last NLPD."""
    harness.note_time_to_best_peer(runs, "nlpd")


if __name__ == "__main__":
    main()
