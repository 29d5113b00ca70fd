"""Collapsed sparse regression on kin40k: 36,000 rows, 500 shared k-means points held fixed.

First one value and gradient of the bound at the start of the hyper-parameters, then with
`--fit` the whole L-BFGS fit (a minute or more a run). The bounds must agree.
"""

import harness
from data import inducing_points, regression

BOUND_COLUMNS = ("log_evidence", "peak_MiB")
FIT_COLUMNS = ("evaluations", "log_evidence", "rmse", "nlpd", "predict_seconds", "peak_MiB")


def main() -> None:
    parser = harness.parser(__doc__, peers=("gpflow", "gpytorch"), repeats=5)
    parser.add_argument("--inducing", type=int, default=500)
    parser.add_argument("--fit", action="store_true", help="fit too (then --repeats 0 or 1)")
    arguments = parser.parse_args()
    split = regression(arguments.data_dir, "kin40k_std_split")
    arrays = split._asdict() | {"Z": inducing_points(split.X, arguments.inducing)}
    title = f"kin40k, {len(split.y)} x {split.X.shape[1]}, M = {arguments.inducing}"
    with harness.Session(arguments) as session:
        session.compare(f"{title}: bound and gradient", "collapsed_bound", arrays, BOUND_COLUMNS)
        if arguments.fit:
            session.compare(f"{title}: fit", "collapsed_fit", arrays, FIT_COLUMNS)


if __name__ == "__main__":
    main()
