"""Results people look at: the demo's comparison and its pictures."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from latentgp.errors import InputError
from latentgp.estimators import GPClassifier, GPOrdinalClassifier, GPRegressor
from latentgp.evaluation import metrics, plots
from latentgp.evaluation.comparison import LEVELS, interval_coverages
from latentgp.parameters.base import parameters
from latentgp.parameters.summary import aligned
from latentgp.tables.scores import uncensored
from latentgp.tables.values import Tell, warn

if TYPE_CHECKING:
    import pandas as pd

    from latentgp.evaluation.comparison import Comparison
    from latentgp.tables.model import TableModel
    from latentgp.tables.start import Estimator


class Scored(NamedTuple):
    """A row of the demo's table."""

    name: str
    nlpd: float
    error: float
    coverage: float
    seconds: float


def calibration_picture(
    model: "TableModel", frame: "pd.DataFrame", path: Path, tell: Tell = warn
) -> Path:
    """Reliability diagram of a classifier, interval calibration of a regressor.

    Args:
        model: fitted.
        frame: rows whose target is known.
        path: of the picture.
        tell: as `TableModel.predict` takes it.
    """
    return plots.save_figure(_calibration(model.estimator, *model.encoded(frame, tell)), path)


def lengthscales(model: "TableModel") -> str:
    """Tables of all length-scales beside their inputs, the most relevant first.

    That is the shortest relative to the input's spread. One for all inputs is left out.
    """
    names = model.encoder.feature_names
    spreads = model.spreads or np.ones(len(names))
    tables = []
    for info in parameters(model.estimator.model_).values():
        seen = range(len(names)) if info.dimensions is None else info.dimensions
        if info.role != "lengthscale" or np.shape(info.value) != (len(seen),):
            continue
        rows = [
            (value / spread if spread else np.inf, names[column], value, spread)
            for value, column in zip(info.value, seen, strict=True)
            for spread in [spreads[column]]
        ]
        rows = [
            (name, f"{value:.4g}", f"{spread:.4g}", f"{ratio:.3g}")
            for ratio, name, value, spread in sorted(rows)
        ]
        heading = "input", "length-scale", "input's spread", "length-scale / spread"
        tables.append(f"{info.path}, the most relevant input first:\n{aligned([heading, *rows])}")
    return "\n".join(tables)


def print_comparison(found: "Comparison", target: str) -> None:
    """A table of contenders, best first, and what was noted of each.

    `behind` is how much higher a NLPD is than the best, next to the standard error of that.
    """
    from rich.console import Console
    from rich.table import Table

    classes = found.task in ("classification", "ordinal")
    console = Console()
    console.width = max(80, console.width)  # less holds no row
    title = f"{found.task} of {target!r}: {found.trained_on} rows to learn from"
    held_out = f"{found.held_out} held out"
    table = Table(title=f"{title}, {held_out}", title_justify="left", box=None, pad_edge=False)
    table.add_column("contender", overflow="fold", min_width=12)
    distances = {"RMSE": "error", "MAE": "absolute_error"}
    distances |= {"deviance": "deviance"} if found.task == "count" else {"CRPS": "crps"}
    distances = {"error": "error"} if classes else distances
    headings = ["NLPD", "behind", "± s.e.", *distances, "in 95 %", "calib.", "s"]
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in found.rows:
        if np.isnan(row.nlpd):
            table.add_row(row.name, *["-"] * (len(headings) - 1), f"{row.seconds:.1f}")
            continue
        table.add_row(
            row.name,
            f"{row.nlpd:.3f}",
            f"{row.nlpd - found.rows[0].nlpd:.3f}",
            f"{row.standard_error:.3f}",
            *(f"{getattr(row, name):.3g}" for name in distances.values()),
            f"{100 * row.coverage:.1f} %",
            f"{row.calibration_error:.3f}",
            f"{row.seconds:.1f}",
        )
    console.print(table)
    for row in found.rows:
        if row.note:
            console.print(f"- {row.name}: {row.note}", markup=False)


def comparison_picture(found: "Comparison", path: Path) -> Path:
    """The contenders' NLPD, those without a fit left out.

    Raises:
        InputError: none was fitted.
    """
    fitted = [row for row in found.rows if not np.isnan(row.nlpd)]
    if not fitted:
        raise InputError("no contender could be fitted, so there is no picture: mend the above")
    axes = plots.comparison(
        None,
        [row.name for row in fitted],
        [row.nlpd for row in fitted],
        [row.standard_error for row in fitted],
        bars="two standard errors of the difference from the best",
    )
    return plots.save_figure(axes, path)


def run_demo(folder: Path) -> None:
    """Fit a classifier and a regressor to data bundled with scikit-learn; print and draw."""
    from rich.console import Console

    console = Console()
    started = time.perf_counter()
    pictures = _demo_classification(console, folder) + _demo_regression(console, folder)
    console.print(f"Done in {time.perf_counter() - started:.0f} s. Pictures:")
    for picture in pictures:
        console.print(f"  {picture}")


def _demo_classification(console: Any, folder: Path) -> list[Path]:
    from sklearn.datasets import load_breast_cancer
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    bunch: Any = load_breast_cancer()
    X, X_test, y, y_test = _split(bunch.data, bunch.target_names[bunch.target])
    contestants = {
        "latentgp GPClassifier": GPClassifier(random_state=0),
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression()),
        "scikit-learn GP": make_pipeline(
            StandardScaler(),
            GaussianProcessClassifier(ConstantKernel() * RBF(), random_state=0),
        ),
    }
    scored = []
    for name, estimator in contestants.items():
        seconds = _timed(console, name, lambda e=estimator: e.fit(X, y))
        probabilities = estimator.predict_proba(X_test)
        # Coverage of a classifier: the smallest set of labels holding 95 % should hold y.
        truth = probabilities[np.arange(len(y_test)), (y_test == estimator.classes_[1]).astype(int)]
        covered = (truth >= 0.5) | (probabilities.max(axis=1) < 0.95)
        scored.append(
            Scored(
                name,
                metrics.log_loss(y_test, probabilities, classes=estimator.classes_),
                float(np.mean(estimator.predict(X_test) != y_test)),
                float(np.mean(covered)),
                seconds,
            )
        )
    title = f"Breast cancer (Wisconsin): {len(X)} rows to learn from, {len(X_test)} held out"
    _print_table(console, title, "error", scored)
    ours = contestants["latentgp GPClassifier"]
    figure = _calibration(ours, X_test, y_test)
    return [plots.save_figure(figure, folder / "classification-calibration.png")]


def _demo_regression(console: Any, folder: Path) -> list[Path]:
    from sklearn.datasets import load_diabetes
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.linear_model import BayesianRidge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    bunch: Any = load_diabetes(scaled=False)
    X, X_test, y, y_test = _split(bunch.data, bunch.target)
    lengthscale: Any = np.ones(X.shape[1])
    kernel = ConstantKernel() * RBF(lengthscale) + WhiteKernel()
    contestants = {
        "latentgp GPRegressor": GPRegressor(random_state=0),
        "Bayesian ridge": make_pipeline(StandardScaler(), BayesianRidge()),
        "scikit-learn GP": make_pipeline(
            StandardScaler(),
            GaussianProcessRegressor(kernel, normalize_y=True, random_state=0),
        ),
    }
    scored = []
    for name, estimator in contestants.items():
        seconds = _timed(console, name, lambda e=estimator: e.fit(X, y))
        mean, std = estimator.predict(X_test, return_std=True)
        density = -0.5 * (np.log(2 * np.pi * std**2) + ((y_test - mean) / std) ** 2)
        lower, upper = mean - 1.96 * std, mean + 1.96 * std
        scored.append(
            Scored(
                name,
                metrics.negative_log_predictive_density(density),
                metrics.root_mean_squared_error(y_test, mean),
                metrics.interval_coverage(y_test, lower, upper),
                seconds,
            )
        )
    title = f"Diabetes progression: {len(X)} rows to learn from, {len(X_test)} held out"
    _print_table(console, title, "RMSE", scored)
    ours = contestants["latentgp GPRegressor"]
    lower, upper = ours.predict_interval(X_test)
    observed = plots.observed_against_predicted(
        None, y_test, ours.predict(X_test), lower, upper, target_label="disease progression"
    )
    relevance = plots.relevance(
        None,
        ours.model_.kernel.lengthscale / X.std(axis=0),
        list(bunch.feature_names),
        x_label="relevance: 1 / length-scale, in standard deviations of the input",
    )
    return [
        plots.save_figure(
            _calibration(ours, X_test, y_test), folder / "regression-calibration.png"
        ),
        plots.save_figure(observed, folder / "regression-predictions.png"),
        plots.save_figure(relevance, folder / "regression-relevance.png"),
    ]


def _split(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    """70 % of the rows to learn from, 30 % held out: X, X_test, y, y_test."""
    from sklearn.model_selection import train_test_split

    split = cast(Any, train_test_split)  # scikit-learn's decorator hides the signature
    return tuple(map(np.asarray, split(X, y, test_size=0.3, random_state=0)))


def _calibration(
    estimator: "Estimator", X: np.ndarray, y: np.ndarray, side: dict[str, Any] | None = None
) -> Any:
    if isinstance(estimator, GPClassifier | GPOrdinalClassifier):
        bins = int(np.clip(len(y) // 30, 5, 15))  # fewer rows a bin would show chance alone
        probabilities = estimator.predict_proba(X)
        judged = probabilities[:, 1] if probabilities.shape[1] == 2 else probabilities
        return plots.reliability_diagram(None, y, judged, bins, classes=estimator.classes_)
    observed = interval_coverages(estimator, X, y, side or {})
    rows = int(uncensored(side or {}, len(y)).sum())
    return plots.interval_calibration(None, LEVELS, observed, rows=rows)


def _timed(console: Any, name: str, work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    with console.status(f"fitting {name} ..."):
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            work()
    return time.perf_counter() - started


def _print_table(console: Any, title: str, error: str, scored: list[Scored]) -> None:
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("method")
    for heading in ("NLPD (nats)", error, "95 % coverage", "seconds"):
        table.add_column(heading, justify="right")
    for row in scored:
        table.add_row(
            row.name,
            f"{row.nlpd:.4f}",
            f"{row.error:.4g}",
            f"{100 * row.coverage:.1f} %",
            f"{row.seconds:.2f}",
        )
    console.print(table)
