"""Preconditioned Crank-Nicolson Langevin moves."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from latentgp.extensions.chains.latents.base import Info, LatentMove, Residual, accepted
from latentgp.typing import Coefs, RandomKey, Scalar


class ResidualGradient(NamedTuple):
    """Coordinates, the residual there, and its gradient."""

    eps: Coefs
    value: Scalar
    slope: Coefs


class GradientMove(LatentMove):
    """A move by the residual's gradient."""

    def init(self, residual: Residual, eps: Coefs) -> ResidualGradient:
        return ResidualGradient(eps, *jax.value_and_grad(residual)(eps))


class Langevin(GradientMove):
    """Crank-Nicolson steps along the gradient (Cotter, Roberts, Stuart & White 2013, 4.3).

    eps' = beta eps + (1 - beta) g + sqrt(1 - beta^2) xi with g the residual's gradient at eps and
    beta = 2 / (2 + delta), delta the scale. Where the residual is flat every step is accepted.
    """

    target_acceptance: ClassVar[float | None] = 0.57
    first_scale: ClassVar[float] = 2.0
    largest_scale: ClassVar[float] = 100.0

    def step(
        self, residual: Residual, state: ResidualGradient, scale: Scalar, key: RandomKey
    ) -> tuple[ResidualGradient, Info]:
        key_noise, key_accept = jax.random.split(key)
        beta, eps = 2 / (2 + scale), state.eps
        noise = jax.random.normal(key_noise, eps.shape, eps.dtype)
        drift = beta * eps + (1 - beta) * state.slope
        there = self.init(residual, drift + jnp.sqrt(1 - beta**2) * noise)

        def forward(start: ResidualGradient, end: ResidualGradient) -> Scalar:
            """Log density of a step over that of the same step without a slope."""
            off = end.eps - beta * start.eps - 0.5 * (1 - beta) * start.slope
            return jnp.sum(off * start.slope) / (1 + beta)

        log_ratio = there.value + forward(there, state) - state.value - forward(state, there)
        return accepted(state, there, log_ratio, key_accept)
