"""Laplace's evidence of counts and times, in NumPy (Rasmussen & Williams 2006, 3.4, 5.5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import get_lapack_funcs
from scipy.special import digamma, expit, gammaln, log_expit, log_ndtr

from latentgp.likelihoods import (
    Binomial,
    Censored,
    Likelihood,
    LogNegativeBinomial,
    LogNormal,
    Poisson,
    Weibull,
)

# Nats that a step of Newton's promises: the last one; and one that is taken whatever a difference
# of densities says, which for large counts is rounding. The most steps, and halvings of one.
_ENOUGH, _SURE, _STEPS, _HALVINGS = 1e-9, 1e-2, 50, 12

potrf, potri, potrs = get_lapack_funcs(("potrf", "potri", "potrs"), dtype=np.float64)

PerRow = Float[np.ndarray, "N"]


class Derivatives(NamedTuple):
    """Log p(y | f) at rows and its derivatives."""

    value: PerRow  # in nats
    slope: PerRow  # the first in f
    precision: PerRow  # minus the second
    third: PerRow
    # derivatives of value, slope and precision in the logarithm of the law's own parameter;
    # none without
    of_parameter: tuple[PerRow, ...] = ()

    def weighted(self, weights: PerRow) -> Derivatives:
        """Of rows that count so many times."""
        value, slope, precision, third = (weights * field for field in self[:4])
        of_parameter = tuple(weights * field for field in self.of_parameter)
        return Derivatives(value, slope, precision, third, of_parameter)


class Law(NamedTuple):
    """A law of counts or times given one latent."""

    # given targets, latents, what `RowBlock.sizes` are, and the parameter
    derivatives: Callable[[PerRow, PerRow, PerRow, float], Derivatives]
    level: float  # of the latent for typical targets
    scale: float  # typical deviation of the latent, and that of the level
    has_parameter: bool = False  # whether it has one of its own, positive
    size: float = 1.0  # of rows of which nothing is said


class Parts(NamedTuple):
    """Minus a log evidence and its derivatives."""

    value: float  # minus the log evidence
    inner: Float[np.ndarray, "N N"]  # minus the derivative in the covariance, symmetric
    of_parameter: float  # minus the derivative in the logarithm of the law's own parameter


def law_of(likelihood: Likelihood, level: float, scale: float) -> Law | None:
    """The law of a likelihood of counts, or of times that may be censored; None of others."""
    base = likelihood.base if isinstance(likelihood, Censored) else likelihood
    derivatives = LAWS.get(type(base))
    if derivatives is None:
        return None
    is_of_times = derivatives in (_weibull, _log_normal)
    has_parameter = is_of_times or derivatives is _negative_binomial
    return Law(derivatives, level, scale, has_parameter, size=0.0 if is_of_times else 1.0)


def laplace_evidence(
    covariance: Float[np.ndarray, "N N"],
    y: PerRow,
    weights: PerRow,
    sizes: PerRow,
    law: Law,
    parameter: float,
) -> Parts | None:
    """By algorithms 3.1 and 5.1, the level unknown; None without a factor, or without a mode.

    The covariance is that of the latents in squares of the law's scale; sizes are exposures,
    numbers of trials, or 1 where a time is censored and 0 elsewhere.
    """
    unit = law.scale**2
    K = unit * (covariance + 1)

    def at(a: PerRow) -> tuple[Derivatives, float]:
        """Derivatives and log density where the latents are level + K a."""
        f = np.clip(law.level + K @ a, -30, 30)  # lest exponentials overflow
        found = law.derivatives(y, f, sizes, parameter).weighted(weights)
        return found, float(np.sum(found.value) - 0.5 * a @ (f - law.level))

    a = np.zeros(len(y))
    here, density = at(a)
    for _ in range(_STEPS):
        factor = _factor(K, here.precision)
        if factor is None:
            return None
        root = np.sqrt(here.precision)
        left = here.slope - a  # zero at the mode; a step from it has no difference of large numbers
        step = left - root * potrs(factor, root * (K @ left), lower=1)[0]
        promised = abs((K @ step) @ left)
        for halving in range(_HALVINGS):
            tried = a + step / 2**halving
            there, density_tried = at(tried)
            if density_tried > density or promised < _SURE:
                break
        else:
            return None
        a, here, density = tried, there, density_tried
        if promised < _ENOUGH:
            break
    else:
        return None
    factor = _factor(K, here.precision)
    if factor is None:
        return None
    root = np.sqrt(here.precision)
    lower = potri(factor, lower=1)[0]  # zero above the diagonal, as the factor is
    inverse = lower + lower.T
    inverse[np.diag_indices(len(y))] /= 2
    R = root[:, None] * inverse * root
    variances = np.diag(K) - np.sum((K @ R) * K, axis=1)
    by_mode = 0.5 * variances * here.third
    outside = by_mode - R @ (K @ by_mode)
    crossed = np.outer(outside, here.slope)
    inner = 0.5 * unit * (R - np.outer(a, a) - crossed - crossed.T)
    value = float(np.sum(np.log(np.diag(factor))) - density)
    if not law.has_parameter:
        return Parts(value, inner, 0.0)
    of_value, of_slope, of_precision = here.of_parameter
    moved = np.sum(of_value) - 0.5 * variances @ of_precision + (K @ outside) @ of_slope
    return Parts(value, inner, -float(moved))


def _factor(K: Float[np.ndarray, "N N"], precision: PerRow) -> Float[np.ndarray, "N N"] | None:
    """The Cholesky factor of I + W^1/2 K W^1/2."""
    root = np.sqrt(precision)
    B = root[:, None] * K * root
    B[np.diag_indices(len(root))] += 1
    factor, failed = potrf(B, lower=1, overwrite_a=1)
    return None if failed else factor


def _poisson(y: PerRow, f: PerRow, sizes: PerRow, parameter: float) -> Derivatives:
    rate = sizes * np.exp(f)
    value = y * (np.log(sizes) + f) - rate - gammaln(y + 1)
    return Derivatives(value, y - rate, rate, -rate)


def _binomial(y: PerRow, f: PerRow, sizes: PerRow, parameter: float) -> Derivatives:
    p = expit(f)
    ways = gammaln(sizes + 1) - gammaln(y + 1) - gammaln(sizes - y + 1)
    value = ways + y * log_expit(f) + (sizes - y) * log_expit(-f)
    precision = sizes * p * (1 - p)
    return Derivatives(value, y - sizes * p, precision, precision * (2 * p - 1))


def _negative_binomial(y: PerRow, f: PerRow, sizes: PerRow, parameter: float) -> Derivatives:
    """Of mean size exp(f) and dispersion `parameter`."""
    r, logit = parameter, np.log(sizes) + f - np.log(parameter)
    p, spread = expit(logit), expit(logit) * expit(-logit)
    ways = gammaln(y + r) - gammaln(y + 1) - gammaln(r)
    value = ways + y * log_expit(logit) + r * log_expit(-logit)
    slope, precision = y - (y + r) * p, (y + r) * spread
    of_value = r * (digamma(y + r) - digamma(r) + log_expit(-logit)) - slope
    of_precision = r * spread + precision * (2 * p - 1)
    of_slope = precision - r * p
    third = precision * (2 * p - 1)
    return Derivatives(value, slope, precision, third, (of_value, of_slope, of_precision))


def _weibull(y: PerRow, f: PerRow, censored: PerRow, parameter: float) -> Derivatives:
    """Of scale exp(f) and shape `parameter`."""
    k, event = parameter, 1 - censored
    z = np.clip(k * (np.log(y) - f), -30, 30)
    hazard = np.exp(z)  # up to y
    value = event * (np.log(k) + z - np.log(y)) - hazard
    slope, precision = k * (hazard - event), k**2 * hazard
    of_value = event * (1 + z) - hazard * z
    of_parameter = of_value, slope + k * hazard * z, precision * (2 + z)
    return Derivatives(value, slope, precision, k * precision, of_parameter)


def _log_normal(y: PerRow, f: PerRow, censored: PerRow, parameter: float) -> Derivatives:
    """Of median exp(f), whose logarithm has the variance `parameter`."""
    s, own = np.sqrt(parameter), censored == 1
    z = np.clip((np.log(y) - f) / s, -30, 30)
    density = -0.5 * z**2 - 0.5 * np.log(2 * np.pi)
    beyond = log_ndtr(-z)
    first = np.where(own, np.exp(density - beyond), z)  # the derivatives of minus the logarithm
    second = np.where(own, first * (first - z), 1.0)
    third = np.where(own, second * (2 * first - z) - first, 0.0)
    value = np.where(own, beyond, density - np.log(s * y))
    of_value = np.where(own, first * z / 2, (z**2 - 1) / 2)
    of_slope = -(second * z + first) / (2 * s)
    of_precision = -(third * z / 2 + second) / parameter
    of_parameter = of_value, of_slope, of_precision
    return Derivatives(value, first / s, second / parameter, third / s**3, of_parameter)


LAWS: dict[type[Likelihood], Callable[..., Derivatives]] = {
    Poisson: _poisson,
    Binomial: _binomial,
    LogNegativeBinomial: _negative_binomial,
    Weibull: _weibull,
    LogNormal: _log_normal,
}
