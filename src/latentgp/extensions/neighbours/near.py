# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)
"""Posteriors in which a new input sees the nearest rows."""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from latentgp.extensions.neighbours.conditionals import Block, given, grams_at
from latentgp.extensions.neighbours.prior import nugget_of
from latentgp.extensions.neighbours.search import NOBODY, coordinates
from latentgp.kernels import LatentKernel
from latentgp.likelihoods.base import Marginals
from latentgp.modules import stored
from latentgp.representations.base import LatentPosterior
from latentgp.representations.latent_axis import distinct_kernels, vmap_latents
from latentgp.runtime.row_scan import scan_rows
from latentgp.typing import Array, Inputs, NeighbourRows, Points, RowLatents

# Distances to all rows are found for some new ones at a time: 16 times what a cache holds.
_IN_MEMORY = 16
_GROUP = 16
_PRODUCTS_A_KERNEL_VALUE = 100  # that take as long


def places_of_largest(values: Float[Array, "B N"], number: int) -> Int[Array, "B V"]:
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


class Sight(NamedTuple):
    """Nearest rows of new inputs, and what a latent there is given what these say.

    Attributes:
        near: the rows, the new input itself last.
        weights: of what the rows say in the mean, shape (#Q, B, V).
        in_g: what the error weighs of the latents at the rows and, last, at the input, (#Q, B, M).
        mean: posterior mean, shape (Q, B).
        variance: of the posterior, shape (Q, B).
    """

    near: Block
    weights: Float[Array, "#Q B V"]
    in_g: Float[Array, "#Q B M"]
    mean: Float[Array, "Q B"]
    variance: Float[Array, "Q B"]


@stored
class NearRows(eqx.Module):
    """Rows of which a new input sees the nearest."""

    X: Inputs  # their inputs
    absent: Bool[Array, "N"]  # rows that say nothing
    number: int = eqx.field(static=True)  # of the rows that a new input sees
    # whether each of several kernels has nearest rows of its own
    own: bool = eqx.field(static=True)

    def near(self, kernel: LatentKernel, X: Float[Array, "B D"]) -> Block:
        """Rows nearest to new inputs; a block's own row, the last, is that of the new input."""
        each = distinct_kernels(kernel)[: None if self.own else 1]
        nearest = jnp.stack([self._nearest(own, X) for own in each], axis=1)
        return Block.of(jnp.zeros(len(X), int), nearest)

    def points_of(self, near: Block, X: Float[Array, "B D"]) -> Float[Array, "#Q B M D"]:
        """Inputs of the nearest rows, the new one last."""
        rows = jnp.moveaxis(near.rows, 1, 0)
        own = jnp.broadcast_to(X[:, None], (len(rows), len(X), 1, X.shape[1]))
        return jnp.concatenate([jnp.asarray(self.X)[rows[..., :-1]], own], axis=2)

    def grams(
        self, kernel: LatentKernel, near: Block, X: Float[Array, "B D"]
    ) -> Float[Array, "#Q B M M"]:
        """Gram matrices of the nearest rows with, last, the new input."""
        return grams_at(kernel, self.points_of(near, X))

    def _nearest(self, kernel: Any, X: Float[Array, "B D"]) -> Int[Array, "B V"]:
        """Numbers of the rows nearest to new inputs; rows of weight zero are nobody.

        In single precision, of which XLA has a selection, twice as many as needed are found, and
        the nearest of these in the precision of the inputs.
        """
        absent, number = self.absent, min(self.number, len(self.X))
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

    def errors_together(
        self,
        kernel: LatentKernel,
        near: Block,
        in_g: Float[Array, "#Q B M"],
        X: Float[Array, "B D"],
    ) -> Float[Array, "#Q B B"]:
        """Joint covariance of the errors of means, by the latents in them, under the prior.

        It is a covariance whatever the rows are. By the (B M)^2 pairs of rows that new inputs see,
        or by the (N + B)^2 pairs of all rows with a product of matrices, whichever takes less.
        """
        each, seen = distinct_kernels(kernel), near.rows.shape
        every = len(self.X) + len(X)
        of_all = every**2 * (1 + len(X) / _PRODUCTS_A_KERNEL_VALUE) < (seen[0] * seen[2]) ** 2
        found = []
        for q, weighed in enumerate(in_g):
            own, rows = each[q % len(each)], near.rows[:, q % seen[1], :-1]
            errors = self._errors_by_all if of_all else self._errors_by_pairs
            full = errors(own, rows, weighed, X)
            found.append(0.5 * (full + full.T))
        return jnp.stack(found)

    def _errors_by_pairs(
        self, kernel: Any, rows: Int[Array, "B V"], in_g: Float[Array, "B M"], X: Array
    ) -> Float[Array, "B B"]:
        points = jnp.concatenate([jnp.asarray(self.X)[rows], X[:, None]], axis=1)
        every = points.reshape(-1, points.shape[-1])

        def with_all(one: tuple[Array, ...]) -> Array:
            those, coefficients = one
            cross = (coefficients @ kernel.gram(those, every)).reshape(in_g.shape)
            return jnp.sum(cross * in_g, axis=1)

        return jax.lax.map(with_all, (points, in_g))

    def _errors_by_all(
        self, kernel: Any, rows: Int[Array, "B V"], in_g: Float[Array, "B M"], X: Array
    ) -> Float[Array, "B B"]:
        every = jnp.concatenate([jnp.asarray(self.X), X])
        new = jnp.arange(len(X))
        numbers = jnp.concatenate([rows, len(self.X) + new[:, None]], axis=1)
        weights = jnp.zeros((len(every), len(X)), in_g.dtype).at[numbers, new[:, None]].add(in_g)

        def step(total: Array, some: tuple[Array, Array], real: Any) -> tuple[Array, None]:
            points, own = some
            own = jnp.where(real[:, None], own, 0.0)
            return total + own.T @ (kernel.gram(points, every) @ weights), None

        nothing = jnp.zeros((len(X), len(X)), in_g.dtype)
        return scan_rows(step, nothing, (every, weights), columns=len(every))[0]


def latents_given(
    kernel: LatentKernel, rows: NearRows, near: Block, grams: Float[Array, "#Q B M M"]
) -> tuple[Float[Array, "#Q B V"], Float[Array, "#Q B"]]:
    """Weights of the latents at the nearest rows in the mean at new inputs, and what these leave.

    Gram matrices are those of the nearest rows with, last, the new input.
    """
    there = jnp.moveaxis(near.there, 1, 0)
    roots = 1 / jnp.sqrt(nugget_of(kernel, rows.X))

    def of_latent(grams: Array, there: Array, root: Array) -> tuple[Array, Array]:
        scales = (root * there).at[:, -1].set(root)
        weights, _, less = jax.vmap(given)(grams, scales, jnp.zeros_like(scales[:, :-1]))
        prior = grams[:, -1, -1]
        return weights, jnp.clip(prior - less / root**2, 0.0, prior)

    return vmap_latents(of_latent, grams, there, roots)


def weighted_rows(
    weights: Float[Array, "#Q B V"], near: Block, values: Float[Array, "N Q S"]
) -> Float[Array, "Q B S"]:
    """Weighted sums of what the nearest rows have."""
    latents = values.shape[1]
    weights = jnp.broadcast_to(weights, (latents, *weights.shape[1:]))
    rows = jnp.moveaxis(near.rows.at[:, :, -1].set(0), 1, 0)
    rows = jnp.broadcast_to(rows, (latents, *rows.shape[1:]))
    each = jnp.arange(latents)[:, None]

    def add(k: Any, total: Array) -> Array:
        return total + weights[:, :, k, None] * values[rows[:, :, k], each]

    none = jnp.zeros((latents, rows.shape[1], values.shape[2]), values.dtype)
    return jax.lax.fori_loop(0, weights.shape[2], add, none)


class NearPosterior(LatentPosterior):
    """Posterior in which each new input sees the nearest of all rows, and those alone."""

    X: eqx.AbstractVar[Inputs]  # inputs of the rows; the last ones may be copies of weight zero
    neighbours: eqx.AbstractVar[NeighbourRows]  # numbers of each row's neighbours, shape (N, #Q, V)
    number: eqx.AbstractVar[int]  # of the rows that a new input sees

    @property
    def rank(self) -> int:
        """Number of features of a row, beside what neighbours say; none unless overridden."""
        return 0

    @property
    @abstractmethod
    def absent(self) -> Bool[Array, "N"]:
        """Rows that say nothing."""

    @abstractmethod
    def seen_from(self, X: Float[Array, "B D"]) -> Sight:
        """Nearest rows of new inputs, and marginals there."""

    def mean(self, X: Inputs) -> RowLatents:
        return self.marginals(X).mean

    def marginals(self, X: Inputs) -> Marginals:
        def step(carry: Any, x: Array, real: Bool[Array, "B"]) -> tuple[Any, Marginals]:
            sight = self.seen_from(x)
            return carry, Marginals(sight.mean.T, sight.variance.T)

        columns = max((self.number + 1) * (self.number + 1 + self.rank), len(self.X) // _IN_MEMORY)
        return scan_rows(step, None, X, columns=columns, in_cache=True)[1]

    def errors_together(self, sight: Sight, X: Float[Array, "B D"]) -> Float[Array, "#Q B B"]:
        """Joint covariance of the errors of means, by the latents in them, under the prior."""
        return self.rows.errors_together(self.kernel, sight.near, sight.in_g, X)

    @property
    def centres(self) -> Points:
        return self.X

    @property
    def rows(self) -> NearRows:
        """The rows, as new inputs see them."""
        return NearRows(self.X, self.absent, self.number, self.neighbours.shape[1] > 1)

    def near(self, X: Float[Array, "B D"]) -> Block:
        """Rows nearest to new inputs; a block's own row, the last, is that of the new input."""
        return self.rows.near(self.kernel, X)

    def points_of(self, near: Block, X: Float[Array, "B D"]) -> Float[Array, "#Q B M D"]:
        """Inputs of the nearest rows, the new one last."""
        return self.rows.points_of(near, X)

    def grams_near(self, near: Block, X: Float[Array, "B D"]) -> Float[Array, "#Q B M M"]:
        """Gram matrices of the nearest rows with, last, the new input."""
        return self.rows.grams(self.kernel, near, X)
