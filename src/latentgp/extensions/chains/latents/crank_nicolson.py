"""Preconditioned Crank-Nicolson and random-walk moves."""

from __future__ import annotations

from abc import abstractmethod
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


class GaussianProposal(LatentMove):
    """A move by a proposal that is linear in Gaussian noise."""

    target_acceptance: ClassVar[float | None] = 0.25

    def step(
        self, residual: Residual, state: ResidualValue, scale: Scalar, key: RandomKey
    ) -> tuple[ResidualValue, Info]:
        key_noise, key_accept = jax.random.split(key)
        noise = jax.random.normal(key_noise, state.eps.shape, state.eps.dtype)
        eps, prior = self.proposed(state.eps, noise, scale)
        there = ResidualValue.at(residual, eps)
        return accepted(state, there, there.value - state.value + prior, key_accept)

    @abstractmethod
    def proposed(self, eps: Coefs, noise: Coefs, scale: Scalar) -> tuple[Coefs, Scalar]:
        """The proposal, and what the prior adds to its log acceptance ratio."""


class CrankNicolson(GaussianProposal):
    """Proposals sqrt(1 - a^2) eps + a xi, accepted on the residual (Neal 1999, eq. 15; "MH v2")."""

    first_scale: ClassVar[float] = 0.3

    def proposed(self, eps: Coefs, noise: Coefs, scale: Scalar) -> tuple[Coefs, Scalar]:
        share = scale / jnp.sqrt(1 + scale**2)
        return jnp.sqrt(1 - share**2) * eps + share * noise, jnp.zeros((), eps.dtype)


class RandomWalk(GaussianProposal):
    """Gaussian random walk (Metropolis et al. 1953; "MH v1")."""

    first_scale: ClassVar[float] = 0.1

    def proposed(self, eps: Coefs, noise: Coefs, scale: Scalar) -> tuple[Coefs, Scalar]:
        there = eps + scale * noise
        return there, 0.5 * jnp.sum(eps**2 - there**2)
