"""The evidence lower bound of a mixture of Gaussians, its terms and derivatives."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Key

from latentgp.inference.mixtures.expectations import Expectations, Expected
from latentgp.inference.mixtures.family import (
    Basis,
    Coordinates,
    Factorised,
    GaussianMixture,
    entropy,
)
from latentgp.likelihoods.base import Likelihood, Marginals
from latentgp.models import LatentGP
from latentgp.modules import Module
from latentgp.parameters.space import ParameterSpace
from latentgp.representations import Representation
from latentgp.representations.latent_axis import vmap_latents
from latentgp.rows.data import Data
from latentgp.sites.gaussian import Rows
from latentgp.typing import Array


class Terms(NamedTuple):
    """The bound's terms, in nats: their sum is the bound.

    Attributes:
        entropy: of the mixture, exact for one component; a lower bound for several.
        cross: E log p(c), the negative cross-entropy to the prior.
        expected: E log p(y | f) of all rows.
        error: standard error of `expected` where it is an estimate.
        failed: number of values of log p that were not finite.
    """

    entropy: Float[Array, ""]
    cross: Float[Array, ""]
    expected: Float[Array, ""]
    error: Float[Array, ""]
    failed: Float[Array, ""]

    @property
    def bound(self) -> Float[Array, ""]:
        """The evidence lower bound."""
        return self.entropy + self.cross + self.expected


class Slopes(NamedTuple):
    """Derivatives of the bound in a mixture's weights, means and covariances."""

    weights: Float[Array, "K"]
    mean: Float[Array, "K Q M"]
    covariance: Float[Array, "K Q M *M"]


class Evaluated(NamedTuple):
    """A mixture with its bound, and what the rows say.

    Attributes:
        mixture: itself.
        terms: of the bound.
        slopes: of the bound.
        expected: of each component and row: shapes (K, N), (K, N, Q).
    """

    mixture: GaussianMixture
    terms: Terms
    slopes: Slopes
    expected: Expected


class MixtureBound(Module):
    """The bound for a model and rows.

    Attributes:
        space: the hyper-parameters; none are free if they are fixed.
        representation: made ready for the rows.
        data: the rows, on the device.
        expectations: how expected log likelihoods are found.
        coordinates: of the coefficients.
        learns_likelihood: whether a parameter of the likelihood is free.
    """

    space: ParameterSpace
    representation: Representation
    data: Data
    expectations: Expectations
    coordinates: Coordinates = eqx.field(static=True)
    learns_likelihood: bool = eqx.field(static=True)

    @property
    def rows(self) -> Rows:
        """Targets, weights and side information."""
        return Rows(self.data.y, self.data.weights, dict(self.data.side_information))

    def basis(self, model: LatentGP) -> Basis:
        """The coefficients' map to the rows."""
        return Basis.of(self.representation, model, self.data.X, self.coordinates)

    def evaluated(
        self, likelihood: Likelihood, basis: Basis, mixture: GaussianMixture, key: Key[Array, ""]
    ) -> Evaluated:
        """The bound and its derivatives in the mixture."""
        known = mixture.factorised()
        means, variances = known.marginals(basis)
        expected = self.expected(likelihood, means, variances, key)
        return Evaluated(mixture, *self.of(known, basis, expected), expected)

    def expected(
        self,
        likelihood: Likelihood,
        means: Float[Array, "K N Q"],
        variances: Float[Array, "K N Q"],
        key: Key[Array, ""],
    ) -> Expected:
        """Expected log likelihoods under each component, one after another."""
        keys = jax.random.split(key, len(means))

        def one(part: tuple[Array, Array, Key[Array, ""]]) -> Expected:
            mean, variance, own = part
            return self.expectations(likelihood, self.rows, Marginals(mean, variance), own)

        if len(means) == 1:
            only = one((means[0], variances[0], keys[0]))
            return jax.tree.map(lambda a: a[None], only)
        return jax.lax.map(one, (means, variances, keys))

    def of(self, known: Factorised, basis: Basis, expected: Expected) -> tuple[Terms, Slopes]:
        """The bound from expected log likelihoods."""
        mixture, weights = known.mixture, known.mixture.weights
        counts = (
            jnp.ones_like(expected.value[0]) if self.data.weights is None else (self.data.weights)
        )
        likely = expected.value @ counts
        own = mixture.log_weights, mixture.mean, known.covariance

        def entropy_of(log_weights: Array, mean: Array, covariance: Array) -> Float[Array, ""]:
            half = known.half_log_determinant
            return entropy(log_weights, mean, covariance, half)

        if len(weights) == 1:  # its derivative in the covariance is half the precision
            value = entropy_of(*own)
            by_weights = jnp.zeros_like(weights)
            by_mean, by_covariance = jnp.zeros_like(mixture.mean), 0.5 * mixture.precision
        else:
            value, slopes = jax.value_and_grad(entropy_of, argnums=(0, 1, 2))(*own)
            by_weights, by_mean, by_covariance = slopes
            by_weights = by_weights / weights
        cross = known.cross_entropies(basis)
        terms = Terms(
            value,
            weights @ cross,
            weights @ likely,
            jnp.sqrt(weights**2 @ (expected.error @ counts**2)),
            jnp.sum(expected.failed),
        )
        in_mean, in_covariance = self._by_rows(mixture, basis, expected, counts)
        slopes = Slopes(
            by_weights + cross + likely, by_mean + in_mean, by_covariance + in_covariance
        )
        return terms, slopes

    def _by_rows(
        self,
        mixture: GaussianMixture,
        basis: Basis,
        expected: Expected,
        counts: Float[Array, "N"],
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

            latents = (counts[:, None] * in_mean).T, (counts[:, None] * in_variance).T
            return vmap_latents(of_latent, basis.features, basis.precision, mean, *latents)

        parts = mixture.mean, expected.in_mean, expected.in_variance
        slopes = jax.vmap(one)(*parts)
        weights = mixture.weights
        return jax.tree.map(lambda a: a * weights.reshape(-1, *[1] * (a.ndim - 1)), slopes)

    def curvatures(self, basis: Basis, expected: Expected) -> Float[Array, "K Q M M"]:
        """Minus second derivatives of each component's bound in its means, rows that bend up as 0.

        The second derivative of E log p(y | f) in the mean of f is twice that in its variance.
        """
        counts = self.data.weights

        def one(in_variance: Float[Array, "N Q"]) -> Float[Array, "Q M M"]:
            bend = jnp.maximum(-2 * in_variance, 0.0)
            bend = bend if counts is None else counts[:, None] * bend
            return vmap_latents(
                lambda A, P, w: P + (A * w) @ A.T, basis.features, basis.precision, bend.T
            )

        return jax.vmap(one)(expected.in_variance)

    def worth(
        self,
        vector: Float[Array, "P"],
        known: Factorised,
        expected: Expected,
        key: Key[Array, ""],
    ) -> Float[Array, ""]:
        """What has the bound's derivative in hyper-parameters, the mixture held.

        Expected log likelihoods depend on those of the kernel through means and variances of f
        alone, whose derivatives are known; the likelihood's own are at the same draws.
        """
        model = self.space.to_model(vector)
        basis = self.basis(model)
        means, variances = known.marginals(basis)
        held = jax.lax.stop_gradient
        moved = held(expected.in_mean) * means + held(expected.in_variance) * variances
        values = jnp.sum(moved, axis=2)
        if self.learns_likelihood:
            values = values + self.worths(model.likelihood, held(means), held(variances), key)
        counts = self.data.weights
        likely = jnp.sum(values, axis=1) if counts is None else values @ counts
        return known.mixture.weights @ (known.cross_entropies(basis) + likely)

    def worths(
        self,
        likelihood: Likelihood,
        means: Float[Array, "K N Q"],
        variances: Float[Array, "K N Q"],
        key: Key[Array, ""],
    ) -> Float[Array, "K N"]:
        """Values of `expected`, differentiable in the likelihood's parameters."""
        keys = jax.random.split(key, len(means))
        return jnp.stack(
            [
                self.expectations.worth(
                    likelihood, self.rows, Marginals(means[k], variances[k]), keys[k]
                )
                for k in range(len(means))
            ]
        )
