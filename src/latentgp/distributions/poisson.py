"""Draws of counts, faster on a CPU than `jax.random.poisson` and as floating-point numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float
from scipy.special import gammaln

from latentgp.distributions.rejection import repeat_until_done
from latentgp.typing import Array, PerRow, RandomKey

_SMALL = 10.0  # below this rate, by inversion
# log k! for k below 10, where Stirling's series is not used.
_LOG_FACTORIALS = gammaln(np.arange(10) + 1.0)


@jax.jit
def sample_poisson(key: RandomKey, rate: Float[Array, "*S"]) -> Float[Array, "*S"]:
    """Poisson counts of the rates, zero at rate zero, NaN where the rate is NaN.

    Example:
        >>> sample_poisson(jax.random.key(0), jnp.array([0.0, 3.0, 1e9])).shape
        (3,)
    """
    flat = rate.ravel()
    key_small, key_large = jax.random.split(key)
    possible = (flat >= 0) & jnp.isfinite(flat)
    is_small = flat < _SMALL
    small = jnp.where(possible & is_small, flat, 0.0)
    counts = _by_inversion(key_small, small)
    counts = jnp.where(possible, counts, jnp.nan)
    large = jnp.where(possible & ~is_small, flat, 2 * _SMALL)
    return repeat_until_done(_propose, key_large, large, counts, is_small | ~possible).reshape(
        rate.shape
    )


def _by_inversion(key: RandomKey, rate: PerRow) -> PerRow:
    """The smallest k whose distribution function is not below a uniform number."""
    u = jax.random.uniform(key, rate.shape, rate.dtype)

    def is_short(carry: tuple) -> Bool[Array, ""]:
        k, _, probability, below = carry
        # Sums that rounding keeps below u end where the terms no longer count.
        return jnp.any((below < u) & (probability > 1e-30)) | (k == 0)

    def lengthen(carry: tuple) -> tuple:
        k, counts, probability, below = carry
        counts = counts + (below < u)
        probability = probability * rate / (k + 1)
        return k + 1, counts, probability, below + probability

    first = jnp.exp(-rate)
    zero = jnp.zeros((), rate.dtype)
    start = (zero, jnp.zeros_like(rate), first, first)
    return jax.lax.while_loop(is_short, lengthen, start)[1]


def _propose(key: RandomKey, rate: PerRow, _: Array) -> tuple[PerRow, Bool[Array, "N"]]:
    """One attempt at a rate of at least 10 (Hörmann 1993, transformed rejection, "PTRS")."""
    u, v = jax.random.uniform(key, (2, *rate.shape), rate.dtype)
    u = u - 0.5
    b = 0.931 + 2.53 * jnp.sqrt(rate)
    a = -0.059 + 0.02483 * b
    distance = 0.5 - jnp.abs(u)
    k = jnp.floor((2 * a / distance + b) * u + rate + 0.43)
    inverse = 1.1239 + 1.1328 / (b - 3.4)
    log_hat = jnp.log(v * inverse / (a / distance**2 + b))
    return k, (k >= 0) & (distance > 0) & (log_hat <= _log_probability(jnp.maximum(k, 0.0), rate))


def _log_probability(k: PerRow, rate: PerRow) -> PerRow:
    """K log rate - rate - log k!, without its large terms where k is large."""
    table = jnp.asarray(_LOG_FACTORIALS, k.dtype)
    small = k < len(_LOG_FACTORIALS)
    near = k * jnp.log(rate) - rate - table.at[k.astype(jnp.int32)].get(mode="clip")
    far = jnp.where(small, 10.0, k)
    excess = rate / far - 1
    inverse_square = 1 / far**2
    correction = (1 / 12 - inverse_square * (1 / 360 - inverse_square / 1260)) / far
    leading = far * (jnp.log1p(excess) - excess) - 0.5 * jnp.log(2 * jnp.pi * far)
    return jnp.where(small, near, leading - correction)
