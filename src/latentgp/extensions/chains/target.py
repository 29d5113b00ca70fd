"""Target of the samplers: log density of white coefficients and hyper-parameters."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from latentgp.hyperparameters.space import ParameterSpace
from latentgp.likelihoods.base import Marginals
from latentgp.models import LatentGP
from latentgp.representations import Representation
from latentgp.representations.protocols import coefficients_of
from latentgp.representations.whitening import Whitening
from latentgp.rows.data import Data
from latentgp.runtime.programs import Program
from latentgp.site_inference.search.algorithm import prior_mean
from latentgp.typing import Coefs, HyperVector, PerRow, RandomKey, RowLatents, Scalar

_SPREAD = 0.3  # of starts, on the unconstrained scale


class Position(NamedTuple):
    """A point of the space that is explored."""

    vector: HyperVector  # unconstrained hyper-parameters; H = 0 if they are fixed
    white: Coefs  # white coefficients of the latent functions; of deep models those of their layers


class Coefficients(NamedTuple):
    """Context of white coefficients."""

    centres: Any  # such as points of shape (M, D)
    jitter: Scalar  # added to the diagonal of their prior covariance; units of f squared


class Target(eqx.Module):
    """Density that chains draw from."""

    @abstractmethod
    def latents(self, position: Position, key: RandomKey) -> RowLatents:
        """A draw of f at the rows given a position."""

    @abstractmethod
    def coefficients(self, position: Position) -> Coefficients:
        """Context of the white coefficients at a position."""


class WhiteTarget(Target):
    """Log density of white coefficients and unconstrained hyper-parameters, up to a constant.

    With one coefficient a row it is the posterior's own. Through inducing points it is that of the
    free-form variational posterior exp(E log p(y | f)) p(v), the expectation under f given v
    (Hensman, Matthews, Filippone & Ghahramani 2015, eq. 7), of which the Gaussian one is an
    approximation: the variance that the points leave open is part of it.
    """

    space: ParameterSpace  # the hyper-parameters; none are free if they are fixed
    representation: Representation  # made ready for the rows
    data: Data  # the rows, on the device; weights are powers of their likelihoods
    centre: HyperVector  # the unconstrained hyper-parameters of the space's model
    fixed: Whitening | None = None  # the map to the rows where no hyper-parameter is free
    anchor: Marginals | None = None  # of f at the rows, where Newton's method for sites starts

    @classmethod
    def of(cls, space: ParameterSpace, representation: Representation, data: Data) -> WhiteTarget:
        """With the map to the rows worked out once if the hyper-parameters are fixed."""
        centre = jnp.asarray(space.to_vector())
        target = cls(space, representation, data, centre)
        if space.size:
            return target
        return dataclasses.replace(target, fixed=whitening_at_rows(target))

    def __call__(self, position: Position) -> Scalar:
        model = self.space.to_model(position.vector)
        prior = self.space.log_prior(position.vector) - 0.5 * jnp.sum(position.white**2)
        return prior + self.log_likelihood(model, position.white)

    def coefficients(self, position: Position) -> Coefficients:
        whitening = self.whitening(self.space.to_model(position.vector))
        return Coefficients(whitening.centres, whitening.jitter)

    def whitening(self, model: LatentGP) -> Whitening:
        """The map from white coefficients to the rows."""
        if self.fixed is not None:
            return self.fixed
        return coefficients_of(self.representation).whitening(model.kernel, self.data.X)

    def conditional(self, model: LatentGP, white: Coefs) -> Marginals:
        """Conditional marginals of f at the rows given the coefficients."""
        return self.whitening(model).conditional(white).shifted(prior_mean(model, self.data))

    def log_likelihood(self, model: LatentGP, white: Coefs) -> Scalar:
        """Log p(y | v) in nats; through inducing points E log p(y | f) given v."""
        return self.log_likelihood_of(model, self.conditional(model, white))

    def log_likelihood_of(self, model: LatentGP, marginals: Marginals) -> Scalar:
        """Log p(y | f) in nats; through inducing points E log p(y | f) under the marginals."""
        if not self.representation.traits.one_coefficient_a_row:
            return self.expected_log_likelihood(model, marginals)
        return log_likelihood_of_rows(model, self.data, marginals.mean)

    def expected_log_likelihood(self, model: LatentGP, marginals: Marginals) -> Scalar:
        """E log p(y | f) in nats."""
        y, side = self.data.y, dict(self.data.side_information)
        return _sum(model.likelihood.expected_log_prob(y, marginals, side), self.data)

    def latents(self, position: Position, key: RandomKey) -> RowLatents:
        model = self.space.to_model(position.vector)
        return self.latents_of(self.conditional(model, position.white), key)

    def latents_of(self, marginals: Marginals, key: RandomKey) -> RowLatents:
        """A draw of f at the rows given its conditional marginals."""
        mean, variance = marginals
        if self.representation.traits.one_coefficient_a_row:
            return mean
        return mean + jnp.sqrt(variance) * jax.random.normal(key, mean.shape, mean.dtype)


def log_likelihood_of_rows(model: LatentGP, data: Data, f: RowLatents) -> Scalar:
    """Log p(y | f) of the rows by their weights, in nats."""
    side = dict(data.side_information)
    return _sum(jax.vmap(model.likelihood.log_prob)(data.y, f, side), data)


def _sum(terms: PerRow, data: Data) -> Scalar:
    return jnp.sum(terms) if data.weights is None else terms @ data.weights


@Program
def whitening_at_rows(target: WhiteTarget) -> Whitening:
    """The map to the rows under the space's model."""
    return target.whitening(target.space.model)


def around(centre: HyperVector, key: RandomKey) -> HyperVector:
    """Unconstrained hyper-parameters where a chain starts, around some."""
    return centre + _SPREAD * jax.random.normal(key, centre.shape, centre.dtype)


def from_prior(target: WhiteTarget, key: RandomKey) -> Position:
    """Hyper-parameters around those of the space's model, white coefficients from the prior."""
    key_vector, key_white = jax.random.split(key)
    vector = around(target.centre, key_vector)
    model = target.space.model
    kernel, X = model.kernel, target.data.X
    own = coefficients_of(target.representation)
    coefficients = jax.eval_shape(lambda: own.whitening(kernel, X)).centres
    shape = (model.likelihood.latent_size, len(coefficients))
    return Position(vector, jax.random.normal(key_white, shape, X.dtype))
