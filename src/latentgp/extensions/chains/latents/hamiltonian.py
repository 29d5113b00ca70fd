"""Hamiltonian moves."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from latentgp.extensions.chains.latents.base import (
    Info,
    LatentMove,
    Residual,
)
from latentgp.typing import Coefs, RandomKey, Scalar


class Trajectory(NamedTuple):
    """Coordinates, and BlackJAX's state there."""

    eps: Coefs
    hmc: Any

    @property
    def value(self) -> Scalar:
        """The residual there."""
        return self.hmc.logdensity + 0.5 * jnp.sum(self.eps**2)


class Hamiltonian(LatentMove):
    """Leapfrog trajectories of a random number of steps (Neal 2011), by BlackJAX.

    In prior white coordinates the identity mass is that of K^-1 for f (Filippone, Zhong & Girolami
    2013, HMC v2), in coordinates of sites that of K^-1 + W.
    """

    target_acceptance: ClassVar[float | None] = 0.75
    first_scale: ClassVar[float] = 0.3

    steps: int = eqx.field(static=True, default=10)  # at most so many, drawn evenly from 1 on

    def init(self, residual: Residual, eps: Coefs) -> Trajectory:
        import blackjax

        return Trajectory(eps, blackjax.hmc.init(eps, _log_density(residual)))

    def step(
        self, residual: Residual, state: Trajectory, scale: Scalar, key: RandomKey
    ) -> tuple[Trajectory, Info]:
        import blackjax

        key_number, key_step = jax.random.split(key)
        number = jax.random.randint(key_number, (), 1, self.steps + 1)
        kernel: Any = blackjax.hmc.build_kernel()
        mass = jnp.ones(state.eps.size, state.eps.dtype)
        hmc, info = kernel(key_step, state.hmc, _log_density(residual), scale, mass, number)
        acceptance = info.acceptance_rate
        evaluations = number * jnp.ones_like(acceptance)
        return Trajectory(hmc.position, hmc), Info(acceptance, evaluations, info.is_divergent)


def _log_density(residual: Residual) -> Residual:
    return lambda eps: residual(eps) - 0.5 * jnp.sum(eps**2)
