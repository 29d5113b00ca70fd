"""Hamiltonian moves whose steps rotate."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Key

from latentgp.inference.mcmc.latents.base import Info, LatentMove, Residual, accepted
from latentgp.inference.mcmc.latents.langevin import Sloped
from latentgp.typing import Array

_QUARTER = math.pi / 2
_SHORTEST = 0.8  # share of an angle that a trajectory's steps have at least


class Rotations(LatentMove):
    """Hamiltonian trajectories of a quarter of a turn on N(eps | 0, I) exp(residual).

    The Gaussian part is followed exactly, by a rotation of coordinates and momenta; the residual's
    gradient g kicks the momenta by tan(h / 2) g before and after each rotation by h (Hilbert-space
    Hamiltonian Monte Carlo, Beskos, Pinski, Sanz-Serna & Stuart 2011). Where the residual is flat
    one step is an independent draw, and one step is always that of `Langevin` with
    beta = cos h. Where it is not, the warm-up shortens the angle and a quarter of a turn takes more
    steps.

    Args:
        steps: at most so many.
    """

    target_acceptance: ClassVar[float | None] = 0.9
    first_scale: ClassVar[float] = 0.5
    largest_scale: ClassVar[float] = _QUARTER

    steps: int = eqx.field(static=True, default=32)

    def init(self, residual: Residual, eps: Float[Array, "Q M"]) -> Sloped:
        return Sloped(eps, *jax.value_and_grad(residual)(eps))

    def step(
        self, residual: Residual, state: Sloped, scale: Float[Array, ""], key: Key[Array, ""]
    ) -> tuple[Sloped, Info]:
        key_momentum, key_angle, key_accept = jax.random.split(key, 3)
        momentum = jax.random.normal(key_momentum, state.eps.shape, state.eps.dtype)
        number = jnp.clip(jnp.ceil(_QUARTER / scale), 1, self.steps)
        share = jax.random.uniform(key_angle, dtype=scale.dtype, minval=_SHORTEST)
        angle = share * jnp.minimum(scale, _QUARTER / number)
        kick, cosine, sine = jnp.tan(angle / 2), jnp.cos(angle), jnp.sin(angle)

        def rotated(_: Any, carry: tuple[Sloped, Array]) -> tuple[Sloped, Array]:
            at, p = carry
            p = p + kick * at.slope
            there = self.init(residual, cosine * at.eps + sine * p)
            return there, cosine * p - sine * at.eps + kick * there.slope

        there, p = jax.lax.fori_loop(0, number.astype(int), rotated, (state, momentum))
        log_ratio = there.value - state.value + 0.5 * jnp.sum(state.eps**2 - there.eps**2)
        log_ratio = log_ratio + 0.5 * jnp.sum(momentum**2 - p**2)
        state, chance = accepted(state, there, log_ratio, key_accept)
        return state, Info(chance, number)
