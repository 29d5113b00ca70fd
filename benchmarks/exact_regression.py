"""Exact regression: ARD RBF and Gaussian noise, maximum likelihood by L-BFGS to convergence.

Contestants must agree on the log evidence (nats, standardised target); the time is that of the
fit. `--sizes` are training rows; concrete is used whole (927 of 1,030). GPJax takes a minute a
run at 2,000 rows, scikit-learn several minutes at 5,000.
"""

import harness
from data import regression

COLUMNS = ("evaluations", "log_evidence", "rmse", "nlpd", "predict_seconds", "peak_MiB")
WHOLE = ("concrete",)


def main() -> None:
    parser = harness.parser(__doc__, peers=("scikit_learn", "gpytorch"), repeats=1)
    parser.add_argument("--sets", nargs="+", default=["concrete", "kin8nm", "power"])
    parser.add_argument("--sizes", nargs="+", type=int, default=[2000, 5000])
    arguments = parser.parse_args()
    with harness.Session(arguments) as session:
        for name in arguments.sets:
            for size in [None] if name in WHOLE else arguments.sizes:
                split = regression(arguments.data_dir, name, size)
                title = f"{name}, {len(split.y)} x {split.X.shape[1]}"
                session.compare(title, "exact_regression", split._asdict(), COLUMNS)


if __name__ == "__main__":
    main()
