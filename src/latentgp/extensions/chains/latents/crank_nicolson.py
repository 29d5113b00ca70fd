"""Preconditioned Crank-Nicolson and random-walk moves."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp

from latentgp.extensions.chains.latents.base import (
    Info,
    LatentMove,
    Residual,
    ResidualValue,
    accepted,
)
from latentgp.typing import Coefs, RandomKey, Scalar


class CrankNicolson(LatentMove):
    """Autoregressive proposals, accepted on the residual alone (Neal 1999, eq. 15; "MH v2").

    eps' = sqrt(1 - a^2) eps + a xi with a in (0, 1).
    """

    target_acceptance: ClassVar[float | None] = 0.25
    first_scale: ClassVar[float] = 0.3

    def init(self, residual: Residual, eps: Coefs) -> ResidualValue:
        return ResidualValue.at(residual, eps)

    def step(
        self, residual: Residual, state: ResidualValue, scale: Scalar, key: RandomKey
    ) -> tuple[ResidualValue, Info]:
        key_noise, key_accept = jax.random.split(key)
        share = scale / jnp.sqrt(1 + scale**2)
        noise = jax.random.normal(key_noise, state.eps.shape, state.eps.dtype)
        there = ResidualValue.at(residual, jnp.sqrt(1 - share**2) * state.eps + share * noise)
        state, chance = accepted(state, there, there.value - state.value, key_accept)
        return state, Info(chance, jnp.ones_like(chance))


class RandomWalk(LatentMove):
    """Gaussian random walk (Metropolis et al. 1953; "MH v1")."""

    target_acceptance: ClassVar[float | None] = 0.25
    first_scale: ClassVar[float] = 0.1

    def init(self, residual: Residual, eps: Coefs) -> ResidualValue:
        return ResidualValue.at(residual, eps)

    def step(
        self, residual: Residual, state: ResidualValue, scale: Scalar, key: RandomKey
    ) -> tuple[ResidualValue, Info]:
        key_noise, key_accept = jax.random.split(key)
        noise = jax.random.normal(key_noise, state.eps.shape, state.eps.dtype)
        there = ResidualValue.at(residual, state.eps + scale * noise)
        prior = 0.5 * jnp.sum(state.eps**2 - there.eps**2)
        state, chance = accepted(state, there, there.value - state.value + prior, key_accept)
        return state, Info(chance, jnp.ones_like(chance))
