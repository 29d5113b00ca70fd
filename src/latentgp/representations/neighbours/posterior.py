"""Posterior given the targets of the nearest rows."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, Key

from latentgp.kernels import LatentKernel
from latentgp.representations.inducing.representation import Inducing
from latentgp.representations.inducing.stream import StreamingPrior
from latentgp.representations.latent_axis import vmap_latents
from latentgp.representations.neighbours.conditionals import (
    Block,
    Conditionals,
    ScaledSites,
    given,
)
from latentgp.representations.neighbours.near import NearPosterior, Sight
from latentgp.sites.gaussian import GaussianSites
from latentgp.typing import Array

_REMEMBERED_POINTS = 500


class NeighboursPosterior(NearPosterior):
    """Posterior in which each new input sees the targets of the nearest of all rows.

    Attributes:
        sites: pseudo-targets of unit noise, and the roots of precisions they are scaled by.
        known: each row given its neighbours.
    """

    kernel: LatentKernel
    X: Float[Array, "N D"]
    sites: ScaledSites
    neighbours: Int[Array, "N #Q K"]
    known: Conditionals
    log_evidence: Float[Array, ""]
    jitter: Float[Array, ""]
    trace_term: Float[Array, ""]
    number: int = eqx.field(static=True)

    def remembered(self, log_evidence: float) -> StreamingPrior:
        """Through at most 500 inducing points among the rows, which say less than all rows do."""
        root, target = self.sites
        precision = jnp.broadcast_to(root**2, target.shape).T
        sites = GaussianSites((root * target).T, precision, jnp.zeros_like(precision))
        X, weights = np.asarray(self.X), np.asarray(~self.absent, float)
        points = Inducing(min(_REMEMBERED_POINTS, len(X)))
        points = points.initialise(X, weights, self.kernel, jax.random.key(0))
        return points.condition(self.kernel, self.X, sites).remembered(log_evidence)

    @property
    def kl(self) -> Float[Array, ""]:
        """Expected log sites less the log evidence; computed when asked for, at every row."""
        mean, variance = self.marginals(self.X)
        root = self.sites.root.T
        nats = self.sites.target.T * root * mean - 0.5 * root**2 * (mean**2 + variance)
        return jnp.sum(nats) - self.log_evidence

    def covariance(self, X: Float[Array, "N D"]) -> Float[Array, "Q N N"]:
        """Of the errors of means that see the nearest rows alone, under the prior.

        Errors e(x) = g(x) - a(x)'r have a proper joint covariance whatever the neighbours are, and
        their variances are those of `marginals`.
        """
        sight = self.seen_from(X)
        rows = jnp.moveaxis(sight.near.rows, 1, 0)[..., :-1]

        def noise(rows: Array, weights: Array) -> Array:
            def with_all(one: tuple[Array, ...]) -> Array:
                numbers, weight = one
                own = jnp.zeros(len(self.X), weight.dtype).at[numbers].add(weight)
                return jnp.sum(own[rows] * weights, axis=1)

            return jax.lax.map(with_all, (rows, weights))

        full = self.errors_together(sight, X) + vmap_latents(noise, rows, sight.weights)
        full = jnp.broadcast_to(full, (len(sight.variance), *full.shape[1:]))
        return with_diagonals(full, sight.variance)

    def pathwise_update(
        self, key: Key[Array, ""], prior_path: Callable[[Float[Array, "M D"]], Array]
    ) -> Float[Array, "Q M"]:
        """By the sparse precision U'U of the pseudo-targets, U with rows (-A, 1) / sqrt(d)."""
        root, target = self.sites
        noise = jax.random.normal(key, target.shape, target.dtype)
        left = target - root * prior_path(self.X).T - noise
        block = Block.of(jnp.arange(len(self.X)), self.neighbours)
        weights = jnp.moveaxis(self.known.weights, 1, 0)
        own = jnp.ones((*weights.shape[:2], 1), weights.dtype)
        rows = jnp.concatenate([-weights, own], axis=2)
        rows = rows / jnp.sqrt(self.known.variance.T)[:, :, None]
        projected = rows * jnp.sum(rows * block.take(left), axis=2, keepdims=True)
        return root * block.add(jnp.zeros_like(left), projected)

    @property
    def absent(self) -> Bool[Array, "N"]:
        return ~jnp.any(self.sites.root > 0, axis=0)

    def seen_from(self, X: Float[Array, "B D"]) -> Sight:
        near = self.near(X)
        grams = self.grams_near(near, X)
        root = near.take(self.sites.root).at[..., -1].set(1.0)
        target = near.take(self.sites.target)[..., :-1]

        def of_latent(grams: Array, root: Array, target: Array) -> tuple[Array, Array, Array]:
            weights, _, less = jax.vmap(given)(grams, root, target)
            prior = grams[:, -1, -1]
            variance = jnp.clip(prior - less, 0.0, prior)
            return weights, jnp.sum(weights * target, axis=1), variance

        weights, mean, variance = vmap_latents(of_latent, grams, root, target)
        at_rows = -weights * root[..., :-1]
        own = jnp.ones((*at_rows.shape[:2], 1), at_rows.dtype)
        return Sight(near, weights, jnp.concatenate([at_rows, own], axis=2), mean, variance)


def with_diagonals(
    covariances: Float[Array, "Q N N"], variances: Float[Array, "Q N"]
) -> Float[Array, "Q N N"]:
    """The same matrices with other diagonals."""
    own = jnp.diagonal(covariances, axis1=1, axis2=2)
    return covariances + jax.vmap(jnp.diag)(variances - own)
