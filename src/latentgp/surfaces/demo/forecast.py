"""A forecast of carbon dioxide in the air over 22 years, with its uncertainty."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
from jaxtyping import Float

from latentgp.datasets import mauna_loa_co2
from latentgp.kernels import RBF, Matern12, Periodic, Polynomial
from latentgp.surfaces.demo.section import Row, Section, Tell, fitted
from latentgp.surfaces.estimators import GPRegressor
from latentgp.surfaces.evaluation import metrics, plots
from latentgp.surfaces.evaluation.plots import drawing

ORIGIN = 1990.0  # of the input, so that a quadratic in it is well conditioned
HELD_OUT_FROM = 2004.0
OURS = "latentgp GPRegressor"
REGRESSION = "trend + season regression"


class SeasonalDrift:
    """The same month of the last year plus the mean growth since: a random walk with drift.

    Source: Hyndman and Athanasopoulos (2021), "Forecasting", section 5.2.
    """

    def fit(self, X: Float[np.ndarray, "N 1"], y: Float[np.ndarray, "N"]) -> Self:
        """Take monthly values in the order of time, the last twelve of which are carried on."""
        growth = y[12:] - y[:-12]
        self.last, self.end = y[-12:], X[-1, 0]
        self.growth, self.spread, self.years = growth.mean(), growth.std(ddof=1), len(growth) / 12
        return self

    def predict(self, X: Float[np.ndarray, "N 1"], *, return_std: bool) -> tuple[Any, Any]:
        """Mean and standard deviation at months that follow without a gap."""
        month = np.arange(len(X))
        ahead = month // 12 + 1.0
        spread = self.spread * np.sqrt(ahead * (1 + ahead / self.years))
        return self.last[month % 12] + self.growth * ahead, spread


def forecast(folder: Path, tell: Tell) -> Section:
    """Fit the months before 2004, and score and draw the forecast of those since."""
    years, co2 = mauna_loa_co2()
    X = (years - ORIGIN)[:, None]
    seen = years < HELD_OUT_FROM
    later = co2[~seen]
    rows, predictions = [], {}
    for name, estimator, first, again in fitted(_contenders(), X[seen], co2[seen], tell):
        mean, std = estimator.predict(X[~seen], return_std=True)
        predictions[name] = mean, std
        nlpd = 0.5 * (np.log(2 * np.pi * std**2) + ((later - mean) / std) ** 2)
        half = drawing.NORMAL_95 * std
        scores = (
            f"{metrics.root_mean_squared_error(later, mean):.2f} ppm",
            f"{np.mean(metrics.crps_gaussian(later, mean, std)):.2f} ppm",
            f"{100 * metrics.interval_coverage(later, mean - half, mean + half):.0f} %",
        )
        rows.append(Row(name, nlpd, scores, first, again))
    picture = folder / "co2-forecast.png"
    plots.save_figure(_drawn(years, co2, predictions), picture)
    return Section(
        title="A forecast whose band can be believed",
        data=f"Monthly CO₂ at Mauna Loa: {seen.sum()} months from 1958 to 2003 to learn from, the "
        f"{(~seen).sum()} months from 2004 to June 2026 held out.",
        question="The model is a sum of kernels: a quadratic trend, a season whose shape drifts "
        "slowly, and an Ornstein-Uhlenbeck process, whose correlations are learned too. The "
        "regression has the same trend and season, and independent errors.",
        lesson="Both forecast the mean well. But errors of neighbouring months are correlated, "
        "and only the Gaussian process says so: its band widens with the horizon and holds what "
        "came, while that of the regression is no wider after 22 years than after one, and nearly "
        "half of the months are outside it. (As months are not independent, a band of 95 % that "
        "holds all of them is not a band that is too wide.)",
        score="NLPD",
        columns=("RMSE", "CRPS", "in band"),
        rows=tuple(rows),
        picture=picture,
        caption="Above: forecasts from the end of 2003 with their 95 % bands. Below: what came, "
        "less the forecast.",
    )


def _contenders() -> dict[str, Any]:
    from sklearn.linear_model import BayesianRidge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    trend = Polynomial(degree=2, variance=1e-3, offset=1e3)
    season = Periodic(period=1.0) * RBF(lengthscale=90.0)
    deviation = Matern12(lengthscale=50.0)
    return {
        OURS: GPRegressor(
            trend + season + deviation, frozen=["kernel.parts[1].parts[0].period"], random_state=0
        ),
        REGRESSION: make_pipeline(
            FunctionTransformer(_trend_and_season), StandardScaler(), BayesianRidge()
        ),
        "seasonal naive with drift": SeasonalDrift(),
    }


def _trend_and_season(X: Float[np.ndarray, "N 1"]) -> Float[np.ndarray, "N columns"]:
    angles = 2 * np.pi * X * np.arange(1, 5)
    return np.hstack([X, X**2, np.sin(angles), np.cos(angles)])


def _drawn(years: np.ndarray, co2: np.ndarray, predictions: dict[str, Any]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 6.6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    seen = years < HELD_OUT_FROM
    time, later = years[~seen], co2[~seen]
    recent = seen & (years >= ORIGIN)
    mean, std = predictions[OURS]
    half = drawing.NORMAL_95 * std
    labels = {"mean_label": f"{OURS}, mean and 95 % band", "band_label": "_"}
    plots.prediction_bands(above, time, mean, mean - half, mean + half, **labels)
    dots: dict[str, Any] = {"markersize": 3.2, "markeredgewidth": 0, "zorder": 4}
    above.plot(years[recent], co2[recent], "o", color=drawing.GREY, label="learned from", **dots)
    above.plot(time, later, "o", color=drawing.INK, label="held out", **dots)
    below.fill_between(time, -half, half, color=drawing.BLUE, alpha=0.18, linewidth=0)
    below.plot(time, later - mean, color=drawing.BLUE, linewidth=1.4, label=OURS)
    others = (drawing.ORANGE, "--"), (drawing.GREEN, ":")
    for (name, (mean, std)), (color, style) in zip(
        list(predictions.items())[1:], others, strict=True
    ):
        banded = ", mean and 95 % band" if name == REGRESSION else ""
        above.plot(time, mean, style, color=color, linewidth=1.3, label=f"{name}{banded}", zorder=2)
        if name == REGRESSION:
            half = drawing.NORMAL_95 * std
            band: dict[str, Any] = {"color": color, "alpha": 0.3, "linewidth": 0}
            above.fill_between(time, mean - half, mean + half, **band)
            below.fill_between(time, -half, half, **band)
            below.plot(time, later - mean, style, color=color, linewidth=1.4, label=name)
    for ax in (above, below):
        ax.axvline(HELD_OUT_FROM, color=drawing.GREY, linewidth=1.0)
    below.axhline(0.0, color=drawing.GREY, linewidth=0.8)
    above.legend(**drawing.legend_style(loc="upper left", fontsize=8))
    below.legend(**drawing.legend_style(loc="upper left"))
    drawing.tidy(above, "", "CO₂ in dry air [ppm]")
    drawing.tidy(below, "year", "observed - forecast [ppm]")
    above.set_xlim(ORIGIN, years[-1] + 0.3)
    return figure
