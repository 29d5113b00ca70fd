"""Binary classification with the logit link and an RBF kernel on the Rätsch sets.

scikit-learn: Laplace's approximation at all training rows. GPyTorch: variational, at 200 shared
k-means points (the distinct rows where they are no more), 300 full-batch Adam steps. latentgp:
`method="auto"`. The kernel has one length-scale unless `--ard`. Up to `--size` training rows (at
most 70 % of a set); `--large` is ringnorm at 1,000, 2,000 and 4,000, where scikit-learn takes
minutes a run.
"""

import harness
from data import binary, inducing_points

COLUMNS = ("evaluations", "log_evidence", "log_loss", "error", "predict_seconds", "peak_MiB")
SETS = {  # with their numbers of rows
    "ratsch_banana": 5300,
    "ratsch_breast_cancer": 277,
    "ratsch_diabetis": 768,
    "ratsch_german": 1000,
    "ratsch_image": 2310,
    "ratsch_ringnorm": 7400,
    "ratsch_titanic": 2201,
}
N_INDUCING = 200


def main() -> None:
    parser = harness.parser(__doc__, peers=("scikit_learn", "gpytorch"), repeats=1)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument(
        "--large", nargs="*", type=int, help="ringnorm at these sizes: 1000 2000 4000 unless given"
    )
    parser.add_argument("--ard", action="store_true", help="a length-scale for every input")
    arguments = parser.parse_args()
    cases = [(name, min(arguments.size, round(0.7 * SETS[name]))) for name in arguments.sets]
    if arguments.large is not None:
        cases = [("ratsch_ringnorm", size) for size in arguments.large or (1000, 2000, 4000)]
    with harness.Session(arguments) as session:
        for name, size in cases:
            split = binary(arguments.data_dir, name, size)
            arrays = split._asdict() | {"Z": inducing_points(split.X, N_INDUCING)}
            title = f"{name}, {size} x {split.X.shape[1]}"
            session.compare(title, "binary_classification", arrays, COLUMNS, ard=arguments.ard)


if __name__ == "__main__":
    main()
