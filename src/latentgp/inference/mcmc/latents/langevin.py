"""Preconditioned Crank-Nicolson Langevin moves."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Float, Key

from latentgp.inference.mcmc.latents.base import LatentMove, Moved, Residual
from latentgp.typing import Array


class Langevin(LatentMove):
    """Crank-Nicolson steps along the gradient (Cotter, Roberts, Stuart & White 2013, 4.3).

    eps' = beta eps + (1 - beta) g + sqrt(1 - beta^2) xi with g the residual's gradient at eps and
    beta = 2 / (2 + delta), delta the scale. Where the residual is flat every step is accepted.
    """

    target_acceptance: ClassVar[float | None] = 0.57
    first_scale: ClassVar[float] = 2.0

    def step(
        self,
        residual: Residual,
        eps: Float[Array, "Q M"],
        scale: Float[Array, ""],
        key: Key[Array, ""],
    ) -> Moved:
        key_noise, key_accept = jax.random.split(key)
        beta = 2 / (2 + scale)
        here, slope = jax.value_and_grad(residual)(eps)
        noise = jax.random.normal(key_noise, eps.shape, eps.dtype)
        there = beta * eps + (1 - beta) * slope + jnp.sqrt(1 - beta**2) * noise
        value, slope_there = jax.value_and_grad(residual)(there)

        def correction(start, end, slope):
            return jnp.sum((end - beta * start - 0.5 * (1 - beta) * slope) * slope) / (1 + beta)

        log_ratio = value + correction(there, eps, slope_there)
        log_ratio = log_ratio - here - correction(eps, there, slope)
        chance = jnp.where(jnp.isfinite(log_ratio), jnp.minimum(1.0, jnp.exp(log_ratio)), 0.0)
        accepted = jax.random.uniform(key_accept, dtype=eps.dtype) < chance
        return Moved(jnp.where(accepted, there, eps), chance, jnp.asarray(2.0, eps.dtype))
