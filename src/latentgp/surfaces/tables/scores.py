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

# A CRPS is right to 5e-4 of itself by so many cells between quantiles.
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
    density, counts = predictive.log_prob(y), np.ones(len(y)) if weights is None else weights
    seen, counted = uncensored(side, len(y)), counts > 0
    negative = metrics.negative_log_predictive_density(density, sample_weight=weights)
    scores = {"negative log predictive density": negative}
    far = distances(estimator, predictive, y, seen, counts) if (seen & counted).any() else {}
    covered = {"95 % interval coverage": float(coverages(scores_of(predictive, y), 0.95, counts))}
    if seen.all():
        return scores | far | covered
    scores |= covered
    alike = len(set(counts[counted])) == 1  # pairs have no weights
    if alike and "entry" not in side and np.all(np.isin(side["censored"], (0, 1))):
        median, known = predictive.quantiles([0.5])[counted, 0], side["censored"][counted]
        with suppress(InputError):  # no two rows have a known order
            index = metrics.concordance_index(y[counted], median, censored=known)
            scores["concordance index of medians"] = index
    scores["censored rows left out below"] = int(np.sum(~seen & counted))
    return scores | far


def coverages(
    scores: Any, levels: Any, weights: Float[np.ndarray, "N"]
) -> Float[np.ndarray, "*levels"]:
    """Shares of rows inside their central intervals, a level each, by `below` and `up_to` of rows.

    The interval of a count holds more than its level, as counts are whole, and of a censored target
    only bounds are known. Such a row counts by the share of its probabilities that lies inside
    (Czado, Gneiting & Held 2009, eq. 2), so that those of a calibrated model have the levels.
    """
    known = np.isfinite(scores.below) & np.isfinite(scores.up_to)
    below, up_to = scores.below[known], scores.up_to[known]
    low, high = ((1 + side * np.asarray(levels)[..., None]) / 2 for side in (-1, 1))
    width = up_to - below
    inside = np.clip(np.minimum(up_to, high) - np.maximum(below, low), 0, None)
    share = inside / np.where(width > 0, width, 1.0)
    share = np.where(width > 0, share, (low <= below) & (below <= high))
    return np.average(share, axis=-1, weights=weights[known])


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
    predictive: Predictive,
    y: Float[np.ndarray, "N"],
    seen: Bool[np.ndarray, "N"],
    weights: Float[np.ndarray, "N"],
) -> dict[str, float]:
    """Errors of predictions by name: the CRPS for numbers, the deviance for counts."""
    y, mean, likelihood = y[seen], predictive.mean[seen], predictive.likelihood
    own: Any = {"sample_weight": weights[seen]}
    scores = {
        "root mean squared error": metrics.root_mean_squared_error(y, mean, **own),
        "mean absolute error": metrics.mean_absolute_error(y, mean, **own),
    }
    if likelihood.targets == "count" and "trials" in likelihood.side_information:
        trials = np.asarray(predictive.side_information.get("trials", 1.0))
        trials = np.broadcast_to(trials, seen.shape)[seen]
        rest = np.maximum(trials - mean, np.finfo(float).tiny)
        # The sum over both outcomes (McCullagh & Nelder 1989, 4.4.1).
        each = (metrics.poisson_deviance(*of, **own) for of in ((y, mean), (trials - y, rest)))
        scores["binomial deviance"] = sum(each)
    elif likelihood.targets == "count":
        scores["Poisson deviance"] = metrics.poisson_deviance(y, mean, **own)
    elif isinstance(likelihood, Gaussian) and estimator.posterior_.components.size == 1:
        std = np.sqrt(predictive.variance[seen])
        scores["CRPS"] = metrics.crps_gaussian(y, mean, std, **own)
    else:
        each = _crps(y, predictive, seen)
        scores["CRPS"] = float(np.average(each, weights=own["sample_weight"]))
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
