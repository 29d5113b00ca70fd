"""Products and solves with the sparse triangular factor of a prior, some rows at a time.

A factor B has ones on its diagonal and -A_i in row i at the neighbours of i. Rows that do not need
each other are worked off together: a solve with 36,000 rows of 20 neighbours takes 700 such steps,
not 36,000. In one with B a row gathers from its neighbours, in one with B' it adds to theirs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentgp.extensions.neighbours.search import NOBODY
from latentgp.modules import stored
from latentgp.typing import Array, Vectors

# Rows of a step, at least and at most: few where rows are few, as levels are short.
_NARROWEST, _WIDEST = 8, 64
_GRANULARITY = 8  # numbers of steps are rounded up to an eighth of a power of two


@stored
class Levels(NamedTuple):
    """Rows in the steps in which they can be worked off, and their neighbours."""

    rows: Int[np.ndarray, "levels width"]  # a row needs those of earlier steps alone; N for none
    neighbours: Int[np.ndarray, "N V"]  # N for nobody
    steps: Int[np.ndarray, ""]  # how many are not padding


def levels_of(neighbours: Int[np.ndarray, "N V"], order: Int[np.ndarray, "M"]) -> Levels:
    """The steps in which rows can be worked off; in NumPy.

    Neighbours come earlier in the order; rows that are not in it have none.
    """
    rows = len(neighbours)
    there = neighbours != NOBODY
    level = np.zeros(rows, int)
    for row in order:
        if there[row, 0]:
            level[row] = level[neighbours[row][there[row]]].max() + 1
    width = int(np.clip(2 ** (rows.bit_length() - 9), _NARROWEST, _WIDEST))
    own = np.split(np.argsort(level, kind="stable"), np.cumsum(np.bincount(level))[:-1])
    padded = [np.pad(some, (0, -len(some) % width), constant_values=rows) for some in own]
    packed = np.concatenate(padded).reshape(-1, width)
    unit = max(1, 2 ** int(np.ceil(np.log2(len(packed)))) // _GRANULARITY)
    more = np.full((-len(packed) % unit, width), rows)
    each = np.concatenate([packed, more]), np.where(there, neighbours, rows), len(packed)
    return Levels(*(np.asarray(a, np.int32) for a in each))


@stored
class TriangularFactor(NamedTuple):
    """B, ones on its diagonal and -A beside it, of one latent function."""

    levels: Levels
    weights: Float[Array, "N V"]  # A; zero where there is no such neighbour

    def times(self, right: Vectors) -> Vectors:
        """B right."""
        neighbours = jnp.asarray(self.levels.neighbours)
        return right - _gathered(self.weights, neighbours, _with_nobody(right))

    def transposed_times(self, right: Vectors) -> Vectors:
        """B' right."""
        neighbours = jnp.asarray(self.levels.neighbours)

        def add(k: Any, total: Array) -> Array:
            return total.at[neighbours[:, k]].add(-self.weights[:, k, None] * right)

        return jax.lax.fori_loop(0, neighbours.shape[1], add, _with_nobody(right))[:-1]

    def solve(self, right: Vectors) -> Vectors:
        """B^-1 right."""
        rows, neighbours, weights = self._with_nobody

        def step(t: Any, found: Array) -> Array:
            own = rows[t]
            return found.at[own].add(_gathered(weights[own], neighbours[own], found))

        return jax.lax.fori_loop(0, self.levels.steps, step, _with_nobody(right))[:-1]

    def transposed_solve(self, right: Vectors) -> Vectors:
        """B'^-1 right."""
        rows, neighbours, weights = self._with_nobody
        last = self.levels.steps - 1

        def step(t: Any, found: Array) -> Array:
            own = rows[last - t]
            terms = weights[own][..., None] * found[own][:, None]
            return found.at[neighbours[own]].add(terms)

        return jax.lax.fori_loop(0, self.levels.steps, step, _with_nobody(right))[:-1]

    @property
    def _with_nobody(self) -> tuple[Array, Array, Array]:
        """Rows of the steps, neighbours and weights, those of row N nobody and zero."""
        rows, neighbours, _ = map(jnp.asarray, self.levels)
        nobody = jnp.full((1, neighbours.shape[1]), len(neighbours), neighbours.dtype)
        return rows, jnp.concatenate([neighbours, nobody]), _with_nobody(self.weights)


def _with_nobody(values: Array) -> Array:
    """Values with a last row of zeros, which stands for nobody."""
    return jnp.concatenate([values, jnp.zeros_like(values[:1])])


def _gathered(
    weights: Float[Array, "B V"], places: Int[Array, "B V"], values: Float[Array, "M S"]
) -> Float[Array, "B S"]:
    """Weighted sums of the values at places."""

    def add(k: Any, total: Array) -> Array:
        return total + weights[:, k, None] * values[places[:, k]]

    none = jnp.zeros((len(places), values.shape[1]), values.dtype)
    return jax.lax.fori_loop(0, places.shape[1], add, none, unroll=4)


@stored
class Sweep(NamedTuple):
    """Slots of rows and of sums, as files held them before `Levels`."""

    rows: Int[np.ndarray, "levels slots"]
    inputs: Int[np.ndarray, "levels slots inputs"]
    places: Int[np.ndarray, "levels slots inputs"]
    slots: Int[np.ndarray, "N"]
    steps: Int[np.ndarray, ""]


@stored
class Swept(NamedTuple):
    """A sweep with its weights, as files held it."""

    sweep: Sweep
    weights: Float[Array, "levels slots inputs"]

    @property
    def factor(self) -> TriangularFactor:
        """B, from that of its solves."""
        rows, inputs, _, slots, steps = map(np.asarray, self.sweep)
        row_of = np.append(rows, len(slots))
        neighbours = row_of[inputs.reshape(-1, inputs.shape[2])[slots]]
        weights = np.asarray(self.weights).reshape(-1, inputs.shape[2])[slots]
        return TriangularFactor(Levels(rows, neighbours.astype(np.int32), steps), weights)
