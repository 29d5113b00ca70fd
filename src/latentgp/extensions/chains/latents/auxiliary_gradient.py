"""Auxiliary gradient moves."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.extensions.chains.coordinates import Coordinates, DenseCoordinates
from latentgp.extensions.chains.latents.base import Info, LatentMove, Residual, accepted
from latentgp.extensions.chains.latents.langevin import GradientMove, ResidualGradient
from latentgp.extensions.chains.target import WhiteTarget
from latentgp.models import LatentGP
from latentgp.numerics.eigen import eigenvectors
from latentgp.representations.latent_axis import vmap_latents
from latentgp.typing import Array, Coefs, RandomKey, Scalar


class AuxiliaryGradient(GradientMove):
    """The marginal auxiliary gradient sampler (Titsias & Papaspiliopoulos 2018, 3.1).

    With lambda the eigenvalues of the covariance F F' of f at the rows, the steps are those of
    `Langevin` along its eigenvectors with beta = 2 lambda / (2 lambda + delta): where f hardly
    varies coordinates are drawn anew, and delta is a variance of f. With coupling="whitened" F F'
    is the prior covariance, as published. One eigendecomposition a sweep, or one in all where
    hyper-parameters are held.
    """

    target_acceptance: ClassVar[float | None] = 0.57

    values: Coefs | None = None  # eigenvalues; set by `within`
    vectors: Float[Array, "Q M M"] | None = None  # eigenvectors in columns; set by `within`

    def within(self, target: WhiteTarget, model: LatentGP, coordinates: Coordinates) -> LatentMove:
        assert isinstance(coordinates, DenseCoordinates)
        values, vectors = vmap_latents(lambda F: eigenvectors(F.T @ F), coordinates.factor)
        return AuxiliaryGradient(jnp.maximum(values, 0.0), vectors)

    def step(
        self, residual: Residual, state: ResidualGradient, scale: Scalar, key: RandomKey
    ) -> tuple[ResidualGradient, Info]:
        values: Any = self.values
        key_noise, key_accept = jax.random.split(key)
        beta = 2 * values / (2 * values + scale)
        noise = jax.random.normal(key_noise, beta.shape, beta.dtype)

        def rotated(eps: Coefs) -> Coefs:
            return vmap_latents(lambda vectors, e: e @ vectors, self.vectors, eps)

        def forward(start: Array, slope: Array, end: Array) -> Scalar:
            """Log density of a step over that of the same step without a slope."""
            off = end - beta * start - 0.5 * (1 - beta) * slope
            return jnp.sum(off * slope / (1 + beta))

        here, slope = rotated(state.eps), rotated(state.slope)
        end = beta * here + (1 - beta) * slope + jnp.sqrt(1 - beta**2) * noise
        there = self.init(residual, vmap_latents(lambda v, e: v @ e, self.vectors, end))
        back = forward(end, rotated(there.slope), here)
        log_ratio = there.value + back - state.value - forward(here, slope, end)
        return accepted(state, there, log_ratio, key_accept)
