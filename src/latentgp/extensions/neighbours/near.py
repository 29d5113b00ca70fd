# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)
"""Posteriors in which a new input sees the nearest rows."""

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from latentgp.extensions.neighbours.conditionals import Block, given, grams_at, turned
from latentgp.extensions.neighbours.divergence import Divergence, Roots, divergence_of
from latentgp.extensions.neighbours.full_scale import residual_grams
from latentgp.extensions.neighbours.prior import nugget_of
from latentgp.extensions.neighbours.search import NOBODY, coordinates, parts_apart
from latentgp.kernels import LatentKernel
from latentgp.kernels.parts import PartsOfKernel, as_wholes, telling_parts
from latentgp.likelihoods.base import AnyMarginals, Marginals
from latentgp.modules import stored
from latentgp.representations.base import LatentPosterior
from latentgp.representations.inducing.representation import Inducing
from latentgp.representations.inducing.stream import StreamingPrior
from latentgp.representations.latent_axis import distinct_kernels, vmap_latents
from latentgp.representations.variables import InducingVariables
from latentgp.runtime.row_scan import scan_rows
from latentgp.runtime.x64 import in_x64
from latentgp.sites.coupled import Sites
from latentgp.typing import Array, Inputs, NeighbourRows, Points, RowLatents, Scalar

# Distances to all rows are found for some new ones at a time: 16 times what a cache holds.
_IN_MEMORY = 16
_GROUP = 16
_PRODUCTS_A_KERNEL_VALUE = 100  # that take as long
# Directions by the number of coordinates: either side, half quadrants, octants, orthants.
_DIRECTIONS = {1: 2, 2: 8, 3: 8, 4: 16}
_FEWEST_A_DIRECTION = 4  # rows of those a new input sees, else all are the nearest
_FEWEST_FOR_ONE = 4  # rows for each of these
_SHARE_ALL_ROUND = 2 / 3  # of these
# Blocks of rows that are looked through: for so many times the rows seen, some more, and further
# ones of each direction.
_LOOKED_THROUGH, _MORE_BLOCKS, _BLOCKS_A_DIRECTION = 2, 12, 2
_REMEMBERED_POINTS = 500


def sees_all_round(rows: int, inputs: int, number: int) -> bool:
    """Whether a new input sees rows in each direction, beside the nearest."""
    few = _FEWEST_A_DIRECTION * _DIRECTIONS.get(inputs, number)
    return few <= number <= rows / _FEWEST_FOR_ONE


def _direction(steps: Sequence[Float[Array, "*B"]]) -> Int[Array, "*B"]:
    """Number of the direction that steps go to, by their coordinates."""
    ahead = sum((step > 0).astype(jnp.int8) << e for e, step in enumerate(steps))
    if len(steps) == 2:
        ahead = ahead + 4 * (jnp.abs(steps[0]) > jnp.abs(steps[1])).astype(jnp.int8)
    return jnp.asarray(ahead)


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


def _best_and_all_round(
    values: Float[Array, "B N"], ahead: Int[Array, "B N"], best: int, each: int, directions: int
) -> Int[Array, "B V"]:
    """Places of the largest values, and of the largest further ones in each direction."""
    new = jnp.arange(len(values))[:, None]

    def largest(values: Float[Array, "B N"], number: int) -> Int[Array, "B chosen"]:
        top, places = jax.lax.top_k(values, min(number, values.shape[1]))
        return jnp.where(top == -jnp.inf, NOBODY, places)

    first = largest(values, best)
    left = values.at[new, first].set(-jnp.inf)
    further = [largest(jnp.where(ahead == one, left, -jnp.inf), each) for one in range(directions)]
    return jnp.concatenate([first, *further], axis=1)


class Sight(NamedTuple):
    """Nearest rows of new inputs, and the posterior of a latent there by what these say."""

    near: Block  # the rows, the new input itself last
    weights: Float[Array, "#Q B V"]  # of what the rows say in the mean
    in_g: Float[Array, "#Q B M"]  # what the error weighs of latents at the rows and, last, there
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
    # of rows near each other, with which a new input sees rows all round; None for the nearest
    blocks: Int[Array, "K S"] | None = None

    def near(self, kernel: LatentKernel, X: Float[Array, "B D"]) -> Block:
        """Rows nearest to new inputs; a block's own row, the last, is that of the new input."""
        each = distinct_kernels(kernel)[: None if self.own else 1]
        nearest = jnp.stack([self._nearest(own, X) for own in each], axis=1)
        return Block.of(jnp.zeros(len(X), int), nearest)

    def grams(
        self, kernel: LatentKernel, near: Block, X: Float[Array, "B D"]
    ) -> Float[Array, "#Q B M M"]:
        """Gram matrices of the nearest rows with, last, the new input."""
        return grams_at(kernel, near.points(self.X).at[:, :, -1].set(X))

    def latents_given(
        self,
        kernel: LatentKernel,
        near: Block,
        X: Float[Array, "B D"],
        features: Float[Array, "#Q B M points"] | None = None,
    ) -> tuple[Float[Array, "#Q B V"], Float[Array, "#Q B"]]:
        """Weights of latents at the nearest rows in means at new inputs, and what these leave.

        With features of the rows and, last, the inputs it is of what their low rank leaves.
        """
        grams = self.grams(kernel, near, X)
        if features is not None:
            grams = vmap_latents(residual_grams, grams, features)
        roots = 1 / jnp.sqrt(nugget_of(kernel, self.X))

        def of_latent(grams: Array, there: Array, root: Array) -> tuple[Array, Array]:
            scales = (root * there).at[:, -1].set(root)
            weights, _, less = jax.vmap(given)(grams, scales, jnp.zeros_like(scales[:, :-1]))
            prior = grams[:, -1, -1]
            return weights, jnp.clip(prior - less / root**2, 0.0, prior)

        return vmap_latents(of_latent, grams, turned(near.there), roots)

    def _nearest(self, kernel: Any, X: Float[Array, "B D"]) -> Int[Array, "B V"]:
        """Numbers of the rows nearest to new inputs; rows of weight zero are nobody.

        By all parts of a sum together and, where these see different columns, by each.
        """
        kernel, X, known = jax.lax.stop_gradient((kernel, X, self.X))
        if isinstance(kernel, PartsOfKernel):
            X, known, kernel = X[:, : -kernel.number], known[:, : -kernel.number], kernel.kernel
        if self.blocks is not None:
            new, rows = (coordinates(kernel, points, known) for points in (X, known))
            return self._all_round(new, rows, self.blocks)
        apart = parts_apart(kernel, known) if self.number < len(self.X) else ()
        number = -(-min(self.number, len(self.X)) // (1 + len(apart)))
        found = [
            self._by_distance(coordinates(one, X, known), coordinates(one, known, known), number)
            for one in (kernel, *apart)
        ]
        if not apart:
            return found[0]
        near = jnp.sort(jnp.concatenate(found, axis=1), axis=1)
        return near.at[:, 1:].set(jnp.where(near[:, 1:] == near[:, :-1], NOBODY, near[:, 1:]))

    def _by_distance(
        self, new: Float[Array, "B E"], rows: Float[Array, "N E"], number: int
    ) -> Int[Array, "B V"]:
        """Numbers of the nearest rows.

        In single precision, of which XLA has a selection, twice as many as needed are found, and
        the nearest of these in the precision of the inputs. Coordinates are about the new inputs:
        those of a town on the globe are thousands of length-scales.
        """
        absent, centre = self.absent, jnp.mean(new, axis=0)
        new, rows = new - centre, rows - centre
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

    def _all_round(
        self, new: Float[Array, "B E"], rows: Float[Array, "N E"], blocks: Int[Array, "K S"]
    ) -> Int[Array, "B V"]:
        """A third of the rows are the nearest, the others the nearest further ones all round.

        In a gap all the nearest rows may lie on one side of it, and say the same. Rows are looked
        for in the nearest blocks, overall and in each direction.
        """
        directions, size = _DIRECTIONS[rows.shape[1]], blocks.shape[1]
        each = int(_SHARE_ALL_ROUND * self.number / directions)
        columns = list(zip(new.T, rows.T, strict=True))
        there = (blocks != NOBODY) & ~self.absent[blocks]
        far, ahead = jnp.zeros((), jnp.float32), []
        for one, column in columns:
            points, own = column[blocks], one[:, None]
            low = jnp.min(jnp.where(there, points, jnp.inf), axis=1)
            high = jnp.max(jnp.where(there, points, -jnp.inf), axis=1)
            aside = jnp.maximum(jnp.maximum(low - own, own - high), 0).astype(jnp.float32)
            far, ahead = far + aside**2, [*ahead, 0.5 * (low + high) - own]
        most = -(-_LOOKED_THROUGH * self.number // size) + _MORE_BLOCKS
        looked = _best_and_all_round(-far, _direction(ahead), most, _BLOCKS_A_DIRECTION, directions)
        among = jnp.where(looked[..., None] == NOBODY, NOBODY, blocks[looked])
        among = among.reshape(len(new), -1)
        steps = [column[among] - one[:, None] for one, column in columns]
        far = jnp.asarray(sum(step**2 for step in steps), jnp.float32)
        far = jnp.where((among == NOBODY) | self.absent[among], jnp.inf, far)
        nearest = self.number - directions * each
        chosen = _best_and_all_round(-far, _direction(steps), nearest, each, directions)
        return jnp.where(chosen == NOBODY, NOBODY, jnp.take_along_axis(among, chosen, axis=1))

    def errors_together(
        self, kernel: LatentKernel, near: Block, in_g: Float[Array, "#Q B M"], X: Inputs
    ) -> Float[Array, "#Q B B"]:
        """Joint covariance of the errors of means, by the latents in them, under the prior.

        It is a covariance whatever the rows are. By the (B M)^2 pairs of rows that new inputs see,
        or by the (N + B)^2 pairs of all rows with a product of matrices, whichever takes less.
        """
        each, seen = distinct_kernels(kernel), near.rows.shape
        every = len(self.X) + len(X)
        of_all = every**2 * (1 + len(X) / _PRODUCTS_A_KERNEL_VALUE) < (seen[0] * seen[2]) ** 2
        found = []
        errors = self._errors_by_all if of_all else self._errors_by_pairs
        for q, weighed in enumerate(in_g):
            full = errors(each[q % len(each)], near.rows[:, q % seen[1], :-1], weighed, X)
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


def weighted_rows(
    weights: Float[Array, "#Q B V"], near: Block, values: Float[Array, "N Q S"]
) -> Float[Array, "Q B S"]:
    """Weighted sums of what the nearest rows have."""
    latents, values = values.shape[1], jnp.asarray(values)
    weights = jnp.broadcast_to(weights, (latents, *weights.shape[1:]))
    rows = turned(near.rows.at[:, :, -1].set(0))
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
    blocks: eqx.AbstractVar[Any]  # as `NearRows` has them
    low_rank: eqx.AbstractVar[Any]  # what neighbours are not asked about, or None
    # of the rows that there are, as they are conditioned; None in earlier files
    order: eqx.AbstractVar[Any]

    @property
    def rank(self) -> int:
        """Number of features of a row, beside what neighbours say."""
        return 0 if self.low_rank is None else len(self.low_rank.points)

    @property
    @abstractmethod
    def observed(self) -> tuple[Roots, Any]:
        """With what precisions rows are observed, and features of a low rank or None."""

    @property
    @abstractmethod
    def sites_of_rows(self) -> Sites:
        """What the rows say of their latents."""

    def remembered(self, log_evidence: float) -> StreamingPrior:
        """Through at most 500 inducing points among the rows, which say less than all rows do."""
        sites = self.sites_of_rows
        if sites.precision.ndim > 2 or jnp.any(sites.precision < 0):
            return super().remembered(log_evidence)
        X, weights = np.asarray(self.X), np.asarray(~self.absent, float)
        points = Inducing(min(_REMEMBERED_POINTS, len(X)))
        points = points.initialise(X, weights, self.kernel, jax.random.key(0))
        return points.condition(self.kernel, self.X, sites).remembered(log_evidence)

    def telling_parts(self, number: int) -> LatentPosterior:
        """Where all that rows far away say of parts, such as coefficients, is in the low rank."""
        known = None if self.low_rank is None else self.low_rank.points
        if not isinstance(known, InducingVariables):
            return super().telling_parts(number)
        own = telling_parts(self.kernel, number), as_wholes(jnp.asarray(self.X), number)
        places = lambda p: (p.kernel, p.X, p.low_rank.points)  # noqa: E731
        return eqx.tree_at(places, self, (*own, known.telling_parts(number)))

    @cached_property
    @in_x64
    def divergence(self) -> Divergence | None:
        """What neighbours leave out; None where the order is not known."""
        if self.order is None:
            return None
        return divergence_of(self.kernel, self.X, self.neighbours, self.order, *self.observed)

    @property
    def notes(self) -> tuple[str, ...]:
        return () if self.divergence is None else (self.divergence.sentence,)

    @property
    def trace_term(self) -> Scalar:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What neighbours leave out, in NumPy."""
        return np.float64(0.0 if self.divergence is None else self.divergence.nats)

    @property
    @abstractmethod
    def absent(self) -> Bool[Array, "N"]:
        """Rows that say nothing."""

    @abstractmethod
    def seen_from(self, X: Float[Array, "B D"]) -> Sight:
        """Nearest rows of new inputs, and marginals there."""

    def mean(self, X: Inputs) -> RowLatents:
        return self.marginals(X).mean

    def marginals(self, X: Inputs) -> AnyMarginals:
        def step(carry: Any, x: Array, real: Bool[Array, "B"]) -> tuple[Any, Marginals]:
            sight = self.seen_from(x)
            return carry, Marginals(sight.mean.T, sight.variance.T)

        return scan_rows(step, None, X, columns=self.columns, in_cache=True)[1]

    @property
    def columns(self) -> int:
        """Numbers that go with a new input while it is looked at."""
        looked = len(self.X) // _IN_MEMORY if self.blocks is None else len(self.blocks)
        return max((self.number + 1) * (self.number + 1 + self.rank), looked)

    @property
    def centres(self) -> Points:
        return self.X

    @property
    def rows(self) -> NearRows:
        """The rows, as new inputs see them."""
        own = self.neighbours.shape[1] > 1
        return NearRows(self.X, self.absent, self.number, own, self.blocks)
