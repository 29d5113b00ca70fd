"""Baselines without a Gaussian process."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
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
    """The same prediction for all rows, and a linear model, each from the other folds' rows."""
    from sklearn.linear_model import LogisticRegression, PoissonRegressor, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rows, count = len(judged.y), judged.model.estimator.model_.likelihood.targets == "count"
    folds = np.random.default_rng(0).permutation(rows) % min(_FOLDS, rows)
    linear: Any = PoissonRegressor(max_iter=1000) if count else RidgeCV(np.logspace(-3, 3, 13))
    of, same = partial(_numbers, count=count), "one mean for all rows"
    if judged.classes is not None:
        of, same, linear = _classes, "the shares of the classes", LogisticRegression(max_iter=1000)
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
            pipeline = make_pipeline(StandardScaler(), linear)
            yield of(replace(judged, X=X), folds, "a linear model", pipeline)


def _classes(judged: Assessment, folds: np.ndarray, name: str, linear: Any) -> Baseline:
    assert judged.classes is not None
    numbers, classes = np.asarray(judged.data.y).astype(int), len(judged.classes)
    given = np.zeros((len(numbers), classes))
    for own, others in _apart(folds):
        if linear is None or len(np.unique(numbers[others])) < 2:
            counted = np.bincount(numbers[others], minlength=classes) + 1.0
            given[own] = counted / counted.sum()
        else:
            linear.fit(judged.X[others], numbers[others])
            given[np.ix_(own, linear.classes_)] = linear.predict_proba(judged.X[own])
    given = np.clip(given, 1e-9, None)
    given /= given.sum(axis=1, keepdims=True)
    return Baseline(name, np.log(given[np.arange(len(numbers)), numbers]), None, given)


def _numbers(
    judged: Assessment, folds: np.ndarray, name: str, linear: Any, *, count: bool
) -> Baseline:
    """Normal about the mean, or negative-binomial of the others' over-dispersion."""
    y = judged.y.astype(float)
    mean, density = np.zeros(len(y)), np.zeros(len(y))
    for own, others in _apart(folds):
        if linear is None:
            mean[own], at_others = np.mean(y[others]), np.full(others.sum(), np.mean(y[others]))
        else:
            linear.fit(judged.X[others], y[others])
            mean[own], at_others = (linear.predict(judged.X[rows]) for rows in (own, others))
        left = y[others] - at_others
        if not count:
            std = max(float(np.std(left)), 1e-12)
            density[own] = _normal(judged.data.select(own), mean[own], std)
            continue
        mean[own] = np.maximum(mean[own], 1e-9)
        excess = np.mean(left**2 - at_others) / max(np.mean(at_others**2), 1e-12)
        if excess <= 1e-6:
            density[own] = stats.poisson.logpmf(y[own], mean[own])
        else:
            size = 1 / excess
            density[own] = stats.nbinom.logpmf(y[own], size, size / (size + mean[own]))
    return Baseline(name, density, mean)


def _apart(folds: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows of each fold, and the others; of one fold its own."""
    for fold in np.unique(folds):
        own = folds == fold
        yield own, own if own.all() else ~own


def _normal(rows: Data, mean: Float[np.ndarray, "N"], std: float) -> Float[np.ndarray, "N"]:
    """Log density of targets, or log probability of what is known of those that are censored."""
    y, side, at = np.asarray(rows.y, float), rows.side_information, (mean, std)
    censored = np.broadcast_to(side.get("censored", 0), y.shape)
    upper = np.broadcast_to(side.get("upper", y), y.shape)
    between = np.maximum(stats.norm.cdf(upper, *at) - stats.norm.cdf(y, *at), 1e-300)
    known = [stats.norm.logsf(y, *at), stats.norm.logcdf(y, *at), np.log(between)]
    seen = stats.norm.logpdf(y, *at)
    return np.select([censored == kind for kind in (1, -1, 2)], known, seen)
