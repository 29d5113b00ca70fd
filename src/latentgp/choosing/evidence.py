"""Evidence of stationary kernels on a sample of rows, in NumPy, and its maximum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from latentgp.choosing.laplace import Law, Parts, laplace_evidence, potrf, potri, potrs
from latentgp.kernels import RBF, Kernel, Matern12, Matern32, Matern52, RationalQuadratic
from latentgp.setup.priors import LENGTHSCALES, OWN_LENGTHSCALE

_JITTER = 1e-8
_OWN = OWN_LENGTHSCALE**2  # of the variance of a log length-scale; what is left is shared
_SHARED = LENGTHSCALES - _OWN
WIDE = 2.0  # deviation of log variances
NOISE = 0.1

# Correlation, and its derivatives in the squared scaled distance and in the mixing's logarithm.
Correlation = tuple[np.ndarray, np.ndarray, np.ndarray | None]


def _rbf(squared: np.ndarray, mixing: float) -> Correlation:
    value = np.exp(-0.5 * squared)
    return value, -0.5 * value, None


def _matern12(squared: np.ndarray, mixing: float) -> Correlation:
    r = np.sqrt(squared)
    value = np.exp(-r)
    return value, -0.5 * value / np.maximum(r, 1e-9), None


def _matern32(squared: np.ndarray, mixing: float) -> Correlation:
    s = np.sqrt(3 * squared)
    decay = np.exp(-s)
    return (1 + s) * decay, -1.5 * decay, None


def _matern52(squared: np.ndarray, mixing: float) -> Correlation:
    s = np.sqrt(5 * squared)
    decay = np.exp(-s)
    return (1 + s + s**2 / 3) * decay, -5 / 6 * (1 + s) * decay, None


def _rational_quadratic(squared: np.ndarray, mixing: float) -> Correlation:
    scaled = squared / (2 * mixing)
    logarithm = np.log1p(scaled)
    value = np.exp(-mixing * logarithm)
    slope = -0.5 * value / (1 + scaled)
    return value, slope, mixing * value * (scaled / (1 + scaled) - logarithm)


class Family(NamedTuple):
    """A family of stationary kernels."""

    kernel: Callable[..., Kernel]  # its class
    correlation: Callable[[np.ndarray, float], Correlation]  # of squared scaled distances
    longer: float  # its length-scales over those of an RBF that fits as well
    is_mixture: bool = False  # whether it has a mixing parameter


FAMILIES = {
    "RBF": Family(RBF, _rbf, 1.0),
    "Matern52": Family(Matern52, _matern52, 1.4),
    "Matern32": Family(Matern32, _matern32, 1.8),
    "Matern12": Family(Matern12, _matern12, 4.0),
    "RationalQuadratic": Family(RationalQuadratic, _rational_quadratic, 1.0, is_mixture=True),
}


class RowBlock(NamedTuple):
    """Rows in standard deviations, independent of those of other blocks."""

    X: Float[np.ndarray, "N D"]  # inputs
    y: Float[np.ndarray, "N"]  # targets
    weights: Float[np.ndarray, "N"]  # w equals w copies of the row
    sizes: Float[np.ndarray, "N"]  # exposures, trials, or whether a time is censored, shape (N,)

    def blocks(self, chosen: Sequence[Any]) -> list[RowBlock]:
        """Some of the rows, block by block."""
        return [RowBlock(*(array[rows] for array in self)) for rows in chosen]


class KernelShape(NamedTuple):
    """A family, with one length-scale or one an input.

    Of fewer length-scales than columns the first columns share the first one.
    """

    family: str  # its name
    inputs: int  # the number of length-scales
    of_scores: bool = False  # whether its inputs are normal scores

    def words(self, inputs: int) -> str:
        """Its name, among candidates for so many inputs."""
        alike = "" if self.inputs == inputs else " of one length-scale"
        return self.family + alike + " of normal scores" * self.of_scores


class Optimum(NamedTuple):
    """The maximum of a candidate's evidence."""

    candidate: KernelShape  # whose it is
    log_evidence: float  # with the log priors of hyper-parameters
    logarithms: Float[np.ndarray, "H"]  # of length-scales, variance, noise variance and mixing

    @property
    def log_lengthscales(self) -> Float[np.ndarray, "*D"]:
        """Of the inputs in standard deviations."""
        return self.logarithms[: self.candidate.inputs]


def negative_log_evidence(
    logarithms: Float[np.ndarray, "H"],
    candidate: KernelShape,
    blocks: Sequence[RowBlock],
    law: Law | None = None,
) -> tuple[float, Float[np.ndarray, "H"]]:
    """Minus the log evidence of independent blocks of rows and the log priors, and its gradient.

    Infinite, with a zero gradient, where a covariance has no Cholesky factor or counts no mode. The
    logarithms are of length-scales, variance, noise variance or the parameter of the targets' law
    if it has one (None for Gaussian noise), and mixing.
    """
    number = candidate.inputs
    has_own = law is None or law.has_parameter
    values = np.exp(logarithms)
    variance, own = values[number], values[number + 1] if has_own else 1.0
    middle = _middle(logarithms, number, blocks[0].X.shape[1], law)
    length_of = _lengths_of(number, blocks[0].X)
    total, gradient = _log_prior(logarithms - middle, number)
    total, gradient = -total, -gradient
    for X, y, weights, sizes in blocks:
        covariance, Z, (correlation, slope, of_mixing) = covariance_of(logarithms, candidate, X)
        if law is None:
            parts = gaussian_evidence(covariance, y, weights, own, weights)
        else:
            parts = laplace_evidence(covariance, y, weights, sizes, law, own)
        if parts is None:
            return np.inf, np.zeros_like(logarithms)
        total += parts.value
        by_distance = parts.inner * (variance * slope)
        each = -4 * (by_distance.sum(1) @ Z**2 - np.sum(Z * (by_distance @ Z), axis=0))
        gradient[:number] += np.bincount(length_of, each)
        slope_of_scale = np.sum(parts.inner * correlation) + _JITTER * np.trace(parts.inner)
        gradient[number] += slope_of_scale * variance
        if has_own:
            gradient[number + 1] += parts.of_parameter
        if of_mixing is not None:
            gradient[-1] += np.sum(parts.inner * of_mixing) * variance
    return float(total), gradient


def covariance_of(
    logarithms: Float[np.ndarray, "H"], candidate: KernelShape, X: Float[np.ndarray, "N D"]
) -> tuple[Float[np.ndarray, "N N"], Float[np.ndarray, "N D"], Correlation]:
    """Covariance of rows without noise, their inputs over length-scales, and the correlation."""
    number, family, values = candidate.inputs, FAMILIES[candidate.family], np.exp(logarithms)
    Z = X / values[_lengths_of(number, X)]
    norms = np.sum(Z**2, axis=1)
    squared = np.maximum(norms[:, None] + norms - 2 * Z @ Z.T, 0)
    np.fill_diagonal(squared, 0)
    correlation = family.correlation(squared, values[-1] if family.is_mixture else 1.0)
    covariance = values[number] * correlation[0]
    covariance[np.diag_indices(len(X))] += _JITTER * values[number]
    return covariance, Z, correlation


def _lengths_of(number: int, X: Float[np.ndarray, "N D"]) -> Int[np.ndarray, "D"]:
    """Which of so many length-scales a column has."""
    return np.maximum(np.arange(X.shape[1]) + number - X.shape[1], 0)


def gaussian_evidence(
    covariance: Float[np.ndarray, "N N"],
    y: Float[np.ndarray, "N"],
    weights: Float[np.ndarray, "N"],
    noise: float,
    copies: Float[np.ndarray, "N"],
) -> Parts | None:
    """Of a Gaussian process with noise, whose own parameter is the noise variance.

    Targets are means of so many rows as their weights. All of these are `copies` of one another, or
    one where the mean alone is known.
    """
    covariance = covariance.copy()
    covariance[np.diag_indices(len(y))] += noise / weights
    factor, failed = potrf(covariance, lower=1, overwrite_a=0)
    if failed:
        return None
    solved = potrs(factor, y, lower=1)[0]
    lower = potri(factor, lower=1)[0]  # zero above the diagonal, as the factor is
    inverse = lower + lower.T
    inverse[np.diag_indices(len(y))] /= 2
    log_scale = np.sum(np.log(np.diag(factor))) + 0.5 * len(y) * np.log(2 * np.pi)
    inner = 0.5 * (inverse - np.outer(solved, solved))
    log_scale += 0.5 * np.sum((copies - 1) * np.log(2 * np.pi * noise) + np.log(copies))
    of_noise = np.sum(np.diag(inner) / weights) * noise + 0.5 * np.sum(copies - 1)
    return Parts(0.5 * y @ solved + log_scale, inner, of_noise)


def _middle(
    logarithms: Float[np.ndarray, "H"], number: int, inputs: int, law: Law | None
) -> Float[np.ndarray, "H"]:
    """Means of the logarithms: length-scales around sqrt(D), noise around a tenth, others one."""
    middle = np.zeros_like(logarithms)
    middle[:number] = 0.5 * np.log(inputs)
    if law is None:
        middle[number + 1] = np.log(NOISE)
    return middle


def _log_prior(error: Float[np.ndarray, "H"], number: int) -> tuple[float, Float[np.ndarray, "H"]]:
    """Of the logarithms less their means: length-scales alike, variances wide; and the gradient."""
    wide = error[number:] / WIDE
    shared = _OWN + number * _SHARED
    own = error[:number] - _SHARED / shared * error[:number].sum()
    scale = (number - 1) * np.log(_OWN) + np.log(shared) + 2 * len(wide) * np.log(WIDE)
    squares = error[:number] @ own / _OWN + wide @ wide
    total = -0.5 * (squares + scale + len(error) * np.log(2 * np.pi))
    return total, -np.concatenate([own / _OWN, wide / WIDE])


def optimum(
    candidate: KernelShape,
    blocks: Sequence[RowBlock],
    start: Float[np.ndarray, "H"],
    iterations: int = 20,
    law: Law | None = None,
) -> Optimum:
    """The maximum of the evidence by L-BFGS from a start, or what it has come to.

    Line searches end at an infinite value. Where there is no evidence they see a slope back to the
    best point so far, as steep as the evidence is there. Where there is none at the start, the log
    evidence is minus infinity.
    """
    number = candidate.inputs
    of_own = [(-23, 5)] if law is None else [(-6, 9)] * law.has_parameter
    mixing = [(-5, 7)] * FAMILIES[candidate.family].is_mixture
    rows = 1 if law is None else sum(len(block.X) for block in blocks)

    def negative(logarithms: Float[np.ndarray, "H"]) -> tuple[float, Float[np.ndarray, "H"]]:
        return negative_log_evidence(logarithms, candidate, blocks, law)

    bounds = [(-12, 12)] * (number + 1) + of_own + mixing
    return Optimum(candidate, *maximum(negative, start, bounds, rows, iterations))


def maximum(
    negative: Callable[[Float[np.ndarray, "H"]], tuple[float, Float[np.ndarray, "H"]]],
    start: Float[np.ndarray, "H"],
    bounds: Sequence[tuple[float, float]],
    rows: int,
    iterations: int,
) -> tuple[float, Float[np.ndarray, "H"]]:
    """The largest value that L-BFGS meets from a start, and where; minus infinity without one.

    What is given is minus the value and its gradient. A row's share of it is searched, of which a
    first step does not lead to the bounds.
    """
    from scipy.optimize import minimize  # takes long to import

    best, place, steepness = np.inf, start, 0.0

    def a_row(logarithms: Float[np.ndarray, "H"]) -> tuple[float, Float[np.ndarray, "H"]]:
        nonlocal best, place, steepness
        value, gradient = negative(logarithms)
        if value < best:
            best, place = value, logarithms.copy()
            steepness = float(np.linalg.norm(gradient))
        elif value == np.inf and best < np.inf:
            away = logarithms - place
            distance = float(np.linalg.norm(away))
            value = best + steepness * distance
            gradient = steepness * away / distance
        return value / rows, gradient / rows

    minimize(a_row, start, jac=True, bounds=bounds, options={"maxiter": iterations})
    return -best, place
