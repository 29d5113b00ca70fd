"""Interpolation of a log density between points where its value and gradient are known.

What is left of it over that of a Student law is a Gaussian process with an RBF kernel, given values
and gradients (Rasmussen & Williams 2006, 9.4); far from all points it goes to zero, so that
tails are at most as heavy as Student's.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

_LENGTHSCALES = np.geomspace(1.0, 8.0, 7)
_DEGREES = 20.0
_LOW, _DOUBT = 5.0, 0.05  # nats below the mode, noise a nat below that
_VALUE_NOISE, _SLOPE_NOISE = 1e-8, 1e-5  # variances over that of the process


class Interpolant(NamedTuple):
    """Log density less that at the mode, in standardised coordinates."""

    points: Float[np.ndarray, "M H"]  # where it is known
    lengthscale: float  # of the process, in standardised coordinates
    variance: float  # of the process, nats squared
    # of the kernel's values (first column) and slopes at the points
    weights: Float[np.ndarray, "M 1+H"]
    # lower Cholesky factor of the covariance of values and slopes over `variance`
    root: Float[np.ndarray, "R R"]

    def __call__(self, z: Float[np.ndarray, "S H"]) -> Float[np.ndarray, "S"]:
        """Values at further points."""
        kernel = _rbf(z, self.points, self.lengthscale)
        slopes = self.weights[:, 1:] / self.lengthscale**2
        along = z @ slopes.T - np.sum(self.points * slopes, axis=1)
        rest = np.sum(kernel * (self.weights[:, 0] + along), axis=1)
        return rest + _student(z)[0]

    def covariance(self, z: Float[np.ndarray, "S H"]) -> Float[np.ndarray, "S S"]:
        """Posterior covariance of the values at further points, nats squared."""
        from scipy.linalg import solve_triangular

        half = solve_triangular(self.root, _cross(z, self.points, self.lengthscale).T, lower=True)
        return self.variance * (_rbf(z, z, self.lengthscale) - half.T @ half)


def interpolate(
    points: Float[np.ndarray, "M H"],
    values: Float[np.ndarray, "M"],
    gradients: Float[np.ndarray, "M H"],
    near: float = 2.0,
) -> Interpolant:
    """Interpolant whose length-scale is the most probable of a few, found from one near by.

    Values are those of the log density less that at the mode, in nats; gradients are in the
    standardised coordinates of the points.
    """
    from scipy.linalg import LinAlgError, cho_solve, cholesky

    base, slopes = _student(points)
    rest = np.concatenate([(values - base)[:, None], gradients - slopes], axis=1)
    known = rest.ravel()
    # Where the density is very low it need not be known well, and may be of another shape.
    doubt = np.square(_DOUBT * np.maximum(-values - _LOW, 0.0)) / max(np.mean(rest[:, 0] ** 2), 1.0)
    doubt = np.repeat(doubt, rest.shape[1])

    @cache
    def at(place: int) -> tuple[float, int, Interpolant | None]:
        """Log evidence; where there is none, shorter length-scales are better."""
        if not 0 <= place < len(_LENGTHSCALES):
            return -np.inf, -len(_LENGTHSCALES), None
        lengthscale = float(_LENGTHSCALES[place])
        try:
            root = cholesky(_covariance(points, lengthscale) + np.diag(doubt), lower=True)
        except LinAlgError:  # so long a length-scale that points are no longer told apart
            return -np.inf, -place, None
        weights = cho_solve((root, True), known)
        variance = max(float(known @ weights) / known.size, 1e-12)
        evidence = -0.5 * known.size * np.log(variance) - np.sum(np.log(np.diagonal(root)))
        shaped = weights.reshape(len(points), -1)
        return evidence, -place, Interpolant(points, lengthscale, variance, shaped, root)

    place = int(np.argmin(np.abs(np.log(_LENGTHSCALES / near))))
    while (best := max(place - 1, place, place + 1, key=lambda own: at(own)[:2])) != place:
        place = best
    interpolant = at(place)[2]
    assert interpolant is not None
    return interpolant


def _student(z: Float[np.ndarray, "S H"]) -> tuple[np.ndarray, np.ndarray]:
    """Log density of a Student law less that at its mode, and its gradient."""
    power, over = _DEGREES + z.shape[1], 1 + np.sum(z**2, axis=1) / _DEGREES
    return -0.5 * power * np.log(over), -power / _DEGREES * z / over[:, None]


def _rbf(
    z: Float[np.ndarray, "S H"], points: Float[np.ndarray, "M H"], lengthscale: float
) -> Float[np.ndarray, "S M"]:
    squares = np.sum(z**2, axis=1)[:, None] + np.sum(points**2, axis=1) - 2 * z @ points.T
    return np.exp(-0.5 * np.maximum(squares, 0.0) / lengthscale**2)


def _cross(
    z: Float[np.ndarray, "S H"], points: Float[np.ndarray, "M H"], lengthscale: float
) -> Float[np.ndarray, "S R"]:
    """Covariances of values at z with values and slopes at the points, over the variance."""
    apart = (z[:, None, :] - points) / lengthscale**2
    kernel = _rbf(z, points, lengthscale)[:, :, None]
    both = np.concatenate([kernel, kernel * apart], axis=2)
    return both.reshape(len(z), -1)


def _covariance(points: Float[np.ndarray, "M H"], lengthscale: float) -> Float[np.ndarray, "R R"]:
    """Covariance of values and slopes at the points over the variance, with a little noise."""
    number, size = points.shape
    apart = (points[:, None, :] - points) / lengthscale**2
    kernel = _rbf(points, points, lengthscale)
    blocks = np.empty((number, 1 + size, number, 1 + size))
    blocks[:, 0, :, 0] = kernel
    blocks[:, 0, :, 1:] = kernel[:, :, None] * apart
    blocks[:, 1:, :, 0] = -np.moveaxis(kernel[:, :, None] * apart, 2, 1)
    slopes = np.eye(size)[:, None, :] / lengthscale**2 - np.einsum("ija,ijb->iajb", apart, apart)
    blocks[:, 1:, :, 1:] = kernel[:, None, :, None] * slopes
    covariance = blocks.reshape(number * (1 + size), -1)
    noise = np.full((number, 1 + size), _SLOPE_NOISE / lengthscale**2)
    noise[:, 0] = _VALUE_NOISE
    return covariance + np.diag(noise.ravel())
