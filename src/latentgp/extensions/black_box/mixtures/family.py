"""Mixtures of Gaussians over coefficients, and the three ways their covariances are held."""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.extensions.black_box.mixtures.own_points import OwnPoints, whitening_of
from latentgp.likelihoods.base import Marginals
from latentgp.models import LatentGP
from latentgp.numerics.cholesky import Factor, cholesky, lower_cholesky
from latentgp.numerics.sums import sum_over_first
from latentgp.numerics.triangular import solve_lower
from latentgp.representations import Representation
from latentgp.representations.latent_axis import vmap_latents
from latentgp.rows.data import Data
from latentgp.site_inference.search.algorithm import prior_mean
from latentgp.typing import Array, Coefs, RandomKey, RowLatents, Scalar

Covariance = Literal["full", "diagonal", "linear"]
Coordinates = Literal["white", "values"]

_LOG_TWO_PI = 1.8378770664093453


class Basis(NamedTuple):
    """Coefficients c ~ N(0, P^-1) of the latent functions at some rows: g = A' c + e.

    White ones, c = v, have P = I; the values of g at the centres, c = u = L v, have P = K^-1.
    """

    features: Float[Array, "#Q M N"]  # A
    residual: Float[Array, "#Q N"]  # variance of e
    precision: Float[Array, "#Q M M"]  # P
    log_determinant: Float[Array, "#Q"]  # of P
    offset: RowLatents  # prior means of f at the rows
    lower: Float[Array, "#Q M M"]  # L, the factor of K at the centres

    @classmethod
    def of(
        cls,
        representation: Representation | OwnPoints,
        model: LatentGP,
        data: Data,
        coordinates: Coordinates,
    ) -> Basis:
        """Those of a model at some rows; differentiable in the model."""
        whitening = whitening_of(representation, model.kernel, data.X)
        lower, features = whitening.lower, whitening.features
        identity = jnp.broadcast_to(jnp.eye(lower.shape[1], dtype=lower.dtype), lower.shape)
        precision, logs = identity, jnp.zeros(len(lower), lower.dtype)
        if coordinates == "values":
            inverse = vmap_latents(solve_lower, lower, identity)
            precision = vmap_latents(lambda inverse: inverse.T @ inverse, inverse)
            logs = -2 * jnp.sum(jnp.log(jnp.diagonal(lower, axis1=1, axis2=2)), axis=1)
            features = vmap_latents(lambda inverse, part: inverse.T @ part, inverse, features)
            if representation.traits.one_coefficient_a_row:
                features = identity
        offset = prior_mean(model, data)
        return cls(features, whitening.residual, precision, logs, offset, lower)


class GaussianMixture(NamedTuple):
    """A mixture q(c) = sum_k pi_k prod_q N(c_q; m_kq, S_kq)."""

    log_weights: Float[Array, "K"]  # log pi
    mean: Float[Array, "K Q M"]  # m
    precision: Float[Array, "K Q M *M"]  # S^-1, or its diagonal, shape (K, Q, M)

    @property
    def is_diagonal(self) -> bool:
        """Whether covariances are diagonal."""
        return self.precision.ndim == 3

    @property
    def weights(self) -> Float[Array, "K"]:
        """Pi."""
        return jnp.exp(self.log_weights)

    def factorised(self) -> FactorisedMixture:
        """With what follows from the precisions; NaN of one that is not positive definite."""
        if self.is_diagonal:
            covariance = 1 / jnp.where(self.precision > 0, self.precision, jnp.nan)
            half = 0.5 * jnp.sum(jnp.log(covariance), axis=2)
            return FactorisedMixture(self, covariance, None, half)

        def one(precision: Float[Array, "M M"]) -> tuple[Array, Array, Array]:
            factor: Factor = cholesky(precision)
            return factor.inverse_of_product(), factor.inverse, -factor.half_log_determinant

        covariance, root, half = jax.vmap(jax.vmap(one))(self.precision)
        return FactorisedMixture(self, covariance, root, half)


class FactorisedMixture(NamedTuple):
    """A mixture with its covariances."""

    mixture: GaussianMixture
    covariance: Float[Array, "K Q M *M"]  # S, shape (K, Q, M, M) or (K, Q, M)
    root: Float[Array, "K Q M M"] | None  # R with S = R' R; None of diagonal ones
    half_log_determinant: Float[Array, "K Q"]  # of S

    def marginals(self, basis: Basis) -> Marginals:
        """Means and variances of f at the rows under each component."""
        mean, spread = self.mixture.mean, self.covariance if self.root is None else self.root

        def one(mean: Coefs, spread: Array) -> tuple[Array, Array]:
            means = vmap_latents(lambda A, m: m @ A, basis.features, mean)

            def variance(A: Array, residual: Array, spread: Array) -> Array:
                if self.root is None:
                    return residual + spread @ A**2
                return residual + sum_over_first((spread @ A) ** 2)

            variances = vmap_latents(variance, basis.features, basis.residual, spread)
            return means.T + basis.offset, variances.T

        return Marginals(*jax.vmap(one)(mean, spread))

    def cross_entropies(self, basis: Basis) -> Float[Array, "K"]:
        """E log p(c) under each component, in nats (eq. 19)."""

        def one(mean: Coefs, covariance: Array) -> Scalar:
            def of_latent(P: Array, logs: Array, mean: Array, covariance: Array) -> Array:
                trace = jnp.sum((jnp.diagonal(P) if self.root is None else P) * covariance)
                return 0.5 * (logs - len(mean) * _LOG_TWO_PI - mean @ (P @ mean) - trace)

            parts = basis.precision, basis.log_determinant, mean, covariance
            return jnp.sum(vmap_latents(of_latent, *parts))

        return jax.vmap(one)(self.mixture.mean, self.covariance)

    def draws(self, key: RandomKey, number: int) -> Float[Array, "K S Q M"]:
        """Draws of each component."""
        mean = self.mixture.mean
        noise = jax.random.normal(key, (len(mean), number, *mean.shape[1:]), mean.dtype)
        if self.root is None:
            return mean[:, None] + jnp.sqrt(self.covariance)[:, None] * noise
        return mean[:, None] + jnp.einsum("kqji,ksqj->ksqi", self.root, noise)

    def log_densities(self, draws: Float[Array, "K S Q M"]) -> Float[Array, "K K S"]:
        """Log densities under each component, in nats, of draws of each; the latter first."""
        mean, precision = self.mixture.mean, self.mixture.precision
        constant = jnp.sum(self.half_log_determinant, axis=1)
        size = mean.shape[1] * mean.shape[2]

        product = "qi,ksqi->ksqi" if self.root is None else "qij,ksqj->ksqi"

        def under(mean: Array, precision: Array, constant: Array) -> Float[Array, "K S"]:
            apart = draws - mean
            turned = jnp.einsum(product, precision, apart)
            return -0.5 * (jnp.sum(apart * turned, axis=(2, 3)) + size * _LOG_TWO_PI) - constant

        found = jax.lax.map(lambda part: under(*part), (mean, precision, constant))
        return jnp.swapaxes(found, 0, 1)

    @property
    def entropy(self) -> Scalar:
        """The entropy of one component, or its lower bound of several, in nats."""
        logs, mean, _ = self.mixture
        return entropy(logs, mean, self.covariance, self.half_log_determinant)


def entropy(
    log_weights: Float[Array, "K"],
    mean: Float[Array, "K Q M"],
    covariance: Float[Array, "K Q M *M"],
    half_log_determinant: Float[Array, "K Q"],
) -> Scalar:
    """The lower bound on the entropy of a mixture, or that of one Gaussian, in nats.

    Of several components -sum_k pi_k log sum_l pi_l N(m_k; m_l, S_k + S_l) (Huber et al. 2008; eq.
    18), of one the exact entropy: the bound would be M Q (1 - log 2) / 2 below it.
    """
    number, latents, size = mean.shape
    if number == 1:
        return jnp.sum(half_log_determinant) + 0.5 * latents * size * (1 + _LOG_TWO_PI)

    def overlap(k: int, other: int) -> Scalar:
        """Log N(m_k; m_l, S_k + S_l)."""
        apart, both = mean[k] - mean[other], covariance[k] + covariance[other]
        if both.ndim == 2:
            terms = apart**2 / both + jnp.log(both)
            return -0.5 * (jnp.sum(terms) + latents * size * _LOG_TWO_PI)

        def of_latent(apart: Float[Array, "M"], both: Float[Array, "M M"]) -> Scalar:
            lower = lower_cholesky(both)
            half = solve_lower(lower, apart[:, None])[:, 0]
            logs = jnp.sum(jnp.log(jnp.diagonal(lower)))
            return -0.5 * (half @ half + size * _LOG_TWO_PI) - logs

        return jnp.sum(jax.vmap(of_latent)(apart, both))

    pairs = {(k, other): overlap(k, other) for k in range(number) for other in range(k + 1)}
    rows = [[pairs[max(k, m), min(k, m)] for m in range(number)] for k in range(number)]
    logs = jnp.stack([jnp.stack(row) for row in rows])
    mixed = jax.scipy.special.logsumexp(logs + log_weights, axis=1)
    return -jnp.sum(jnp.exp(log_weights) * mixed)
