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
    else:
        levels = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
        scores["CRPS"] = metrics.crps_quantiles(y, predictive.quantiles(levels)[seen])
    return scores


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
