"""Baselines without a Gaussian process."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

from latentgp.rows.data import Data
from latentgp.surfaces.report.judged import Assessment

_FOLDS = 5
_ROWS, _COLUMNS = 20_000, 2_000


class Baseline(NamedTuple):
    """Predictions of a contender."""

    name: str
    log_density: Float[np.ndarray, "N"]  # log p(y_n), in nats
    mean: Float[np.ndarray, "N"] | None = None  # of the predictions; None of classes
    probabilities: Float[np.ndarray, "N K"] | None = None  # of the classes


def baselines(judged: Assessment) -> Iterator[Baseline]:
    """The same prediction for all rows, and a linear model, each from the other folds' rows.

    Means of counts are in proportion to exposures or trials.
    """
    from sklearn.linear_model import LogisticRegression, PoissonRegressor, RidgeCV

    rows, likelihood = len(judged.y), judged.model.estimator.model_.likelihood
    folds = np.random.default_rng(0).permutation(rows) % min(_FOLDS, rows)
    of, same, linear = _numbers, "one mean for all rows", RidgeCV(np.logspace(-3, 3, 13))
    if judged.classes is not None:
        of, same, linear = _classes, "the shares of the classes", LogisticRegression(max_iter=1000)
    elif "trials" in likelihood.side_information:
        of, same, linear = _shares, "one share for all rows", LogisticRegression(max_iter=1000)
    elif likelihood.targets == "count":
        of, same, linear = _counts, "one rate for all rows", PoissonRegressor(max_iter=1000)
    yield _by_folds(of, judged, folds, same, None)
    # Inputs of a linear model: the columns, one for each label of numbered ones.
    numbered = list(judged.model.encoder.numbered)
    labels = [np.unique(column) for column in judged.X[:, numbered].T]
    if 2 * _FOLDS <= rows <= _ROWS and judged.X.shape[1] + sum(map(len, labels)) <= _COLUMNS:
        each = zip(judged.X[:, numbered].T, labels, strict=True)
        of_labels = [column[:, None] == own for column, own in each]
        others = np.delete(judged.X, numbered, axis=1)
        X = np.concatenate([others, *of_labels], axis=1).astype(float)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its scores say what became of it
            yield _by_folds(of, replace(judged, X=X), folds, "a linear model", linear)


def _by_folds(
    law: Callable[..., tuple[np.ndarray, np.ndarray]],
    judged: Assessment,
    folds: np.ndarray,
    name: str,
    linear: Any,
) -> Baseline:
    """Rows of each fold by the others, of one fold by its own; inputs standardised by these."""
    from sklearn.preprocessing import StandardScaler

    classes, density = judged.classes, np.zeros(len(folds))
    values = np.zeros(len(folds) if classes is None else (len(folds), len(classes)))
    for fold in np.unique(folds):
        own = folds == fold
        others = own if own.all() else ~own
        X: Any = StandardScaler().fit(judged.X[others]).transform(judged.X)
        density[own], values[own] = law(judged, X, own, others, linear)
    return Baseline(name, density, *((values,) if classes is None else (None, values)))


# Log densities of a fold's rows, and their means or probabilities, by the other rows.


def _classes(
    judged: Assessment, X: np.ndarray, own: np.ndarray, others: np.ndarray, linear: Any
) -> tuple[np.ndarray, np.ndarray]:
    assert judged.classes is not None
    numbers, weights = np.asarray(judged.data.y).astype(int), judged.weights[others]
    given = np.zeros((int(own.sum()), len(judged.classes)))
    if linear is None or len(np.unique(numbers[others])) < 2:
        given += np.bincount(numbers[others], weights, given.shape[1]) + 1.0
    else:
        linear.fit(X[others], numbers[others], sample_weight=weights)
        given[:, linear.classes_] = linear.predict_proba(X[own])
    given = np.clip(given, 1e-9, None)
    given /= given.sum(axis=1, keepdims=True)
    return np.log(given[np.arange(len(given)), numbers[own]]), given


def _numbers(
    judged: Assessment, X: np.ndarray, own: np.ndarray, others: np.ndarray, linear: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Normal about the mean."""
    y, weights = judged.y.astype(float), judged.weights[others]
    mean = np.full(len(y), np.average(y[others], weights=weights))
    if linear is not None:
        mean = linear.fit(X[others], y[others], sample_weight=weights).predict(X)
    off = y[others] - mean[others]
    variance = np.average((off - np.average(off, weights=weights)) ** 2, weights=weights)
    std = max(float(np.sqrt(variance)), 1e-12)
    return _normal(judged.data.select(own), mean[own], std), mean[own]


def _counts(
    judged: Assessment, X: np.ndarray, own: np.ndarray, others: np.ndarray, linear: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Negative-binomial of the others' over-dispersion, or Poisson, about a rate times exposure."""
    y, weights = judged.y.astype(float), judged.weights[others]
    exposure = np.broadcast_to(judged.data.side_information.get("exposure", 1.0), y.shape)
    known, of = y[others], exposure[others]
    rates = np.full(len(y), weights @ known / (weights @ of))
    if linear is not None:
        rates = linear.fit(X[others], known / of, sample_weight=weights * of).predict(X)
    mean = np.maximum(rates * exposure, 1e-9)
    there, mean = mean[others], mean[own]
    excess = (weights @ ((known - there) ** 2 - there)) / (weights @ there**2)
    if excess <= 1e-6:
        return stats.poisson.logpmf(y[own], mean), mean
    return stats.nbinom.logpmf(y[own], 1 / excess, 1 / (1 + excess * mean)), mean


def _shares(
    judged: Assessment, X: np.ndarray, own: np.ndarray, others: np.ndarray, linear: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Beta-binomial of the others' over-dispersion, or binomial, of the trials."""
    y, weights = judged.y.astype(float), judged.weights[others]
    trials = np.broadcast_to(judged.data.side_information.get("trials", 1.0), y.shape)
    known, of = y[others], trials[others]
    share = np.full(len(y), weights @ known / (weights @ of))
    if linear is not None and 0 < known.sum() < of.sum():
        outcomes = np.repeat([1, 0], len(known))
        each = np.append(weights * known, weights * (of - known))
        linear.fit(np.tile(X[others], (2, 1)), outcomes, sample_weight=each)
        share = linear.predict_proba(X)[:, 1]
    share = np.clip(share, 1e-9, 1 - 1e-9)
    p, share, trials = share[others], share[own], trials[own]
    # The variance is n p q (1 + (n - 1) r).
    excess = weights @ ((known - of * p) ** 2 - of * p * (1 - p))
    r = min(excess / max(weights @ (of * (of - 1) * p * (1 - p)), 1e-12), 0.99)
    if r <= 1e-6:
        return stats.binom.logpmf(y[own], trials, share), trials * share
    a, b = (part * (1 / r - 1) for part in (share, 1 - share))
    return stats.betabinom.logpmf(y[own], trials, a, b), trials * share


def _normal(rows: Data, mean: Float[np.ndarray, "N"], std: float) -> Float[np.ndarray, "N"]:
    """Log density of targets, or log probability of what is known of those that are censored."""
    y, side, at = np.asarray(rows.y, float), rows.side_information, (mean, std)
    censored = np.broadcast_to(side.get("censored", 0), y.shape)
    upper = np.broadcast_to(side.get("upper", y), y.shape)
    between = np.maximum(stats.norm.cdf(upper, *at) - stats.norm.cdf(y, *at), 1e-300)
    known = [stats.norm.logsf(y, *at), stats.norm.logcdf(y, *at), np.log(between)]
    seen = stats.norm.logpdf(y, *at)
    values = np.select([censored == kind for kind in (1, -1, 2)], known, seen)
    return values - (stats.norm.logsf(side["entry"], *at) if "entry" in side else 0.0)
