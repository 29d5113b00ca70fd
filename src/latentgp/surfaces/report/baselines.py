"""Baselines without a Gaussian process."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
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
    yield of(judged, folds, same, None)
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
            yield of(replace(judged, X=X), folds, "a linear model", linear)


def _classes(judged: Assessment, folds: np.ndarray, name: str, linear: Any) -> Baseline:
    assert judged.classes is not None
    numbers, classes = np.asarray(judged.data.y).astype(int), len(judged.classes)
    given = np.zeros((len(numbers), classes))
    for own, others, X in _apart(folds, judged.X):
        if linear is None or len(np.unique(numbers[others])) < 2:
            counted = np.bincount(numbers[others], minlength=classes) + 1.0
            given[own] = counted / counted.sum()
        else:
            linear.fit(X[others], numbers[others])
            given[np.ix_(own, linear.classes_)] = linear.predict_proba(X[own])
    given = np.clip(given, 1e-9, None)
    given /= given.sum(axis=1, keepdims=True)
    return Baseline(name, np.log(given[np.arange(len(numbers)), numbers]), None, given)


def _numbers(judged: Assessment, folds: np.ndarray, name: str, linear: Any) -> Baseline:
    """Normal about the mean."""
    y = judged.y.astype(float)
    mean, density = np.zeros(len(y)), np.zeros(len(y))
    for own, others, X in _apart(folds, judged.X):
        at_all = np.full(len(y), np.mean(y[others]))
        if linear is not None:
            at_all = linear.fit(X[others], y[others]).predict(X)
        mean[own] = at_all[own]
        std = max(float(np.std(y[others] - at_all[others])), 1e-12)
        density[own] = _normal(judged.data.select(own), mean[own], std)
    return Baseline(name, density, mean)


def _counts(judged: Assessment, folds: np.ndarray, name: str, linear: Any) -> Baseline:
    """Negative-binomial of the others' over-dispersion, or Poisson, about a rate times exposure."""
    y = judged.y.astype(float)
    exposure = np.broadcast_to(judged.data.side_information.get("exposure", 1.0), y.shape)
    mean, density = np.zeros(len(y)), np.zeros(len(y))
    for own, others, X in _apart(folds, judged.X):
        known, weights = y[others], exposure[others]
        rates = np.full(len(y), known.sum() / weights.sum())
        if linear is not None:
            rates = linear.fit(X[others], known / weights, sample_weight=weights).predict(X)
        at_all = np.maximum(rates * exposure, 1e-9)
        mean[own], there = at_all[own], at_all[others]
        excess = np.mean((known - there) ** 2 - there) / np.mean(there**2)
        if excess <= 1e-6:
            density[own] = stats.poisson.logpmf(y[own], mean[own])
        else:
            size = 1 / excess
            density[own] = stats.nbinom.logpmf(y[own], size, size / (size + mean[own]))
    return Baseline(name, density, mean)


def _shares(judged: Assessment, folds: np.ndarray, name: str, linear: Any) -> Baseline:
    """Beta-binomial of the others' over-dispersion, or binomial, of the trials."""
    y = judged.y.astype(float)
    trials = np.broadcast_to(judged.data.side_information.get("trials", 1.0), y.shape)
    mean, density = np.zeros(len(y)), np.zeros(len(y))
    for own, others, X in _apart(folds, judged.X):
        known, of = y[others], trials[others]
        share = np.full(len(y), known.sum() / of.sum())
        if linear is not None and 0 < known.sum() < of.sum():
            outcomes = np.repeat([1, 0], len(known))
            weights = np.append(known, of - known)
            linear.fit(np.tile(X[others], (2, 1)), outcomes, sample_weight=weights)
            share = linear.predict_proba(X)[:, 1]
        share = np.clip(share, 1e-9, 1 - 1e-9)
        mean[own], p = trials[own] * share[own], share[others]
        # The variance is n p q (1 + (n - 1) r).
        excess = np.sum((known - of * p) ** 2 - of * p * (1 - p))
        r = min(excess / max(np.sum(of * (of - 1) * p * (1 - p)), 1e-12), 0.99)
        if r <= 1e-6:
            density[own] = stats.binom.logpmf(y[own], trials[own], share[own])
        else:
            a, b = (part[own] * (1 / r - 1) for part in (share, 1 - share))
            density[own] = stats.betabinom.logpmf(y[own], trials[own], a, b)
    return Baseline(name, density, mean)


def _apart(
    folds: np.ndarray, X: Float[np.ndarray, "N D"]
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Rows of each fold, and the others; of one fold its own; inputs standardised by these."""
    from sklearn.preprocessing import StandardScaler

    for fold in np.unique(folds):
        own = folds == fold
        others = own if own.all() else ~own
        scaled: Any = StandardScaler().fit(X[others]).transform(X)
        yield own, others, scaled


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
