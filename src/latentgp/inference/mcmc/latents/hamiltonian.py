"""Hamiltonian moves."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Key

from latentgp.inference.mcmc.latents.base import LatentMove, Moved, Residual
from latentgp.typing import Array


class Hamiltonian(LatentMove):
    """Leapfrog trajectories of a random number of steps (Neal 2011), by BlackJAX.

    In prior white coordinates the identity mass is that of K^-1 for f (Filippone, Zhong & Girolami
    2013, HMC v2), in coordinates of sites that of K^-1 + W.

    Args:
        steps: at most so many, drawn evenly from 1 on.
    """

    target_acceptance: ClassVar[float | None] = 0.75
    first_scale: ClassVar[float] = 0.3

    steps: int = eqx.field(static=True, default=10)

    def step(
        self,
        residual: Residual,
        eps: Float[Array, "Q M"],
        scale: Float[Array, ""],
        key: Key[Array, ""],
    ) -> Moved:
        import blackjax

        def log_density(eps: Array) -> Array:
            return residual(eps) - 0.5 * jnp.sum(eps**2)

        key_number, key_step = jax.random.split(key)
        number = jax.random.randint(key_number, (), 1, self.steps + 1)
        kernel: Any = blackjax.hmc.build_kernel()
        start = blackjax.hmc.init(eps, log_density)
        mass = jnp.ones(eps.size, eps.dtype)
        state, info = kernel(key_step, start, log_density, scale, mass, number)
        return Moved(state.position, info.acceptance_rate, number + 1.0)
