"""Conformance suite of posteriors, of whatever method."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from latentgp.errors import InputError
from latentgp.posteriors.posterior import Posterior
from latentgp.rows.arrays import as_inputs
from latentgp.runtime.x64 import double_precision
from latentgp.testing.numerics import require, require_alike, require_equal, require_finite

_DRAWS = 4000
_LIMIT = 6.0  # standard errors
_LEVELS = np.array([0.05, 0.3, 0.5, 0.9])


@double_precision
def check_posterior(posterior: Posterior, inputs: Any, **side_information: Any) -> None:
    """Check that all answers of a posterior agree with each other.

    Args:
        posterior: what is checked.
        inputs: a few, shape (N, D).
        side_information: what the likelihood reads a row.

    Raises:
        AssertionError: moments, CDF, quantiles, log densities and draws contradict each other;
            an answer for a row depends on the others; saved and loaded, it answers otherwise.
    """
    X, side = as_inputs(inputs), side_information
    name = type(posterior).__name__
    latents = posterior.model.likelihood.latent_size
    mean, variance = (np.reshape(a, (len(X), latents)) for a in posterior.predict_f(X))
    require_finite((mean, variance), f"{name}.predict_f")
    require(np.all(variance >= 0), f"{name}.predict_f: a variance is negative: {variance}.")
    what = f"{name}.mean_f is not the mean of predict_f"
    alone = np.reshape(posterior.mean_f(X), mean.shape)
    require_equal(alone, mean, what, rtol=1e-8, atol=1e-8 * (1 + np.abs(mean).max()))
    draws = posterior.sample_f(X, key=jax.random.key(1), number=_DRAWS)
    draws = draws.reshape(_DRAWS, *mean.shape)
    _require_moments(draws, mean, variance, f"{name}.sample_f")
    predictive = posterior.predict(X, **side)
    y = predictive.sample(key=jax.random.key(2), number=_DRAWS)
    of_classes = posterior.model.likelihood.targets == "class"
    if not of_classes and np.all(np.isfinite(predictive.variance)):
        _require_moments(y, predictive.mean, predictive.variance, f"{name}: draws of y")
    _check_law(predictive, y, of_classes, name)
    joint = posterior.sample_y(X, key=jax.random.key(3), number=3, **side)
    require(joint.shape == (3, *y.shape[1:]), f"{name}.sample_y has shape {joint.shape}.")
    _check_rows(posterior, X, side, name)
    _check_file(posterior, X, side, name)


def _require_moments(draws: Any, mean: Any, variance: Any, what: str) -> None:
    error = np.sqrt(variance / len(draws)) + 1e-8 * (1 + np.abs(mean))
    _require_near(draws.mean(axis=0), mean, error, f"{what}: means are off")
    squares = (draws - mean) ** 2
    error = squares.std(axis=0) / np.sqrt(len(draws)) + 1e-8 * (1 + variance)
    _require_near(squares.mean(axis=0), variance, error, f"{what}: variances are off")


def _require_near(found: Any, expected: Any, error: Any, what: str) -> None:
    off = np.abs(found - expected) / error
    require(np.all(off < _LIMIT), f"{what} by {off.max():.1f} standard errors.")


def _check_law(predictive: Any, y: np.ndarray, of_classes: bool, name: str) -> None:
    """CDF, quantiles and log densities against draws and each other."""
    if of_classes:
        probabilities = predictive.probabilities
        for label in range(probabilities.shape[1]):
            at = np.full(len(probabilities), float(label))
            what = f"{name}: log_prob is not the logarithm of probabilities"
            found = np.exp(predictive.log_prob(at))
            require_equal(found, probabilities[:, label], what, rtol=1e-4, atol=1e-5)
            error = np.sqrt(probabilities[:, label] / len(y)) + 1e-4
            share = np.mean(y == label, axis=0)
            _require_near(share, probabilities[:, label], error, f"{name}: drawn classes are off")
        return
    if y.ndim > 2:
        return  # of several outputs densities are joint
    at = y[0]
    try:
        below = predictive.cdf(at)
    except InputError:
        return
    error = np.sqrt(below * (1 - below) / len(y)) + 1e-3
    _require_near(np.mean(y <= at, axis=0), below, error, f"{name}: cdf is off")
    counts = predictive.likelihood.targets == "count"
    for level, ends in zip(_LEVELS, predictive.quantiles(_LEVELS).T, strict=True):
        share = np.mean(y <= ends, axis=0)
        slack = _LIMIT * np.sqrt(0.25 / len(y)) + 0.02
        require(np.all(share > level - slack), f"{name}: quantiles at {level} are too low.")
        share = np.mean(y < ends, axis=0) if counts else share
        require(np.all(share < level + slack), f"{name}: quantiles at {level} are too high.")
    if counts:
        density = below - np.where(at > 0, predictive.cdf(np.maximum(at - 1, 0)), 0.0)
    else:
        step = 1e-4 * (1 + np.abs(at))
        density = (predictive.cdf(at + step) - predictive.cdf(at - step)) / (2 * step)
    what = f"{name}: the density is not the derivative of the cdf"
    require_equal(np.exp(predictive.log_prob(at)), density, what, rtol=1e-2, atol=1e-3)


def _answers(posterior: Posterior, X: np.ndarray, side: Any) -> list[np.ndarray]:
    predictive = posterior.predict(X, **side)
    return [*posterior.predict_f(X), predictive.mean, predictive.variance]


def _check_rows(posterior: Posterior, X: np.ndarray, side: Any, name: str) -> None:
    repeated = np.tile(X, (40, 1))
    more = {key: np.tile(values, 40) for key, values in side.items()}
    many = [answer[: len(X)] for answer in _answers(posterior, repeated, more)]
    what = f"{name}: an answer depends on which rows are asked with it"
    require_alike(many, _answers(posterior, X, side), what, rtol=1e-9, atol=1e-9)
    nothing = posterior.predict(X[:0], **{key: values[:0] for key, values in side.items()})
    require(len(nothing.mean) == 0, f"{name}: no rows give {nothing.mean}.")


def _check_file(posterior: Posterior, X: np.ndarray, side: Any, name: str) -> None:
    from latentgp.persistence import load, save

    with tempfile.TemporaryDirectory() as folder:
        again = load(save(posterior, Path(folder) / "posterior"))
    for one, other in zip(_answers(posterior, X, side), _answers(again, X, side), strict=True):
        what = f"{name}: saved and loaded it answers otherwise"
        require(np.array_equal(one, other), what)
