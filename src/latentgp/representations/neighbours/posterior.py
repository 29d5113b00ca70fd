"""Posterior given the nearest rows: predictions at new inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int, Key

from latentgp.errors import InputError
from latentgp.kernels import LatentKernel
from latentgp.likelihoods.base import Marginals
from latentgp.representations.base import LatentPosterior
from latentgp.representations.inducing.stream import StreamingPrior
from latentgp.representations.latent_axis import distinct_kernels, vmap_latents
from latentgp.representations.neighbours.conditionals import (
    Block,
    Conditionals,
    ScaledSites,
    given,
    grams_at,
)
from latentgp.representations.neighbours.search import NOBODY, coordinates
from latentgp.runtime.row_scan import scan_rows
from latentgp.typing import Array

# Distances to all rows are found for some new ones at a time: 16 times what a cache holds.
_IN_MEMORY = 16
_GROUP = 16


def places_of_largest(values: Float[Array, "B N"], number: int) -> Int[Array, "B K"]:
    """Places of the largest values of each row, these first; exact.

    They are in those groups of 16 whose own largest values are the largest: so a selection among
    groups and one among the members of a few replace one among all.

    Example:
        >>> places_of_largest(jnp.array([[1.0, 3.0, 2.0]]), 2).tolist()
        [[1, 2]]
    """
    groups = -(-values.shape[1] // _GROUP)
    if groups <= number:
        return jax.lax.top_k(values, number)[1]
    more = ((0, 0), (0, groups * _GROUP - values.shape[1]))
    values = jnp.pad(values, more, constant_values=-jnp.inf)
    _, best = jax.lax.top_k(jnp.max(values.reshape(-1, _GROUP, groups), axis=1), number)
    members = (best[:, None, :] + groups * jnp.arange(_GROUP)[:, None]).reshape(len(values), -1)
    _, places = jax.lax.top_k(jnp.take_along_axis(values, members, axis=1), number)
    return jnp.take_along_axis(members, places, axis=1)


class NeighboursPosterior(LatentPosterior):
    """Posterior in which each new input sees the nearest of all rows, and those alone.

    Attributes:
        X: inputs of the rows, shape (N, D); the last ones may be copies of weight zero.
        sites: pseudo-targets of unit noise, and the roots of precisions they are scaled by.
        neighbours: numbers of each row's neighbours, shape (N, #Q, K).
        known: each row given its neighbours.
        number: of the rows that a new input sees.
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

    @property
    def kl(self) -> Float[Array, ""]:
        """Expected log sites less the log evidence; computed when asked for, at every row."""
        mean, variance = self.marginals(self.X)
        root = self.sites.root.T
        nats = self.sites.target.T * root * mean - 0.5 * root**2 * (mean**2 + variance)
        return jnp.sum(nats) - self.log_evidence

    def mean(self, X: Float[Array, "N D"]) -> Float[Array, "N Q"]:
        return self.marginals(X).mean

    def marginals(self, X: Float[Array, "N D"]) -> Marginals:
        def step(carry: Any, x: Array, real: Bool[Array, "B"]) -> tuple[Any, Marginals]:
            _, _, mean, variance = self._seen_from(x)
            return carry, Marginals(mean.T, variance.T)

        return scan_rows(step, None, X, columns=self._columns, in_cache=True)[1]

    def covariance(self, X: Float[Array, "N D"]) -> Float[Array, "Q N N"]:
        """Of the errors of means that see the nearest rows alone, under the prior.

        Errors e(x) = g(x) - a(x)'r have a proper joint covariance whatever the neighbours are, and
        their variances are those of `marginals`. It takes N^2 (number + 1)^2 kernel values.
        """
        near, weights, _, variance = self._seen_from(X)
        rows = jnp.moveaxis(near.rows, 1, 0)
        points = jnp.concatenate([jnp.asarray(self.X)[rows[..., :-1]], self._tiled(X)], axis=2)
        in_g = self._in_g(near, weights)

        def covariances(own: Any, points: Array, rows: Array, weights: Array, in_g: Array) -> Array:
            every = points.reshape(-1, points.shape[-1])

            def with_all(one: tuple[Array, ...]) -> Array:
                those, numbers, weight, coefficients = one
                cross = (coefficients @ own.gram(those, every)).reshape(in_g.shape)
                same = numbers[:, None, None] == rows
                noise = jnp.sum(weight[:, None, None] * same * weights, axis=(0, 2))
                return jnp.sum(cross * in_g, axis=1) + noise

            return jax.lax.map(with_all, (points, rows, weights, in_g))

        each = distinct_kernels(self.kernel)
        found = []
        for q, marginal in enumerate(variance):
            own = each[q % len(each)]
            blocks = (own_of[q % len(own_of)] for own_of in (points, rows[..., :-1], weights, in_g))
            full = covariances(own, *blocks)
            full = 0.5 * (full + full.T)
            found.append(full + jnp.diag(marginal - jnp.diagonal(full)))
        return jnp.stack(found)

    @property
    def centres(self) -> Float[Array, "M D"]:
        return self.X

    def remembered(self, log_evidence: float) -> StreamingPrior:
        raise InputError(
            "Neighbours(...) has no summary of the data that further rows could be added to; use "
            "CollapsedVI(Inducing(...)) for streams, or fit all rows again."
        )

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
    def _columns(self) -> int:
        return max((self.number + 1) ** 2, len(self.X) // _IN_MEMORY)

    def _tiled(self, X: Float[Array, "B D"]) -> Float[Array, "#Q B 1 D"]:
        latents = self.neighbours.shape[1]
        return jnp.broadcast_to(X[:, None], (latents, len(X), 1, X.shape[1]))

    def _in_g(self, near: Block, weights: Float[Array, "Q B K"]) -> Float[Array, "Q B M"]:
        """Of the errors at new inputs, what latents at neighbours and the input itself weigh."""
        at_rows = -weights * near.take(self.sites.root)[..., :-1]
        own = jnp.ones((*at_rows.shape[:2], 1), at_rows.dtype)
        return jnp.concatenate([at_rows, own], axis=2)

    def _seen_from(
        self, X: Float[Array, "B D"]
    ) -> tuple[Block, Float[Array, "#Q B K"], Float[Array, "Q B"], Float[Array, "Q B"]]:
        """Nearest rows of new inputs, the weights of their targets, means and variances there."""
        each = distinct_kernels(self.kernel)
        latents = self.neighbours.shape[1]
        absent = ~jnp.any(self.sites.root > 0, axis=0)
        nearest = jnp.stack([self._nearest(own, X, absent) for own in each[:latents]], axis=1)
        # A block's last row is a row's own: here it is that of the new input, set below.
        near = Block.of(jnp.zeros(len(X), int), nearest)
        rows = jnp.moveaxis(near.rows, 1, 0)
        points = jnp.concatenate([jnp.asarray(self.X)[rows[..., :-1]], self._tiled(X)], axis=2)
        grams = grams_at(self.kernel, points)
        root = near.take(self.sites.root).at[..., -1].set(1.0)
        target = near.take(self.sites.target)[..., :-1]

        def of_latent(grams: Array, root: Array, target: Array) -> tuple[Array, Array, Array]:
            weights, _, less = jax.vmap(given)(grams, root, target)
            prior = grams[:, -1, -1]
            variance = jnp.clip(prior - less, 0.0, prior)
            return weights, jnp.sum(weights * target, axis=1), variance

        return near, *vmap_latents(of_latent, grams, root, target)

    def _nearest(
        self, kernel: Any, X: Float[Array, "B D"], absent: Bool[Array, "N"]
    ) -> Int[Array, "B K"]:
        """Numbers of the rows nearest to new inputs; rows of weight zero are nobody.

        In single precision, of which XLA has a selection, twice as many as needed are found, and
        the nearest of these in the precision of the inputs.
        """
        number = min(self.number, len(self.X))
        fixed = jax.lax.stop_gradient((kernel, X, self.X))
        new, rows = coordinates(*fixed[:2], fixed[2]), coordinates(fixed[0], fixed[2], fixed[2])
        new_single, single = new.astype(jnp.float32), rows.astype(jnp.float32)
        products = jnp.matmul(new_single, single.T, precision=jax.lax.Precision.HIGHEST)
        nearness = 2 * products - jnp.sum(single**2, axis=1)
        nearness = jnp.where(absent, -jnp.inf, nearness)
        near = places_of_largest(nearness, min(2 * number, len(self.X)))
        distance = jnp.sum((rows[near] - new[:, None]) ** 2, axis=2)
        distance = jnp.where(absent[near], jnp.inf, distance)
        places = jnp.argsort(distance, axis=1)[:, :number]
        near = jnp.take_along_axis(near, places, axis=1)
        return jnp.where(absent[near], NOBODY, near)
