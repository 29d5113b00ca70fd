"""Posterior given the targets of the nearest rows, and a low rank if there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from latentgp.extensions.neighbours.conditionals import (
    Block,
    Conditionals,
    ScaledSites,
    errors_by,
    given,
    turned,
)
from latentgp.extensions.neighbours.divergence import Roots
from latentgp.extensions.neighbours.full_scale import (
    LowRank,
    Whitener,
    features_given,
    features_seen,
    loadings_of,
    residual_grams,
)
from latentgp.extensions.neighbours.near import NearPosterior, Sight
from latentgp.kernels import LatentKernel
from latentgp.modules import stored
from latentgp.numerics.cholesky import Factor
from latentgp.representations.latent_axis import latent_diagonals, vmap_latents
from latentgp.sites.gaussian import GaussianSites
from latentgp.typing import Array, Coefs, Inputs, NeighbourRows, Points, RandomKey, Scalar


@stored
class NeighboursPosterior(NearPosterior):
    """Posterior in which each new input sees the targets of the nearest of all rows."""

    kernel: LatentKernel
    X: Inputs
    # pseudo-targets of unit noise, and the roots of precisions they are scaled by
    sites: ScaledSites
    neighbours: NeighbourRows
    known: Conditionals | Whitener  # each row given its neighbours
    log_evidence: Scalar
    jitter: Scalar
    number: int = eqx.field(static=True)
    low_rank: LowRank | None = None  # what of the latent functions neighbours are not needed for
    blocks: Int[Array, "K S"] | None = None
    order: Int[Array, "M"] | None = None

    @property
    def observed(self) -> tuple[Roots, Any]:
        root = self.sites.root
        return Roots(root, root), None if self.low_rank is None else self.low_rank.features

    @property
    def sites_of_rows(self) -> GaussianSites:
        root, target = self.sites
        precision = jnp.broadcast_to(root**2, target.shape).T
        return GaussianSites((root * target).T, precision, jnp.zeros_like(precision))

    @property
    def kl(self) -> Scalar:
        """Expected log sites less the log evidence; computed when asked for, at every row."""
        mean, variance = self.marginals(self.X)
        root = self.sites.root.T
        nats = self.sites.target.T * root * mean - 0.5 * root**2 * (mean**2 + variance)
        return jnp.sum(nats) - self.log_evidence

    def covariance(self, X: Inputs) -> Float[Array, "Q N N"]:
        """Covariance under the prior of the errors of means given the nearest rows.

        Errors e(x) = g(x) - a(x)'r have a proper joint covariance whatever the neighbours are, and
        their variances are those of `marginals`.
        """
        sight = self.seen_from(X)
        rows = turned(sight.near.rows)[..., :-1]

        def noise(rows: Array, weights: Array) -> Array:
            def with_all(one: tuple[Array, ...]) -> Array:
                numbers, weight = one
                own = jnp.zeros(len(self.X), weight.dtype).at[numbers].add(weight)
                return jnp.sum(own[rows] * weights, axis=1)

            return jax.lax.map(with_all, (rows, weights))

        full = self.rows.errors_together(self.kernel, sight.near, sight.in_g, X)
        full = full + vmap_latents(noise, rows, sight.weights)
        if self.low_rank is not None:
            full = full - vmap_latents(_known_of, self.low_rank.factor, self._open(sight, X))
        full = jnp.broadcast_to(full, (len(sight.variance), *full.shape[1:]))
        return with_diagonals(full, sight.variance)

    def pathwise_update(self, key: RandomKey, prior_path: Callable[[Points], Array]) -> Coefs:
        """By the sparse precision P = U'U of the pseudo-targets.

        With a low rank theirs is P - P F (I + F'P F)^-1 F'P.
        """
        root, target = self.sites
        noise = jax.random.normal(key, target.shape, target.dtype)
        block = Block.of(jnp.arange(len(self.X)), self.neighbours)
        rows = turned(self.known.rows)

        def scaled(left: Array) -> Array:
            projected = rows * jnp.sum(rows * block.take(left), axis=2, keepdims=True)
            return root * block.add(jnp.zeros_like(left), projected)

        weights = scaled(target - root * prior_path(self.X).T - noise)
        if self.low_rank is None:
            return weights

        def explained(features: Array, factor: Factor, weights: Array) -> Array:
            return features @ (factor.inverse_of_product() @ (weights @ features))

        low_rank = self.low_rank.features, self.low_rank.factor
        return weights - scaled(root * vmap_latents(explained, *low_rank, weights))

    @property
    def absent(self) -> Bool[Array, "N"]:
        return ~jnp.any(self.sites.root > 0, axis=0)

    def seen_from(self, X: Float[Array, "B D"]) -> Sight:
        near = self.rows.near(self.kernel, X)
        grams = self.rows.grams(self.kernel, near, X)
        root = near.take(self.sites.root).at[..., -1].set(1.0)
        low_rank, left = self.low_rank, self.sites.target
        if low_rank is not None:
            features = features_seen(low_rank, self.kernel, near, X)
            grams, left = vmap_latents(residual_grams, grams, features), low_rank.left
        target = near.take(left)[..., :-1]

        def of_latent(grams: Array, root: Array, target: Array) -> tuple[Array, Array, Array]:
            weights, _, less = jax.vmap(given)(grams, root, target)
            prior = grams[:, -1, -1]
            variance = jnp.clip(prior - less, 0.0, prior)
            return weights, jnp.sum(weights * target, axis=1), variance

        weights, mean, variance = vmap_latents(of_latent, grams, root, target)
        sight = Sight(near, weights, errors_by(weights * root[..., :-1]), mean, variance)
        return sight if low_rank is None else self._with_low_rank(sight, X)

    def _with_low_rank(self, sight: Sight, X: Float[Array, "B D"]) -> Sight:
        low_rank: Any = self.low_rank
        own = features_given(self.kernel, low_rank.points, low_rank.inverse, X)
        mean = vmap_latents(lambda own, mean: own @ mean, own, low_rank.mean)
        added = vmap_latents(
            lambda factor, left: jnp.sum((left @ factor.inverse.T) ** 2, axis=1),
            low_rank.factor,
            self._open(sight, X),
        )
        variance = jnp.minimum(sight.variance + added, latent_diagonals(self.kernel, X))
        return sight._replace(mean=sight.mean + mean, variance=variance)

    def _open(self, sight: Sight, X: Float[Array, "B D"]) -> Float[Array, "#Q B points"]:
        """Loadings of the conditional errors on the white inducing variables."""
        low_rank: Any = self.low_rank
        return loadings_of(sight.in_g, features_seen(low_rank, self.kernel, sight.near, X))


def _known_of(factor: Factor, weights: Float[Array, "B points"]) -> Float[Array, "B B"]:
    """By how much data lower the covariance of weighted sums of white inducing variables."""
    left = weights @ factor.inverse.T
    return weights @ weights.T - left @ left.T


def with_diagonals(
    covariances: Float[Array, "Q N N"], variances: Float[Array, "Q N"]
) -> Float[Array, "Q N N"]:
    """The same matrices with other diagonals."""
    own = jnp.diagonal(covariances, axis1=1, axis2=2)
    return covariances + jax.vmap(jnp.diag)(variances - own)
