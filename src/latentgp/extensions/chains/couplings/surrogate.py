"""The surrogate-data coupling."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.extensions.chains.coordinates import Coordinates, coordinates_of_sites, sites_at
from latentgp.extensions.chains.couplings.base import Coupling, Place, log_joint, no_others
from latentgp.extensions.chains.information import information_of_targets
from latentgp.extensions.chains.target import WhiteTarget
from latentgp.site_inference.search.algorithm import prior_mean
from latentgp.typing import Array, Coefs, HyperVector, RandomKey, RowLatents, Scalar

_LEAST_PRECISION = 1e-6


class Surrogate(Coupling):
    """Coordinates given surrogate data g ~ N(f, S) are held, and g (Murray & Adams 2010).

    1 / S is the curvature of the likelihood at the prior mean, so that g tells
    about f about what the targets do.
    """

    def held(self, target: WhiteTarget, at: Place, key: RandomKey) -> tuple[RowLatents, Coefs]:
        f = at.coordinates.centre + at.coordinates.shift(at.eps)
        precision = self._precision(target, at.vector, at.coordinates)
        surrogate = f + jax.random.normal(key, f.shape, f.dtype) / jnp.sqrt(precision)
        own = self._given(target, at.vector, at.coordinates, surrogate)
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
        own = self._given(target, vector, white, surrogate)
        f = own.centre + own.shift(eta)
        noise = own.precision * (surrogate - f) ** 2 - jnp.log(own.precision)
        value = log_joint(target, Place(vector, eta, own, no_others(eta))) - 0.5 * jnp.sum(noise)
        eps = white.of_white(own.white(eta))
        white = dataclasses.replace(white, factorisations=own.factorisations)
        return value, Place(vector, eps, white, no_others(eta))

    def information(self, target: WhiteTarget, at: Place, held: Any) -> Float[Array, "H H"]:
        precision = self._precision(target, at.vector, at.coordinates)
        return information_of_targets(target, at.vector, precision)

    def _precision(
        self, target: WhiteTarget, vector: HyperVector, white: Coordinates
    ) -> RowLatents:
        model = target.space.to_model(vector)
        offset = prior_mean(model, target.data)
        _, precision = sites_at(target, model, white.whitening, offset, offset)
        return jnp.maximum(precision, _LEAST_PRECISION)

    def _given(
        self, target: WhiteTarget, vector: HyperVector, white: Coordinates, surrogate: RowLatents
    ) -> Coordinates:
        """Coordinates of f given the surrogate data."""
        model = target.space.to_model(vector)
        offset = prior_mean(model, target.data)
        precision = self._precision(target, vector, white)
        linear = precision * (surrogate - offset)
        return coordinates_of_sites(target, model, white.whitening, linear, precision)
