"""Targets of deep models: weights of layers, or hidden functions at the rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from latentgp.extensions.chains.loop import Draw
from latentgp.extensions.chains.target import Coefficients, Position, Target, log_likelihood_of_rows
from latentgp.extensions.deep.inference.family import Architecture
from latentgp.extensions.deep.models import DeepGP, LastLayer, LayerDraw, Layout
from latentgp.extensions.deep.posterior import ProcessLayers
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.likelihoods.base import Marginals
from latentgp.numerics.cholesky import Factor, cholesky, jittered_cholesky
from latentgp.numerics.sums import sum_over_first
from latentgp.representations.latent_axis import latent_grams, vmap_latents
from latentgp.rows.data import Data
from latentgp.site_inference.rules.augmentation import AugmentationRule
from latentgp.site_inference.search.algorithm import prior_mean, rows_of
from latentgp.sites.gaussian import GaussianSites
from latentgp.typing import Array, HyperVector, RandomKey, RowLatents, Scalar


class LayerTarget(Target):
    """Density of something that the layers of a deep model follow from."""

    space: ParameterSpace  # the hyper-parameters; none are free if they are held
    data: Data  # the rows, on the device; weights are powers of their likelihoods

    def coefficients(self, position: Position) -> Coefficients:
        """None of places; layers are made from the draws themselves."""
        dtype = self.data.X.dtype
        return Coefficients(jnp.zeros((0, self.data.X.shape[1]), dtype), jnp.zeros((), dtype))


class WeightTarget(LayerTarget):
    """Log density of the weights of all layers and of the hyper-parameters, up to a constant.

    Weights have the prior N(0, I). Under Gaussian noise those of the last layer can be integrated
    out; then the hidden ones alone are moved, and the last ones drawn from their Gaussian.
    """

    architecture: Architecture  # the features, whose directions are held
    centre: HyperVector  # the unconstrained hyper-parameters of the space's model
    integrates: bool = eqx.field(static=True)  # whether the last layer's weights are integrated out

    @classmethod
    def of(
        cls, space: ParameterSpace, data: Data, architecture: Architecture, *, integrates: bool
    ) -> WeightTarget:
        """Target of a model and its rows."""
        return cls(space, data, architecture, jnp.asarray(space.to_vector()), integrates)

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Shapes of the moved weights, layer by layer."""
        model, features = self.space.model, self.architecture.features
        pairs = zip(features, model.layers, strict=False)
        hidden = [(len(own), layer.width) for own, layer in pairs]
        last = [] if self.integrates else [(model.likelihood.latent_size, len(features[-1]))]
        return (*hidden, *last)

    @property
    def size(self) -> int:
        """Number of these weights."""
        return sum(rows * columns for rows, columns in self.shapes)

    def __call__(self, position: Position) -> Scalar:
        model = self.space.to_model(position.vector)
        if not self.integrates:
            return self.log_prior(position) + self.log_likelihood(position, self.data)
        blocks = self._blocks(model, self.layers(position.white), self.data.X)
        sites = known_sites(model, self.data)
        of_latents = vmap_latents(log_evidence, blocks, sites.linear.T, sites.precision.T)
        return self.log_prior(position) + jnp.sum(of_latents) + jnp.sum(sites.log_constant)

    def log_prior(self, position: Position) -> Scalar:
        """Log prior of weights and hyper-parameters, in nats up to a constant."""
        return self.space.log_prior(position.vector) - 0.5 * jnp.sum(position.white**2)

    def log_likelihood(self, position: Position, rows: Data) -> Scalar:
        """Log likelihood of some rows given all weights, in nats."""
        model = self.space.to_model(position.vector)
        *hidden, last = self.layers(position.white)
        blocks = self._blocks(model, hidden, rows.X)
        return log_likelihood_of_rows(model, rows, _functions(model, blocks, last, rows))

    def layers(self, white: Float[Array, "1 M"]) -> list[Float[Array, "_ _"]]:
        """Weights of each layer."""
        ends = list(accumulate((rows * columns for rows, columns in self.shapes), initial=0))
        spans = zip(ends, ends[1:], self.shapes, strict=False)
        return [white[0, start:stop].reshape(shape) for start, stop, shape in spans]

    def latents(self, position: Position, key: RandomKey) -> RowLatents:
        return self.draw(position, key, jnp.arange(self.data.size)).f

    def draw(self, position: Position, key: RandomKey, watched: Int[Array, "W"]) -> Draw:
        """Draw at a position: weights of all layers, and f at the watched rows."""
        model = self.space.to_model(position.vector)
        weights = self.layers(position.white)
        white, rows = position.white, jax.tree.map(lambda leaf: leaf[watched], self.data)
        if self.integrates:
            posterior = self.last_given(model, weights)
            noise = jax.random.normal(key, posterior.mean.shape, posterior.mean.dtype)
            half = vmap_latents(lambda noise, root: noise @ root, noise, posterior.root)
            weights = [*weights, posterior.mean + half]
            white = jnp.concatenate([white, weights[-1].reshape(1, -1)], axis=1)
        blocks = self._blocks(model, weights[:-1], rows.X)
        return Draw(position.vector, white, _functions(model, blocks, weights[-1], rows))

    def last_given(self, model: DeepGP, hidden: Sequence[Array]) -> LastLayer:
        """Posterior of the last layer's weights given the hidden ones, under Gaussian noise."""
        blocks = self._blocks(model, hidden, self.data.X)
        sites = known_sites(model, self.data)

        def posterior(block: Array, linear: Array, precision: Array) -> LastLayer:
            inverse = _factor(block, precision).inverse
            return LastLayer(inverse.T @ (inverse @ (block @ linear)), inverse)

        return vmap_latents(posterior, blocks, sites.linear.T, sites.precision.T)

    def _blocks(
        self, model: DeepGP, hidden: Sequence[Array], X: Float[Array, "B D"]
    ) -> Float[Array, "#Q R B"]:
        *below, features = self.architecture.features
        draws = [LayerDraw(*own) for own in zip(below, hidden, strict=True)]
        seen = self.architecture.layout.under_last(model, draws, X)
        return features.cross_covariance(model.kernel, seen)


class ProcessTarget(LayerTarget):
    """Log likelihood of hidden functions at the rows, two layers, the last one integrated out.

    Coefficients v ~ N(0, I), one a row and function, make the hidden functions L v beside their
    prior mean, L L' the covariance of the hidden layer's process at the rows. Hyper-parameters
    are held.
    """

    layers: ProcessLayers  # both processes, at the rows
    root: Float[Array, "N N"]  # L
    jitter: Scalar  # of L L'

    @classmethod
    def of(cls, space: ParameterSpace, layout: Layout, data: Data) -> ProcessTarget:
        """For a model of two layers and its rows."""
        model: DeepGP = space.model
        layers = ProcessLayers(layout, data.X, known_sites(model, data))
        found = jittered_cholesky(latent_grams(model.layers[0].kernel, data.X)[0])
        return cls(space, data, layers, found.factor.lower, found.jitter)

    def hidden(self, white: Float[Array, "width N"]) -> Float[Array, "N width"]:
        """Hidden functions at the rows."""
        return self.layers.hidden_mean(self.data.X) + self.root @ white.T

    def log_likelihood(self, white: Float[Array, "width N"]) -> Scalar:
        """Log p(y | hidden functions), in nats up to a constant."""
        return self.layers.last_given(self.space.model, self.hidden(white)).log_evidence

    def latents(self, position: Position, key: RandomKey) -> RowLatents:
        model, hidden = self.space.model, self.hidden(position.white)
        seen = self.layers.layout.seen(hidden, self.data.X)
        drawn = self.layers.last_given(model, hidden).draws(key, seen, 1)[0]
        return drawn + prior_mean(model, self.data)

    def coefficients(self, position: Position) -> Coefficients:
        return Coefficients(self.data.X, self.jitter)


def known_sites(model: DeepGP, data: Data) -> GaussianSites:
    """Those of Gaussian noise, which no marginals change, as functions of g = f - prior mean."""
    offset = prior_mean(model, data)
    rows, none = rows_of(data), GaussianSites.none(offset)
    sites = AugmentationRule().sites(model.likelihood, rows, Marginals.known(offset), none)
    return sites.weighted(data.weights).about(offset)


@jax.custom_vjp
def log_evidence(
    block: Float[Array, "R B"], linear: Float[Array, "B"], precision: Float[Array, "B"]
) -> Scalar:
    """Log of E exp(sum_n linear_n g_n - precision_n g_n^2 / 2), g = phi'w, w ~ N(0, I)."""
    return _with_derivatives(block, linear, precision)[0]


def _with_derivatives(block: Array, linear: Array, precision: Array) -> tuple[Array, Any]:
    """In the sites they are the marginals, of which that in the features is made too."""
    factor = _factor(block, precision)
    white = factor.inverse @ block
    half = white @ linear
    weights = factor.inverse.T @ half
    mean = weights @ block
    in_block = jnp.outer(weights, linear - precision * mean)
    in_block = in_block - (factor.inverse.T @ white) * precision
    in_precision = -0.5 * (mean**2 + sum_over_first(white**2))
    value = 0.5 * half @ half - factor.half_log_determinant
    return value, (in_block, mean, in_precision)


log_evidence.defvjp(_with_derivatives, lambda slopes, along: tuple(along * s for s in slopes))


def _factor(block: Float[Array, "R B"], precision: Float[Array, "B"]) -> Factor:
    """Factor of the weights' posterior precision."""
    return cholesky(jnp.eye(len(block), dtype=block.dtype) + (block * precision) @ block.T)


def _functions(
    model: DeepGP, blocks: Float[Array, "#Q R B"], last: Float[Array, "Q R"], rows: Data
) -> Float[Array, "B Q"]:
    """Latent functions at rows by weights of the last layer."""
    return vmap_latents(lambda block, w: w @ block, blocks, last).T + prior_mean(model, rows)
