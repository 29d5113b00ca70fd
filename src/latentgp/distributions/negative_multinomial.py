"""Draws of negative multinomial counts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.distributions.gamma import sample_gamma
from latentgp.distributions.poisson import sample_poisson
from latentgp.typing import Array, RandomKey


@jax.jit
def sample_negative_multinomial(
    key: RandomKey,
    x0: Float[Array, "*S"],
    p: Float[Array, "*S K"],
    p0: Float[Array, "*S"] | None = None,
) -> Float[Array, "*S K"]:
    """Draws of the counts of K kinds of trial until x0 of the kind 0, as floating-point numbers.

    They are Poisson of rates lambda p_j, given lambda ~ Ga(x0, rate p0). Their probability is
    Gamma(x0 + sum x) / Gamma(x0) p0^x0 prod_j p_j^x_j / x_j!.

    Args:
        key: the random key.
        x0: the number of trials of kind 0, any real number > 0.
        p: the probabilities of the other kinds, whose sum is below one.
        p0: that of kind 0, where it is known better than as 1 - sum p.

    Example:
        >>> sample_negative_multinomial(jax.random.key(0), jnp.ones(3), jnp.full((3, 2), 0.2)).shape
        (3, 2)
    """
    p0 = 1 - jnp.sum(p, axis=-1) if p0 is None else p0
    key_rate, key_counts = jax.random.split(key)
    rate = sample_gamma(key_rate, x0) / p0
    return sample_poisson(key_counts, rate[..., None] * p)
