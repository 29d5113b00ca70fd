"""The evidence lower bound of a mixture of Gaussians, its terms and derivatives."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from latentgp.extensions.black_box.mixtures.expectations import Expectations, ExpectedLogLikelihoods
from latentgp.extensions.black_box.mixtures.family import (
    Basis,
    Coordinates,
    FactorisedMixture,
    GaussianMixture,
    entropy,
)
from latentgp.extensions.black_box.mixtures.own_points import OwnPoints
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.likelihoods.base import Likelihood, Marginals
from latentgp.models import LatentGP
from latentgp.modules import Module
from latentgp.representations import Representation
from latentgp.representations.latent_axis import vmap_latents
from latentgp.rows.data import Data
from latentgp.runtime.row_scan import scan_rows
from latentgp.site_inference.search.algorithm import rows_of
from latentgp.sites.gaussian import Rows
from latentgp.typing import Array, HyperVector, PerRow, RandomKey, RowLatents, Scalar


class Terms(NamedTuple):
    """The bound's terms, in nats: their sum is the bound."""

    entropy: Scalar  # of the mixture, exact for one component; a lower bound for several
    cross: Scalar  # E log p(c), the negative cross-entropy to the prior
    expected: Scalar  # E log p(y | f) of all rows
    error: Scalar  # standard error of `expected` where it is an estimate
    failed: Scalar  # number of values of log p that were not finite

    @property
    def bound(self) -> Scalar:
        """The evidence lower bound."""
        return self.entropy + self.cross + self.expected


class Slopes(NamedTuple):
    """Derivatives of the bound in a mixture's weights, means and covariances."""

    weights: Float[Array, "K"]
    mean: Float[Array, "K Q M"]
    covariance: Float[Array, "K Q M *M"]


class MixtureEvaluation(NamedTuple):
    """A mixture with its bound, and what the rows say."""

    mixture: GaussianMixture
    terms: Terms  # of the bound
    slopes: Slopes  # of the bound
    expected: ExpectedLogLikelihoods  # of each component and row: shapes (K, N), (K, N, Q)


class MixtureBound(Module):
    """The bound for a model and rows."""

    space: ParameterSpace  # the hyper-parameters; none are free if they are fixed
    representation: Representation | OwnPoints  # ready for the rows, or points a latent
    data: Data  # the rows, on the device
    expectations: Expectations  # how expected log likelihoods are found
    coordinates: Coordinates = eqx.field(static=True)  # of the coefficients
    learns_likelihood: bool = eqx.field(static=True)  # a parameter of it is free
    # covariances have a number a row and latent, which Theorem 2 does not bring about by itself
    by_rows: bool = eqx.field(static=True, default=False)

    @property
    def rows(self) -> Rows:
        """Targets, weights and side information."""
        return rows_of(self.data)

    @property
    def counts(self) -> PerRow:
        """Number of rows that each row counts for."""
        weights = self.data.weights
        return jnp.ones_like(self.data.X[:, 0]) if weights is None else weights

    def with_points(self, points: Float[Array, "*Q M D"] | None) -> MixtureBound:
        """The bound through other inducing points; itself without any."""
        if points is None:
            return self
        return eqx.tree_at(lambda bound: bound.representation.points, self, points)

    def of_rows(self, places: Int[Array, "B"] | None) -> MixtureBound:
        """The bound of some rows, each counted for as many as makes them all; itself for None."""
        if places is None:
            return self
        part = jax.tree.map(lambda a: a[places], self.data)
        weights = len(self.data.X) / len(places) * self.counts[places]
        part = eqx.tree_at(lambda d: d.weights, part, weights, is_leaf=lambda leaf: leaf is None)
        return eqx.tree_at(lambda bound: bound.data, self, part)

    def basis(self, model: LatentGP) -> Basis:
        """The coefficients' map to the rows."""
        return Basis.of(self.representation, model, self.data, self.coordinates)

    def evaluated(
        self, likelihood: Likelihood, basis: Basis, mixture: GaussianMixture, key: RandomKey
    ) -> MixtureEvaluation:
        """The bound and its derivatives in the mixture."""
        known = mixture.factorised()
        expected = self.expected(likelihood, known.marginals(basis), key)
        return MixtureEvaluation(mixture, *self.of(known, basis, expected), expected)

    def expected(
        self, likelihood: Likelihood, marginals: Marginals, key: RandomKey
    ) -> ExpectedLogLikelihoods:
        """Expected log likelihoods under each component, one after another."""
        parts = marginals, jax.random.split(key, len(marginals.mean))

        def one(part: tuple[Marginals, RandomKey]) -> ExpectedLogLikelihoods:
            return self.expectations(likelihood, self.rows, *part)

        if len(marginals.mean) == 1:
            only = one(jax.tree.map(lambda a: a[0], parts))
            return jax.tree.map(lambda a: a[None], only)
        return jax.lax.map(one, parts)

    def of(
        self, known: FactorisedMixture, basis: Basis, expected: ExpectedLogLikelihoods
    ) -> tuple[Terms, Slopes]:
        """The bound from expected log likelihoods."""
        mixture, weights = known.mixture, known.mixture.weights
        own = mixture.log_weights, mixture.mean, known.covariance, known.half_log_determinant
        if len(weights) == 1:  # its derivative in the covariance is half the precision
            value, by_weights = entropy(*own), jnp.zeros_like(weights)
            by_mean, by_covariance = jnp.zeros_like(mixture.mean), 0.5 * mixture.precision
        else:
            value, slopes = jax.value_and_grad(entropy, argnums=(0, 1, 2))(*own)
            by_weights, by_mean, by_covariance = slopes[0] / weights, *slopes[1:]
        cross, likely = known.cross_entropies(basis), expected.value @ self.counts
        in_mean, in_covariance = self._by_rows(mixture, basis, expected)
        in_weights = by_weights + cross + likely
        slopes = Slopes(in_weights, by_mean + in_mean, by_covariance + in_covariance)
        return self._terms(value, cross, weights, expected), slopes

    def terms(self, model: LatentGP, mixture: GaussianMixture, key: RandomKey) -> Terms:
        """The bound's terms alone: with fewer points than rows, of a chunk of rows at a time."""
        known = mixture.factorised()

        def chunk(key: Any, part: Data, _: Any) -> tuple[Any, ExpectedLogLikelihoods]:
            own = eqx.tree_at(lambda bound: bound.data, self, part)
            found = own.expected(model.likelihood, known.marginals(own.basis(model)), key)
            return jax.random.fold_in(key, 1), jax.tree.map(lambda a: jnp.moveaxis(a, 1, 0), found)

        if self.representation.traits.one_coefficient_a_row:
            found = chunk(key, self.data, None)[1]
        else:
            found = scan_rows(chunk, key, self.data, columns=mixture.mean[0].size)[1]
        expected = jax.tree.map(lambda a: jnp.moveaxis(a, 0, 1), found)
        cross = known.cross_entropies(self.basis(model))
        return self._terms(known.entropy, cross, mixture.weights, expected)

    def _terms(
        self,
        spread: Scalar,
        cross: Float[Array, "K"],
        weights: Float[Array, "K"],
        expected: ExpectedLogLikelihoods,
    ) -> Terms:
        return Terms(
            spread,
            weights @ cross,
            weights @ (expected.value @ self.counts),
            jnp.sqrt(weights**2 @ (expected.error @ self.counts**2)),
            jnp.sum(expected.failed),
        )

    def _by_rows(
        self, mixture: GaussianMixture, basis: Basis, expected: ExpectedLogLikelihoods
    ) -> tuple[Float[Array, "K Q M"], Float[Array, "K Q M *M"]]:
        """Derivatives of expected log likelihood and cross-entropy in means and covariances."""

        def one(mean: Array, in_mean: Array, in_variance: Array) -> tuple[Array, Array]:
            def of_latent(
                A: Array, P: Array, mean: Array, in_mean: Array, in_variance: Array
            ) -> tuple[Array, Array]:
                slope = A @ in_mean - P @ mean
                if mixture.is_diagonal:
                    return slope, A**2 @ in_variance - 0.5 * jnp.diagonal(P)
                return slope, (A * in_variance) @ A.T - 0.5 * P

            latents = self.counts * in_mean.T, self.counts * in_variance.T
            return vmap_latents(of_latent, basis.features, basis.precision, mean, *latents)

        slopes = jax.vmap(one)(mixture.mean, expected.in_mean, expected.in_variance)
        weights = mixture.weights
        return jax.tree.map(lambda a: a * weights.reshape(-1, *[1] * (a.ndim - 1)), slopes)

    def curvatures(self, basis: Basis, expected: ExpectedLogLikelihoods) -> Float[Array, "K Q M M"]:
        """Minus second derivatives in means, twice those in variances; rows that bend up as 0."""

        def one(in_variance: RowLatents) -> Float[Array, "Q M M"]:
            parts = basis.features, basis.precision, jnp.maximum(-2 * in_variance, 0.0).T
            return vmap_latents(lambda A, P, w: P + (A * (self.counts * w)) @ A.T, *parts)

        return jax.vmap(one)(expected.in_variance)

    def worth(
        self,
        vector: HyperVector,
        known: FactorisedMixture,
        expected: ExpectedLogLikelihoods,
        key: RandomKey,
    ) -> Scalar:
        """Function with the bound's derivative in hyper-parameters, the mixture held."""
        model = self.space.to_model(vector)
        return self.without_entropy(model, self.basis(model), known, expected, key)

    def without_entropy(
        self,
        model: LatentGP,
        basis: Basis,
        known: FactorisedMixture,
        expected: ExpectedLogLikelihoods,
        key: RandomKey,
    ) -> Scalar:
        """The bound but for the entropy, with its derivatives in model and mixture.

        Expected log likelihoods depend on kernel and mixture through means and variances of f
        alone, whose derivatives are known; the likelihood's own are at the same draws.
        """
        held = jax.lax.stop_gradient
        marginals = known.marginals(basis)
        expected, still = held((expected, marginals))
        moved = expected.in_mean * (marginals.mean - still.mean)
        moved = moved + expected.in_variance * (marginals.variance - still.variance)
        values = expected.value + jnp.sum(moved, axis=2)
        if self.learns_likelihood:
            again = self._worths(model.likelihood, still, key)
            values = values + again - held(again)
        weights = known.mixture.weights
        return weights @ (known.cross_entropies(basis) + values @ self.counts)

    def _worths(
        self, likelihood: Likelihood, marginals: Marginals, key: RandomKey
    ) -> Float[Array, "K N"]:
        """Values of `expected`, differentiable in the likelihood's parameters."""
        keys = jax.random.split(key, len(marginals.mean))
        parts = [Marginals(*own) for own in zip(*marginals, strict=True)]
        worth = partial(self.expectations.worth, likelihood, self.rows)
        return jnp.stack(list(map(worth, parts, keys)))
