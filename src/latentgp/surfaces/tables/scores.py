"""Scores of a fitted estimator on rows whose target is known."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from latentgp.errors import InputError
from latentgp.likelihoods import Gaussian
from latentgp.posteriors.predictive import Predictive
from latentgp.surfaces.estimators import GPCountRegressor, GPRegressor
from latentgp.surfaces.estimators.classifier import LabelEstimator
from latentgp.surfaces.evaluation import metrics
from latentgp.surfaces.evaluation.row_scores import scores_of

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
    side: Mapping[str, np.ndarray],
    weights: Float[np.ndarray, "N"] | None = None,
) -> dict[str, float]:
    """Held-out scores of a regressor, in the units of y and in nats.

    Where a time is censored nobody knows how far off a prediction was: errors are of the others,
    and how many are left out is among the scores.
    """
    density, seen = predictive.log_prob(y), uncensored(side, len(y))
    negative = metrics.negative_log_predictive_density(density, sample_weight=weights)
    scores = {"negative log predictive density": negative}
    if seen.all():
        scores |= distances(estimator, y, predictive, seen, weights)
        ends = predictive.interval()
        coverage = metrics.interval_coverage(y, *ends, sample_weight=weights)
        return scores | {"95 % interval coverage": coverage}
    u = transforms(predictive, y)
    scores["95 % interval coverage"] = float(np.average(np.abs(2 * u - 1) <= 0.95, weights=weights))
    if "entry" not in side and np.all(np.isin(side["censored"], (0, 1))):
        median = predictive.quantiles([0.5])[:, 0]
        with suppress(InputError):  # no two rows have a known order
            index = metrics.concordance_index(y, median, censored=side["censored"])
            scores["concordance index of medians"] = index
    scores["censored rows left out below"] = int(np.sum(~seen))
    return scores | (distances(estimator, y, predictive, seen, weights) if seen.any() else {})


def transforms(predictive: Predictive, y: Float[np.ndarray, "N"]) -> Float[np.ndarray, "N"]:
    """Probability integral transforms, as `spread_evenly` has them."""
    scores: Any = scores_of(predictive, y)
    return spread_evenly(scores.below, scores.up_to)


def spread_evenly(
    below: Float[np.ndarray, "N"], up_to: Float[np.ndarray, "N"]
) -> Float[np.ndarray, "N"]:
    """Uniform draws, with seed 0, between the probabilities that a target is known to lie between.

    Uniform in all where the model is calibrated: of counts, which are whole (Czado, Gneiting & Held
    2009, section 2.1), and of censored targets (Haider, Hoehn, Davis & Greiner 2020, section 3.5).
    Those that were seen alone are the early ones of their rows.
    """
    return below + np.random.default_rng(0).uniform(size=len(below)) * (up_to - below)


def distances(
    estimator: GPRegressor | GPCountRegressor,
    y: Float[np.ndarray, "N"],
    predictive: Predictive,
    seen: Bool[np.ndarray, "N"],
    weights: Float[np.ndarray, "N"] | None = None,
) -> dict[str, float]:
    """Errors of predictions by name: the CRPS for numbers, the deviance for counts."""
    y, mean = y[seen], predictive.mean[seen]
    own: Any = {"sample_weight": None if weights is None else weights[seen]}
    scores = {
        "root mean squared error": metrics.root_mean_squared_error(y, mean, **own),
        "mean absolute error": metrics.mean_absolute_error(y, mean, **own),
    }
    if isinstance(estimator, GPCountRegressor):
        scores["Poisson deviance"] = metrics.poisson_deviance(y, mean, **own)
    elif isinstance(estimator.model_.likelihood, Gaussian) and isinstance(predictive, Predictive):
        std = np.sqrt(predictive.variance[seen])
        scores["CRPS"] = metrics.crps_gaussian(y, mean, std, **own)
    elif isinstance(predictive, Predictive):
        each = _crps(y, predictive, seen)
        scores["CRPS"] = float(np.average(each, weights=own["sample_weight"]))
    else:
        levels = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
        scores["CRPS"] = metrics.crps_quantiles(y, predictive.quantiles(levels)[seen], **own)
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
    estimator: LabelEstimator,
    X: Float[np.ndarray, "N D"],
    y: np.ndarray,
    weights: Float[np.ndarray, "N"] | None = None,
) -> dict[str, float]:
    """Held-out scores of a classifier."""
    probabilities, classes = estimator.predict_proba(X), estimator.classes_
    own: Any = {"classes": classes, "sample_weight": weights}
    wrong = classes[np.argmax(probabilities, axis=1)] != y
    return {
        "log loss": metrics.log_loss(y, probabilities, **own),
        "error": float(np.average(wrong, weights=weights)),
        "Brier score": metrics.brier_score(y, probabilities, **own),
        "expected calibration error": metrics.expected_calibration_error(y, probabilities, **own),
    }
