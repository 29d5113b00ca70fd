"""The surrogate-data coupling."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from latentgp.extensions.chains.coordinates import (
    Coordinates,
    ModelAtRows,
    coordinates_of_sites,
)
from latentgp.extensions.chains.couplings.base import Coupling, Place, log_joint, no_others
from latentgp.extensions.chains.information import (
    information_of_targets,
)
from latentgp.extensions.chains.target import WhiteTarget
from latentgp.site_inference.search.algorithm import prior_mean
from latentgp.typing import Coefs, HyperMatrix, HyperVector, RandomKey, RowLatents, Scalar

_LEAST_PRECISION = 1e-6


class Surrogate(Coupling):
    """Coordinates given surrogate data g ~ N(f, S) are held, and g (Murray & Adams 2010).

    1 / S is the curvature at the prior mean, so that g tells about f about what the targets do.
    """

    def held(self, target: WhiteTarget, at: Place, key: RandomKey) -> tuple[RowLatents, Coefs]:
        f = at.coordinates.centre + at.coordinates.shift(at.eps)
        model, precision = self._prior_sites(target, at.vector, at.coordinates)
        surrogate = f + jax.random.normal(key, f.shape, f.dtype) / jnp.sqrt(precision)
        own = self._given(model, precision, surrogate)
        return surrogate, own.of_white(at.coordinates.white(at.eps))

    def density(
        self,
        target: WhiteTarget,
        vector: HyperVector,
        held: tuple[RowLatents, Coefs],
        differentiable: bool,
    ) -> tuple[Scalar, Place]:
        surrogate, eta = held
        white = self.coordinates(target, vector, differentiable)
        own = self._given(*self._prior_sites(target, vector, white), surrogate)
        f = own.centre + own.shift(eta)
        noise = own.precision * (surrogate - f) ** 2 - jnp.log(own.precision)
        value = log_joint(target, Place(vector, eta, own, no_others(eta))) - 0.5 * jnp.sum(noise)
        eps = white.of_white(own.white(eta))
        white = dataclasses.replace(white, factorisations=own.factorisations)
        return value, Place(vector, eps, white, no_others(eta))

    def information(self, target: WhiteTarget, at: Place, held: Any) -> HyperMatrix:
        _, precision = self._prior_sites(target, at.vector, at.coordinates)
        return information_of_targets(target, at.vector, precision)

    def _prior_sites(
        self, target: WhiteTarget, vector: HyperVector, white: Coordinates
    ) -> tuple[ModelAtRows, RowLatents]:
        """The model, and 1 / S."""
        model = target.space.to_model(vector)
        at = ModelAtRows(target, model, white.whitening, prior_mean(model, target.data))
        return at, jnp.maximum(at.sites(at.offset)[1], _LEAST_PRECISION)

    def _given(self, at: ModelAtRows, precision: RowLatents, surrogate: RowLatents) -> Coordinates:
        """Coordinates of f given the surrogate data."""
        return coordinates_of_sites(at, precision * (surrogate - at.offset), precision)
