"""Logarithms of probabilities and their differences, and of the beta function."""

from __future__ import annotations

import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Float

from latentgp.typing import Array, Values

_HALF = -0.7  # where the two ways to write it are equally exact


def log_complement(log_probability: Float[Array, "*N"]) -> Float[Array, "*N"]:
    """log(1 - exp(x)) for x <= 0, to rounding, with finite derivatives up to x = 0.

    Example:
        >>> round(float(log_complement(jnp.log(0.25))), 6)
        -0.287682
    """
    x = jnp.asarray(log_probability)
    # Cubes of its inverse are in third derivatives.
    least = float(jnp.finfo(x.dtype).tiny) ** 0.3
    x = jnp.minimum(x, -least)
    near_one = x > _HALF
    by_difference = jnp.log(-jnp.expm1(jnp.where(near_one, x, -1.0)))
    by_ratio = jnp.log1p(-jnp.exp(jnp.where(near_one, -1.0, x)))
    return jnp.where(near_one, by_difference, by_ratio)


def log_interval(lower: tuple[Values, Values], upper: tuple[Values, Values]) -> Values:
    """Log of the probability between two points, digits kept in both tails.

    `lower` and `upper` are log probabilities of at most, and of more than, each of the points.
    """
    in_upper_tail = upper[0] > lower[1]
    larger = jnp.where(in_upper_tail, lower[1], upper[0])
    smaller = jnp.where(in_upper_tail, upper[1], lower[0])
    possible = larger > -jnp.inf
    ratio = jnp.where(possible, smaller, 0.0) - jnp.where(possible, larger, 1.0)
    return larger + log_complement(jnp.minimum(ratio, 0.0))


def log_factorial(count: Values) -> Values:
    """Log count!, exactly zero for zero and one, where the logarithm of the gamma function rounds.

    Example:
        >>> [round(float(log_factorial(jnp.array(n))), 4) for n in (0.0, 1.0, 3.0)]
        [0.0, 0.0, 1.7918]
    """
    sure = (count == 0) | (count == 1)
    return jnp.where(sure, 0.0, gammaln(jnp.where(sure, 2.0, count) + 1))


def log_beta(a: Float[Array, "*#N"], b: Float[Array, "*#N"]) -> Float[Array, "*#N"]:
    """Log B(a, b), by gamma functions: `betaln` of JAX 0.10 is off by 1e-6 where b is 8 or more.

    Example:
        >>> round(float(log_beta(jnp.array(2.0), jnp.array(3.0))), 4)  # 1 / 12
        -2.4849
    """
    return gammaln(a) + gammaln(b) - gammaln(a + b)
