"""The cumulative distribution function of a Poisson law, fast and precise for large counts."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaincc
from jaxtyping import Float

from latentgp.typing import Array

_SMALL = 16.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


def poisson_cdf(count: Float[Array, "*N"], rate: Float[Array, "*#N"]) -> Float[Array, "*N"]:
    """Probability of at most so many events, to 1e-12.

    It is the upper tail at the rate of a gamma law of shape count + 1. From 16 events on this is an
    integral by Gauss-Legendre nodes to where nothing is left, with Stirling's series for the
    constant; series and continued fractions of the incomplete gamma function need more and more
    terms, and lose digits.

    Args:
        count: whole numbers, not negative.
        rate: expected number of events.

    Example:
        >>> import jax.numpy as jnp
        >>> round(float(poisson_cdf(jnp.array(1.0), jnp.array(2.0))), 4)
        0.406
    """
    small = count < _SMALL
    few = gammaincc(jnp.where(small, count, 0.0) + 1, jnp.where(small, rate, 1.0))
    return jnp.where(small, few, _of_many(jnp.where(small, _SMALL, count), rate))


def _of_many(count: Float[Array, "*N"], rate: Float[Array, "*#N"]) -> Float[Array, "*N"]:
    spread = jnp.sqrt(count)
    above = rate > count
    upper = jnp.maximum(count + 12 * spread + 40, rate + 6 * spread)
    lower = jnp.maximum(jnp.minimum(count - 8 * spread, rate - 5 * spread), 0.0)
    end = jnp.where(above, upper, lower)
    nodes, weights = (0.5 * jnp.asarray(a, count.dtype) for a in (_NODES + 1, _WEIGHTS))
    away = (rate + (end - rate) * nodes[:, *(None,) * count.ndim] - count) / count
    constant = 1 / (12 * count) - 1 / (360 * count**3) + 1 / (1260 * count**5)
    constant -= 1 / (1680 * count**7)
    density = jnp.exp(count * (jnp.log1p(away) - away) - constant)
    area = jnp.tensordot(weights, density, 1) * jnp.abs(end - rate) / jnp.sqrt(2 * np.pi * count)
    return jnp.where(above, area, 1 - area)
