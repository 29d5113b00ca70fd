"""Sparse regression with Student's noise: how long latentgp takes to be as good as each peer.

Three degrees of freedom, not learned (GPflow does not learn them); the scale and an ARD RBF
kernel are. latentgp: augmented updates, and natural gradients by quadrature, until they stop by
themselves. GPflow and GPyTorch: Adam on everything, and natural gradients for q, mini-batch steps
until `--max-seconds` of training. 200 shared k-means points held fixed unless `--learn-inducing`
(the peers' only); a random tenth of the rows is held out, at most 5,000. `median s` is the training
time until the contestant was first as good as its own last held-out NLPD (`nlpd`), without
compilation and without evaluating the scores; `augmented_seconds` and `variational_seconds` are
latentgp's until it was first as good, a dash if it never was.
"""

import harness
from data import inducing_points, regression
from harness import OURS, OWN

COLUMNS = (
    *(f"{name}_seconds" for name in OWN),
    "start_seconds",
    "compile_seconds",
    "training_seconds",
    "nlpd",
    "lowest_nlpd",
    "rmse",
    "evaluations",
    "peak_MiB",
)
DEGREES_OF_FREEDOM = 3.0
MOST_TEST_ROWS = 5000


def main() -> None:
    parser = harness.parser(__doc__, peers=("gpflow", "gpytorch"), repeats=0)
    parser.add_argument("--sets", nargs="+", default=["boston", "kin8nm", "protein"])
    harness.add_training_arguments(
        parser, inducing=200, batch_size=500, learning_rate=0.05, max_seconds=30.0, natural=0.1
    )
    arguments = parser.parse_args()
    contestants = harness.own_methods()
    for worker in ("gpflow", "gpytorch"):
        contestants += harness.with_and_without_natural(worker, arguments.natural)
    options = harness.training_options(arguments) | {"degrees_of_freedom": DEGREES_OF_FREEDOM}
    with harness.Session(arguments) as session:
        for name in arguments.sets:
            split = regression(arguments.data_dir, name)
            held_out = split.X_test[:MOST_TEST_ROWS], split.y_test[:MOST_TEST_ROWS]
            split = split._replace(X_test=held_out[0], y_test=held_out[1])
            arrays = split._asdict() | {"Z": inducing_points(split.X, arguments.inducing)}
            session.compare(
                f"{name}, {len(split.y)} x {split.X.shape[1]}, M = {len(arrays['Z'])}: seconds to "
                "each one's own NLPD",
                "sparse_student",
                arrays,
                COLUMNS,
                options,
                contestants,
                finish=finish,
                cold=False,
            )


def finish(runs: harness.Runs) -> None:
    """Each one's time to its own last NLPD, and latentgp's to the same."""
    for results in runs.values():
        for index, result in enumerate(results):
            harness.note_time_to(result, "nlpd", result["nlpd"])
            for name in OWN:
                if own := runs.get(f"{OURS} {name}"):
                    seconds = harness.seconds_to(own[index], "nlpd", result["nlpd"])
                    result[f"{name}_seconds"] = seconds


if __name__ == "__main__":
    main()
