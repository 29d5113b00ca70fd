"""The centred coupling: the latent functions are held."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from latentgp.extensions.chains.couplings.base import Coupling, Place, no_others
from latentgp.extensions.chains.information import (
    information_of_latents,
)
from latentgp.extensions.chains.target import WhiteTarget
from latentgp.site_inference.search.algorithm import prior_mean
from latentgp.typing import HyperMatrix, HyperVector, RandomKey, RowLatents, Scalar


class Centred(Coupling):
    """f at the rows is held (sufficient augmentation; Filippone et al. 2013, 2.1)."""

    def held(self, target: WhiteTarget, at: Place, key: RandomKey) -> RowLatents:
        return at.coordinates.centre + at.coordinates.shift(at.eps)

    def information(self, target: WhiteTarget, at: Place, held: Any) -> HyperMatrix:
        return information_of_latents(target, at.vector)

    def density(
        self, target: WhiteTarget, vector: HyperVector, held: RowLatents, differentiable: bool
    ) -> tuple[Scalar, Place]:
        model = target.space.to_model(vector)
        coordinates = self.coordinates(target, vector, differentiable)
        whitening = coordinates.whitening
        eps = whitening.white_of(held - prior_mean(model, target.data))
        value = target.space.log_prior(vector) + coordinates.log_likelihood(target, model, held)
        value = value - 0.5 * jnp.sum(eps**2) - whitening.log_determinant(len(eps))
        value = jnp.where(jnp.isnan(value), -jnp.inf, value)
        return value, Place(vector, eps, coordinates, no_others(eps))
