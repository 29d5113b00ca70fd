"""Hamiltonian moves of hyper-parameters."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from latentgp.extensions.chains.hyperparameters.base import HyperLaw, HyperMove, HyperMoved, Theta
from latentgp.typing import Array, RandomKey, Scalar


class HyperHamiltonian(HyperMove):
    """Leapfrog trajectories in coordinates of the covariance that the warm-up saw, by BlackJAX."""

    target_acceptance: ClassVar[float | None] = 0.75
    differentiates: ClassVar[bool] = True

    steps: int = eqx.field(static=True, default=5)  # at most so many, drawn evenly from 1 on

    def step(self, law: HyperLaw, here: Theta, scale: Scalar, key: RandomKey) -> HyperMoved:
        import blackjax

        def along(noise: Array) -> Array:
            return law.at(here.vector + law.seen.root @ noise).value

        key_number, key_step = jax.random.split(key)
        number = jax.random.randint(key_number, (), 1, self.steps + 1)
        kernel: Any = blackjax.hmc.build_kernel()
        start = blackjax.hmc.init(jnp.zeros_like(here.vector), along)
        mass = jnp.ones_like(here.vector)
        state, info = kernel(key_step, start, along, scale, mass, number)
        there = law.at(here.vector + law.seen.root @ state.position)
        return HyperMoved(there, info.acceptance_rate, number + 2.0, there, info.is_divergent)
