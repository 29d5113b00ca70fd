"""Random-walk Metropolis moves of hyper-parameters."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Float, Key

from latentgp.inference.mcmc.hyperparameters.base import Density, HyperMove, HyperMoved
from latentgp.typing import Array


class HyperRandomWalk(HyperMove):
    """Gaussian random walk with the covariance that the warm-up saw (Haario et al. 2001)."""

    target_acceptance: ClassVar[float | None] = 0.25

    def step(
        self,
        density: Density,
        vector: Float[Array, "P"],
        here: tuple[Any, Any],
        root: Float[Array, "P P"],
        scale: Float[Array, ""],
        key: Key[Array, ""],
    ) -> HyperMoved:
        key_step, key_accept = jax.random.split(key)
        noise = jax.random.normal(key_step, vector.shape, vector.dtype)
        there = vector + scale * (root @ noise)
        value, worked_out = density(there)
        log_ratio = value - here[0]
        chance = jnp.where(jnp.isfinite(log_ratio), jnp.minimum(1.0, jnp.exp(log_ratio)), 0.0)
        taken = jax.random.uniform(key_accept, dtype=vector.dtype) < chance
        vector, worked_out = jax.tree.map(
            lambda new, old: jnp.where(taken, new, old), (there, worked_out), (vector, here[1])
        )
        return HyperMoved(vector, worked_out, chance, jnp.ones((), vector.dtype))
