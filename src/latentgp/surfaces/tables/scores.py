"""Scores of a fitted estimator on rows whose target is known."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool, Float

from latentgp.likelihoods import Gaussian
from latentgp.posteriors.predictive import Predictive
from latentgp.surfaces.estimators import GPCountRegressor, GPRegressor
from latentgp.surfaces.estimators.classifier import LabelEstimator
from latentgp.surfaces.evaluation import metrics

_QUANTILES = 99  # which give a CRPS to 5e-4 of itself, of Gaussian and of heavy-tailed laws
# The same by distribution functions, in so many cells between quantiles.
_BETWEEN = 0.0025, 0.03, 0.15, 0.35, 0.65, 0.85, 0.97, 0.9975
_CELLS = 12


def uncensored(side: Mapping[str, np.ndarray], rows: int) -> Bool[np.ndarray, "N"]:
    """Mask of the rows whose target was observed and not censored."""
    return np.asarray(side.get("censored", np.zeros(rows))) == 0


def regression_scores(
    estimator: GPRegressor | GPCountRegressor,
    y: Float[np.ndarray, "N"],
    predictive: Predictive,
    seen: Bool[np.ndarray, "N"],
) -> dict[str, float]:
    """Held-out scores of a regressor, in the units of y and in nats.

    Where a time is censored nobody knows how far off a prediction was: of rows that are not `seen`
    only the density is scored, and how many they are is among the scores.
    """
    density = predictive.log_prob(y)
    scores = {"negative log predictive density": metrics.negative_log_predictive_density(density)}
    if not seen.all():
        scores["censored rows left out below"] = int(np.sum(~seen))
    if seen.any():
        scores |= distances(estimator, y, predictive, seen)
        ends = [end[seen] for end in predictive.interval()]
        scores["95 % interval coverage"] = metrics.interval_coverage(y[seen], *ends)
    return scores


def distances(
    estimator: GPRegressor | GPCountRegressor,
    y: Float[np.ndarray, "N"],
    predictive: Predictive,
    seen: Bool[np.ndarray, "N"],
) -> dict[str, float]:
    """Errors of predictions by name: the CRPS for numbers, the deviance for counts."""
    y, mean = y[seen], predictive.mean[seen]
    scores = {
        "root mean squared error": metrics.root_mean_squared_error(y, mean),
        "mean absolute error": metrics.mean_absolute_error(y, mean),
    }
    if isinstance(estimator, GPCountRegressor):
        scores["Poisson deviance"] = metrics.poisson_deviance(y, mean)
    elif isinstance(estimator.model_.likelihood, Gaussian) and isinstance(predictive, Predictive):
        scores["CRPS"] = metrics.crps_gaussian(y, mean, np.sqrt(predictive.variance[seen]))
    elif isinstance(predictive, Predictive):
        scores["CRPS"] = float(np.mean(_crps(y, predictive, seen)))
    else:
        levels = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
        scores["CRPS"] = metrics.crps_quantiles(y, predictive.quantiles(levels)[seen])
    return scores


def _crps(
    y: Float[np.ndarray, "M"], predictive: Predictive, seen: Bool[np.ndarray, "N"]
) -> Float[np.ndarray, "M"]:
    """Integral of (F(z) - 1[y <= z])^2 (Gneiting & Raftery 2007, eq. 21) of each row seen.

    By the values of F at the middles of cells, which miss the jumps that F has at their ends. F has
    no inverse in closed form, and quantiles take twenty values of it each.
    """
    between = predictive.quantiles(_BETWEEN)
    steps = np.diff(between, axis=1)[..., None] / _CELLS
    starts = (between[:, :-1, None] + steps * np.arange(_CELLS)).reshape(len(between), -1)
    widths = np.repeat(steps[..., 0], _CELLS, axis=1)
    middles = starts + widths / 2
    F = np.stack([predictive.cdf(z) for z in middles.T], axis=1)[seen]
    before = np.clip(y[:, None] - starts[seen], 0.0, widths[seen])
    inside = np.sum(F**2 * before + (1 - F) ** 2 * (widths[seen] - before), axis=1)
    first, last = between[seen, 0], between[seen, -1]
    return inside + np.maximum(first - y, 0.0) + np.maximum(y - last, 0.0)


def classification_scores(
    estimator: LabelEstimator, X: Float[np.ndarray, "N D"], y: np.ndarray
) -> dict[str, float]:
    """Held-out scores of a classifier."""
    probabilities, classes = estimator.predict_proba(X), estimator.classes_
    error = metrics.expected_calibration_error(y, probabilities, classes=classes)
    return {
        "log loss": metrics.log_loss(y, probabilities, classes=classes),
        "error": float(np.mean(classes[np.argmax(probabilities, axis=1)] != y)),
        "Brier score": metrics.brier_score(y, probabilities, classes=classes),
        "expected calibration error": error,
    }
