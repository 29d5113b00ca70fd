"""Probability that Gaussian variables are all positive."""

from __future__ import annotations

from functools import lru_cache

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, logsumexp, ndtr, ndtri
from jaxtyping import Float

from latentgp.numerics.small_matrices import small_cholesky
from latentgp.typing import Array

_NODES_OF_ONE, _POINTS = 64, 2048


def log_orthant_probability(
    mean: Float[Array, "*N D"], covariance: Float[Array, "*N D D"]
) -> Float[Array, "*N"]:
    """Log probability that all D variables of N(mean, covariance) are positive.

    One variable after another, each within its limit given those before (Genz 1992), which leaves
    an integral over a cube of D - 1 dimensions, smooth in mean and covariance: by Gauss-Legendre
    quadrature for two variables, to rounding, at quasi-random points for more: for three to some
    1e-5 of the probability itself, for five to 1e-3, or 1e-1 where it is tiny.

    Example:
        >>> import jax.numpy as jnp
        >>> jnp.exp(log_orthant_probability(jnp.zeros(2), jnp.eye(2))).round(4).item()
        0.25
    """
    size = mean.shape[-1]
    lower = small_cholesky(covariance)
    cube, log_weights = _cube(size - 1)
    u = jnp.asarray(cube, mean.dtype)
    z: list[Array] = []
    total = jnp.asarray(log_weights, mean.dtype)
    for i in range(size):
        shift = mean[..., i, None]
        for j, known in enumerate(z):
            shift = shift + lower[..., i, j, None] * known
        limit = shift / lower[..., i, i, None]
        total = total + log_ndtr(limit)
        if i < size - 1:
            # z above -limit, which is found in the tail where that is far out.
            below = jnp.maximum(u[:, i] * ndtr(limit), float(jnp.finfo(mean.dtype).tiny))
            z.append(-ndtri(below))
    return logsumexp(total, axis=-1)


@lru_cache
def _cube(size: int) -> tuple[Float[np.ndarray, "S dimensions"], Float[np.ndarray, "S"]]:
    """Points in the unit cube and the logs of their weights, more of them near its faces."""
    if size == 0:
        return np.zeros((1, 0)), np.zeros(1)
    if size == 1:
        nodes, weights = np.polynomial.legendre.leggauss(_NODES_OF_ONE)
        points = 0.5 * (nodes[:, None] + 1)
        density = 30 * points[:, 0] ** 2 * (1 - points[:, 0]) ** 2
        points = points**3 * (10 - 15 * points + 6 * points**2)
        return points, np.log(0.5 * weights * density)
    from scipy.stats import qmc

    points = qmc.Sobol(size, rng=0).random(_POINTS)
    points = 1 - np.abs(2 * points - 1)  # so that the integrand is periodic
    return np.clip(points, 1e-12, 1 - 1e-12), np.full(_POINTS, -np.log(_POINTS))
