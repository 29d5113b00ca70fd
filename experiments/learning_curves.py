"""Held-out error and density against seconds: stochastic gradients by solves, and approximations.

Cutajar, Osborne, Cunningham & Filippone (2016), "Preconditioning kernel matrices", section 5: an
RBF kernel with a length-scale an input, the same start for all. Regression (power, protein) by
preconditioned conjugate gradients with AdaGrad (four probe vectors, 4 sqrt(N) random rows for the
Nyström preconditioner, drawn anew at each iteration, step one), by Cholesky factorisations with
L-BFGS, and through N^(2/3) points by FITC, PITC and the variational bound; probit classification
(spam, EEG, credit) the same with Laplace's approximation. Claimed: solves beat approximations at an
equal budget and are competitive with factorisations (figures only).

Here at most --rows rows of regression and --class-rows of classification, --held-out others, one
split; magic in place of spam, which is not there; points are random rows and held; no priors.
Solves are those of `SolvesGP`, and of `MatrixFree` with L-BFGS-B, whose probe vectors are held: of
classes the second alone, as the library has no AdaGrad there. FITC is `Laplace` of inducing points;
PITC of classes is not there. L-BFGS-B begins with the library's short runs on few rows, which
count. A point is a fit of its own, with once, twice, four times as many evaluations (AdaGrad: ten
times as many iterations) until one takes --seconds or the search ends; its seconds are the
processor's, without compilation, predictions not counted.
"""

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

import latentgp as lgp
from common import COLORS, STYLES, Report, figure, load, parser, standardised, tidy

KEY = jax.random.key(0)
REGRESSION = ("power", "protein")
CLASSES = ("magic", "eeg", "ratsch_german")
NAMES = ("solves, AdaGrad", "solves, L-BFGS", "Cholesky", "FITC", "PITC", "variational")
ITERATIONS = 10  # of AdaGrad, for each evaluation of the others
USUAL = 20_000  # of EEG's voltages; three rows have spikes of a hundred times as much


class Split(NamedTuple):
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def split_of(folder, name, rows, held_out) -> Split:
    """Rows drawn at random, and others held out."""
    X, y = load(folder, name)
    if name == "eeg":
        usual = np.all(X < USUAL, axis=1)
        X, y = X[usual], y[usual]
    order = np.random.default_rng(0).permutation(len(y))
    rows = min(rows, len(y) - min(held_out, len(y) // 4))
    train, test = order[:rows], order[rows : rows + held_out]
    inputs = standardised(X[train], X[test])
    if name in CLASSES:
        y = (y == y.max()).astype(float)
        return Split(inputs[0], y[train], inputs[1], y[test])
    return Split(
        inputs[0], standardised(y[train])[0], inputs[1], standardised(y[train], y[test])[1]
    )


def contestants(name: str, split: Split) -> dict[str, Callable[[int], lgp.Method]]:
    """Methods by name, given how often the evidence may be evaluated."""
    rows = len(split.y)
    chosen = np.random.default_rng(1).permutation(rows)[: round(rows ** (2 / 3))]
    Z = split.X[chosen]

    def held(method: lgp.Method) -> Callable[[int], lgp.Method]:
        return lambda budget: method

    if name in CLASSES:
        return {
            "solves, L-BFGS": held(lgp.Laplace(lgp.MatrixFree())),
            "Cholesky": held(lgp.Laplace()),
            "FITC": held(lgp.Laplace(lgp.Inducing(points=Z))),
            "variational": held(lgp.VariationalInference(lgp.Inducing(points=Z))),
        }
    solves = lgp.Solves(rank=4 * math.isqrt(rows))

    return {
        "solves, AdaGrad": lambda budget: lgp.SolvesGP(
            solves=solves, iterations=ITERATIONS * budget
        ),
        "solves, L-BFGS": held(lgp.ExactGP(lgp.MatrixFree())),
        "Cholesky": held(lgp.ExactGP()),
        **{
            label: held(lgp.CollapsedVI(lgp.Inducing(points=Z, approximation=own)))
            for label, own in (("FITC", "fitc"), ("PITC", "pitc"), ("variational", "vfe"))
        },
    }


def scores(posterior: lgp.Posterior, split: Split, classes: bool) -> tuple[float, float]:
    """Share of errors or RMSE, and mean negative log density of held-out rows."""
    predictive = posterior.predict(split.X_test)
    density = -float(np.mean(predictive.log_prob(split.y_test)))
    mean = np.asarray(predictive.mean)
    if classes:
        return float(np.mean((mean > 0.5) != split.y_test)), density
    return float(np.sqrt(np.mean((mean - split.y_test) ** 2))), density


def curve(
    name: str, split: Split, method: Callable[[int], lgp.Method], seconds: float
) -> list[list[float]]:
    """Evaluations, processor seconds, error and density, of fits that are longer and longer."""
    columns = split.X.shape[1]
    kernel = lgp.RBF(np.full(columns, columns**0.5))
    classes = name in CLASSES
    likelihood = lgp.BernoulliProbit() if classes else lgp.Gaussian(0.1)
    model = lgp.LatentGP(kernel, likelihood)
    data = lgp.Data(split.X, split.y)

    def fitted(budget: int) -> tuple[float, lgp.Fit]:
        started = time.process_time()
        fit = lgp.fit(
            model, data, method=method(budget), key=KEY, priors=None, max_evaluations=budget
        )
        return time.process_time() - started, fit

    fitted(1)  # compiles
    points, budget, before = [], 1, 0
    while True:
        spent, fit = fitted(budget)
        made = fit.diagnostics.evaluations
        if made == before:
            return points
        points.append([made, spent, *scores(fit.posterior, split, classes)])
        if 2 * spent > seconds:
            return points
        budget, before = 2 * budget, made


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rows", type=int, default=2000, help="of regression, at most")
    options.add_argument("--class-rows", type=int, default=1000, help="of classification")
    options.add_argument("--held-out", type=int, default=500)
    options.add_argument("--seconds", type=float, default=10, help="of the longest fit")
    sets = (*REGRESSION, *CLASSES)
    options.add_argument("--sets", nargs="+", choices=sets, default=sets)
    options.add_argument("--methods", nargs="+", choices=NAMES, default=NAMES)
    arguments = options.parse_args()
    report = Report("learning_curves", arguments)
    if arguments.quick:
        arguments.rows = arguments.class_rows = 100
        arguments.held_out, arguments.seconds, arguments.sets = 50, 0.2, ["power"]
    found = {}
    for name in arguments.sets:
        rows = arguments.class_rows if name in CLASSES else arguments.rows
        split = split_of(arguments.data_dir, name, rows, arguments.held_out)
        started, lines = time.perf_counter(), []
        found[name] = {}
        for label, method in contestants(name, split).items():
            if label not in arguments.methods:
                continue
            found[name][label] = points = curve(name, split, method, arguments.seconds)
            lines += [[label, *point] for point in points]
        error = "errors" if name in CLASSES else "RMSE"
        report.table(
            f"{name}, {len(split.y)} x {split.X.shape[1]}, {len(split.y_test)} held out",
            ("method", "evaluations", "seconds", error, "NLPD"),
            lines,
        )
        report.note(f"{name}: {time.perf_counter() - started:.0f} s")
    report.save(drawn(found))


def drawn(found: dict[str, dict[str, list[list[float]]]]) -> Any:
    """Error above, density below, a column a set."""
    picture = figure(3.2 * len(found), 5.6)
    axes = picture.subplots(2, len(found), squeeze=False)
    for column, (name, curves) in enumerate(found.items()):
        for row, place in enumerate((2, 3)):
            ax = axes[row, column]
            for label, points in curves.items():
                style = NAMES.index(label)
                seconds = [point[1] for point in points]
                ax.plot(
                    seconds, [point[place] for point in points], marker=".", label=label,
                    color=COLORS[style], linestyle=STYLES[style],
                )  # fmt: skip
            ax.set_xscale("log")
            ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
            ax.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds:g}"))
            ax.xaxis.set_minor_formatter(NullFormatter())
            error = "share of errors" if name in CLASSES else "RMSE"
            what = error if row == 0 else "negative log density"
            tidy(ax, name, "processor seconds", what)
    lines, labels = axes[0, 0].get_legend_handles_labels()
    picture.legend(lines, labels, loc="outside lower center", ncols=len(labels), fontsize=8)
    return picture


if __name__ == "__main__":
    main()
