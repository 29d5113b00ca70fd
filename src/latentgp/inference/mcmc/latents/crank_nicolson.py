"""Preconditioned Crank-Nicolson and random-walk moves."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Float, Key

from latentgp.inference.mcmc.latents.base import LatentMove, Moved, Residual
from latentgp.typing import Array


class CrankNicolson(LatentMove):
    """Autoregressive proposals, accepted on the residual alone (Neal 1999, eq. 15; "MH v2").

    eps' = sqrt(1 - a^2) eps + a xi with a in (0, 1).
    """

    target_acceptance: ClassVar[float | None] = 0.25
    first_scale: ClassVar[float] = 0.3

    def step(
        self,
        residual: Residual,
        eps: Float[Array, "Q M"],
        scale: Float[Array, ""],
        key: Key[Array, ""],
    ) -> Moved:
        share = scale / jnp.sqrt(1 + scale**2)
        noise = jax.random.normal(key, eps.shape, eps.dtype)
        there = jnp.sqrt(1 - share**2) * eps + share * noise
        return accepted(eps, there, residual(there) - residual(eps), jax.random.fold_in(key, 1))


class RandomWalk(LatentMove):
    """Gaussian random walk (Metropolis et al. 1953; "MH v1")."""

    target_acceptance: ClassVar[float | None] = 0.25
    first_scale: ClassVar[float] = 0.1

    def step(
        self,
        residual: Residual,
        eps: Float[Array, "Q M"],
        scale: Float[Array, ""],
        key: Key[Array, ""],
    ) -> Moved:
        there = eps + scale * jax.random.normal(key, eps.shape, eps.dtype)
        log_ratio = residual(there) - residual(eps) - 0.5 * jnp.sum(there**2 - eps**2)
        return accepted(eps, there, log_ratio, jax.random.fold_in(key, 1))


def accepted(
    eps: Float[Array, "Q M"],
    there: Float[Array, "Q M"],
    log_ratio: Float[Array, ""],
    key: Key[Array, ""],
) -> Moved:
    """The proposal or the present coordinates, by the Metropolis-Hastings ratio."""
    chance = jnp.where(jnp.isfinite(log_ratio), jnp.minimum(1.0, jnp.exp(log_ratio)), 0.0)
    taken = jax.random.uniform(key, dtype=eps.dtype) < chance
    return Moved(jnp.where(taken, there, eps), chance, jnp.asarray(2.0, eps.dtype))
