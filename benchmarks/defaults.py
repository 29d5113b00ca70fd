"""latentgp's own methods on real sets: what `method="auto"` should be.

`GPClassifier` as a user gets it, but for `method`, and with several classes for `likelihood`; and
`GPRegressor` with noise that is not Gaussian. Held-out log loss, calibration error of classes,
share of errors (of numbers, the root of the mean square), and the time of the fit, with compilation
(`first s`) and without (`median s`). `difference` is the mean of the rows' log losses less those of
the first contestant, `standard_error` its own. Up to `--size` training rows, at most 70 % of a set,
and at most 5,000 held out; up to 400 training rows each has a coefficient, more share 200 inducing
points. At the end means over the sets (and splits) on which no contestant failed.
"""

import argparse
from itertools import product

import numpy as np

import harness
from data import Split, binary, multiclass, regression
from harness import OURS, Contestant

COLUMNS = (
    "log_loss",
    "difference",
    "standard_error",
    "calibration_error",
    "error",
    "evaluations",
    "converged",
)
BINARY_SETS = {  # with their numbers of rows
    "ratsch_banana": 5300,
    "ratsch_breast_cancer": 277,
    "ratsch_diabetis": 768,
    "ratsch_german": 1000,
    "ratsch_image": 2310,
    "ratsch_ringnorm": 7400,
    "ratsch_titanic": 2201,
    "usps_3v5": 1540,
    "magic": 19020,
    "electricity": 45312,
}
MULTICLASS_SETS = {
    "glass": 214,
    "vehicle": 846,
    "segment": 2310,
    "wine": 178,
    "shuttle": 58000,
    "usps": 9298,
}
NOISE_SETS = {"boston": 506, "kin8nm": 8192, "concrete": 1030, "motorcycle": 133}
NOISES = ("student-t", "laplace", "matern", "heteroscedastic", "heteroscedastic-student-t")
METHODS = ("variational", "augmented", "laplace", "ep")
MOST_TEST_ROWS = 5000


def main() -> None:
    parser = harness.parser(__doc__, peers=(), repeats=1)
    sets = BINARY_SETS | MULTICLASS_SETS | NOISE_SETS
    parser.add_argument("--sets", nargs="+", choices=sets, default=list(sets))
    parser.add_argument("--size", type=int, default=2000)
    parser.add_argument("--splits", type=int, default=1, help="into training and held-out rows")
    parser.add_argument("--only", nargs="+", help="contestants, by name")
    arguments = parser.parse_args()
    two = [Contestant(OURS, {"method": method}, method) for method in METHODS]
    several = [
        Contestant(OURS, {"method": method, "likelihood": likelihood}, f"{method}, {likelihood}")
        for likelihood, methods in (
            ("softmax", ("variational", "laplace", "ep")),
            ("logistic-softmax", ("variational", "augmented")),
        )
        for method in methods
    ]
    noises = [
        Contestant(OURS, {"method": method, "likelihood": noise}, f"{method}, {noise}")
        for noise in NOISES
        for method in ("variational", "augmented")
    ]
    tasks = (
        ("classifier", BINARY_SETS, two),
        ("classifier", MULTICLASS_SETS, several),
        ("regressor", NOISE_SETS, noises),
    )
    with harness.Session(arguments) as session:
        for task, kind, contestants in tasks:
            chosen = [c for c in contestants if arguments.only is None or str(c) in arguments.only]
            tables: list[harness.Runs] = []
            names = [name for name in arguments.sets if name in kind]
            for name, seed in product(names, range(arguments.splits)):
                size = min(arguments.size, round(0.7 * sets[name]))
                split = load(arguments, name, size, seed)

                def finish(runs: harness.Runs, tables: list = tables) -> None:
                    compare_losses(runs)
                    tables.append(runs)

                session.compare(
                    f"{name}, {len(split.y)} x {split.X.shape[1]}, split {seed}",
                    task,
                    split._asdict(),
                    COLUMNS,
                    contestants=chosen,
                    finish=finish,
                )
            print_means(tables, [str(contestant) for contestant in chosen])


def load(arguments: argparse.Namespace, name: str, size: int, seed: int) -> Split:
    if name in BINARY_SETS:
        split = binary(arguments.data_dir, name, size, seed)
        held_out = split.X_test[:MOST_TEST_ROWS], split.y_test[:MOST_TEST_ROWS]
        return split._replace(X_test=held_out[0], y_test=held_out[1])
    if name in NOISE_SETS:
        return regression(arguments.data_dir, name, size, seed)
    return multiclass(arguments.data_dir, name, size, MOST_TEST_ROWS, seed)


def compare_losses(runs: harness.Runs) -> None:
    """Row by row with the first contestant's."""
    base = next(iter(runs.values()))
    for results in runs.values():
        for result, first in zip(results, base, strict=True):
            difference = np.load(result["log_losses"]) - np.load(first["log_losses"])
            result["difference"] = difference.mean()
            result["standard_error"] = difference.std(ddof=1) / len(difference) ** 0.5


def print_means(tables: list[harness.Runs], names: list[str]) -> None:
    """Over the sets on which no contestant failed."""
    whole = [runs for runs in tables if len(runs) == len(names)]
    if whole:
        known = whole[0][names[0]][0]
        columns = [c for c in ("log_loss", "calibration_error", "error") if c in known]
        means = {
            name: [
                {
                    column: float(np.mean([runs[name][index][column] for runs in whole]))
                    for column in ("seconds", *columns)
                }
                for index in range(len(whole[0][name]))
            ]
            for name in names
        }
        print(f"\nMeans over {len(whole)} sets\n{harness.table(means, columns)}")


if __name__ == "__main__":
    main()
