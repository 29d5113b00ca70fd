"""The rate of accidents over time, from counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
from jaxtyping import Float

from latentgp.datasets import coal_mine_disasters
from latentgp.surfaces.demo.section import Row, Section, Tell, behind, fitted, quiet
from latentgp.surfaces.estimators import GPCountRegressor
from latentgp.surfaces.evaluation import metrics, plots
from latentgp.surfaces.evaluation.plots import drawing

FOLDS = 8
YEARS = np.arange(1851, 1962)  # of 1962 the data have only the first months
OURS = "latentgp GPCountRegressor"


def counts(folder: Path, tell: Tell) -> Section:
    """Cross-validate models of yearly counts, and draw the rate that each finds in all years."""
    from sklearn.base import clone
    from sklearn.model_selection import KFold

    dates = coal_mine_disasters()
    dates = dates[dates < YEARS[-1] + 1]
    y = np.histogram(dates, [*YEARS, YEARS[-1] + 1])[0]
    X = YEARS[:, None].astype(float)
    folds = list(KFold(FOLDS, shuffle=True, random_state=0).split(X))
    contenders = _contenders()
    rows, rates = [], {}
    for name, estimator, first, again in fitted(contenders, X, y, tell):
        rates[name] = estimator.predict(X)
        nlpd, means = np.zeros(len(y)), np.zeros(len(y))
        for train, test in folds:
            with quiet():
                fold = cast(Any, clone(estimator)).fit(X[train], y[train])
            means[test] = fold.predict(X[test])
            nlpd[test] = _nlpd(fold, X[test], y[test])
        first_nlpd = rows[0].nlpd if rows else nlpd
        scores = behind(nlpd, first_nlpd), f"{metrics.poisson_deviance(y, means):.3f}"
        rows.append(Row(name, nlpd, scores, first, again))
    picture = folder / "disaster-rate.png"
    log_rate, variance = contenders[OURS].posterior_.predict_f(X)
    half = drawing.NORMAL_95 * np.sqrt(variance)
    band = np.exp(log_rate - half), np.exp(log_rate + half)
    plots.save_figure(_drawn(dates, y, rates, band), picture)
    return Section(
        title="A rate from counts",
        data=f"{y.sum()} explosions in British coal mines that killed ten or more, "
        f"{YEARS[0]} to {YEARS[-1]}, a count a year. Scores are of {FOLDS}-fold cross-validation: "
        "every year is held out once.",
        question="How did the rate change, and how well is it known? No knots or degrees are to be "
        "chosen: the marginal likelihood learns how smooth the rate is.",
        lesson=f"From {rates[OURS].max():.1f} a year around {YEARS[rates[OURS].argmax()]} the rate "
        "fell to one a year by 1905, and the band leaves open whether it rose once more in the "
        "1930s. The fit has the lowest NLPD with nothing tuned; the two GLMs are within two "
        "standard errors of it, a constant rate is not.",
        score="NLPD",
        columns=("above ours", "deviance"),
        rows=tuple(rows),
        picture=picture,
        caption="Yearly counts, the dates of the explosions as ticks at the foot, and the rates "
        "that the models find in all years, latentgp's with its 95 % band.",
    )


def _nlpd(
    estimator: Any, X: Float[np.ndarray, "N 1"], y: Float[np.ndarray, "N"]
) -> Float[np.ndarray, "N"]:
    """The Gaussian process averages over its uncertainty of the rate; the others state one."""
    from scipy.stats import poisson

    if isinstance(estimator, GPCountRegressor):
        return -estimator.log_predictive_density(X, y)
    return -poisson.logpmf(y, estimator.predict(X))


def _contenders() -> dict[str, Any]:
    from sklearn.dummy import DummyRegressor
    from sklearn.linear_model import PoissonRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import SplineTransformer, StandardScaler

    return {
        OURS: GPCountRegressor(random_state=0),
        "Poisson GLM, line": make_pipeline(StandardScaler(), PoissonRegressor(alpha=1e-4)),
        "Poisson GLM, spline": make_pipeline(
            SplineTransformer(8), PoissonRegressor(alpha=1e-3, solver="newton-cholesky")
        ),
        "constant rate": DummyRegressor(),
    }


def _drawn(
    dates: np.ndarray,
    y: np.ndarray,
    rates: dict[str, np.ndarray],
    band: tuple[np.ndarray, np.ndarray],
) -> Any:
    from matplotlib.figure import Figure

    middles = YEARS + 0.5
    ax = plots.prediction_bands(
        Figure(figsize=(9.0, 4.6), layout="constrained").add_subplot(),
        middles,
        rates[OURS],
        *band,
        observed_x=middles,
        observed_y=y,
        x_label="year",
        y_label="explosions a year",
        mean_label=f"{OURS}, mean and 95 % band",
        band_label="_",
    )
    styles, colors = ("--", "-.", ":"), (drawing.ORANGE, drawing.GREEN, drawing.GREY)
    for (name, rate), color, style in zip(list(rates.items())[1:], colors, styles, strict=True):
        ax.plot(middles, rate, color=color, linestyle=style, linewidth=1.3, label=name)
    foot: dict[str, Any] = {"color": drawing.INK, "markersize": 7, "clip_on": False}
    ax.plot(dates, np.full(dates.shape, -0.25), "|", markeredgewidth=0.6, **foot)
    ax.legend(**drawing.legend_style(loc="upper right"))
    ax.set_ylim(-0.6, y.max() + 0.6)
    return ax
