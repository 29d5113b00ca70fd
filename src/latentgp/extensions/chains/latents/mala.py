"""Metropolis-adjusted Langevin moves."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp

from latentgp.extensions.chains.latents.base import Info, Residual, accepted
from latentgp.extensions.chains.latents.langevin import GradientMove, ResidualGradient
from latentgp.typing import Coefs, RandomKey, Scalar


class MALA(GradientMove):
    """Langevin steps of the whole density (Roberts & Tweedie 1996), the scale their length.

    In coordinates of sites the metric is that of the posterior's curvature at its centre: the
    simplified manifold sampler of Girolami & Calderhead (2011, 5) with a metric that is the same
    for all f given the hyper-parameters.
    """

    target_acceptance: ClassVar[float | None] = 0.574
    first_scale: ClassVar[float] = 0.5

    def step(
        self, residual: Residual, state: ResidualGradient, scale: Scalar, key: RandomKey
    ) -> tuple[ResidualGradient, Info]:
        key_noise, key_accept = jax.random.split(key)
        noise = jax.random.normal(key_noise, state.eps.shape, state.eps.dtype)

        def density(state: ResidualGradient) -> Scalar:
            return state.value - 0.5 * jnp.sum(state.eps**2)

        def ahead(state: ResidualGradient) -> Coefs:
            return state.eps + 0.5 * scale**2 * (state.slope - state.eps)

        there = self.init(residual, ahead(state) + scale * noise)
        back = jnp.sum((state.eps - ahead(there)) ** 2) / scale**2
        log_ratio = density(there) - density(state) - 0.5 * (back - jnp.sum(noise**2))
        return accepted(state, there, log_ratio, key_accept)
