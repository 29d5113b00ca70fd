"""Products and solves with the sparse triangular factor of a prior, some rows at a time.

A factor B has ones on its diagonal and -A_i in row i at the neighbours of i. Rows that do not need
each other are worked off together: a solve with 36,000 rows of 20 neighbours takes 269 such steps,
not 36,000.
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

_WIDTH = 64  # rows of a step: steps of fewer are padded
_FAN_IN = 32  # terms of a sum; longer ones are sums of sums
_UNROLLED = 8  # terms that are one loop over what is gathered
_GRANULARITY = 8  # numbers of steps are rounded up to an eighth of a power of two


@stored
class Sweep(NamedTuple):
    """Slots, one a row or a partial sum, in steps: a slot needs those of earlier steps alone."""

    # the row of a slot; N where it is a partial sum or nothing
    rows: Int[np.ndarray, "levels slots"]
    inputs: Int[np.ndarray, "levels slots inputs"]  # slots that a slot needs; their number for none
    # of their weights in the flat ones, likewise: N V is one, N V + 1 is zero
    places: Int[np.ndarray, "levels slots inputs"]
    slots: Int[np.ndarray, "N"]  # of the rows
    steps: Int[np.ndarray, ""]  # how many are not padding


class Sweeps(NamedTuple):
    """Those of B, from the first row on, and of its transpose, from the last."""

    forward: Sweep
    backward: Sweep


def sweeps_of(neighbours: Int[np.ndarray, "N V"], order: Int[np.ndarray, "M"]) -> Sweeps:
    """The steps in which rows can be worked off; in NumPy.

    Neighbours come earlier in the order; rows that are not in it have none.
    """
    rows, columns = neighbours.shape
    one, zero = rows * columns, rows * columns + 1
    there = neighbours != NOBODY
    level = np.zeros(rows, int)
    for row in order:
        if there[row, 0]:
            level[row] = level[neighbours[row][there[row]]].max() + 1
    places = np.where(there, np.arange(one).reshape(rows, columns), zero)
    forward = _packed(level, np.arange(rows), neighbours, places, rows, zero)

    # The transpose: row i needs those whose neighbour it is, often many.
    of, column = np.nonzero(there)
    sorting = np.argsort(neighbours[of, column], kind="stable")
    needs, weights = of[sorting], (of * columns + column)[sorting]
    count = np.bincount(neighbours[there], minlength=rows)
    layers = np.zeros(rows, int)  # of partial sums
    left = count
    while np.any(left > _FAN_IN):
        layers += left > _FAN_IN
        left = np.where(left > _FAN_IN, -(-left // _FAN_IN), left)
    level = layers.copy()
    for row in order[::-1]:
        if there[row, 0]:
            mine = neighbours[row][there[row]]
            level[mine] = np.maximum(level[mine], level[row] + 1 + layers[mine])
    starts = np.concatenate([[0], np.cumsum(count)])
    own_inputs = np.full((rows, _FAN_IN), NOBODY)
    own_places = np.full((rows, _FAN_IN), zero)
    few = np.flatnonzero((count > 0) & (count <= _FAN_IN))
    offset = np.arange(_FAN_IN)
    at = np.minimum(starts[few, None] + offset, max(len(needs) - 1, 0))
    inside = offset < count[few, None]
    own_inputs[few] = np.where(inside, needs[at], NOBODY)
    own_places[few] = np.where(inside, weights[at], zero)
    node_levels, node_rows = [level], [np.arange(rows)]
    inputs, places, number = [own_inputs], [own_places], rows
    for row in np.flatnonzero(count > _FAN_IN):
        terms = needs[starts[row] : starts[row + 1]]
        scales = weights[starts[row] : starts[row + 1]]
        for layer in range(layers[row], 0, -1):
            parts = -(-len(terms) // _FAN_IN)
            more = parts * _FAN_IN - len(terms)
            inputs.append(np.pad(terms, (0, more), constant_values=NOBODY).reshape(parts, -1))
            places.append(np.pad(scales, (0, more), constant_values=zero).reshape(parts, -1))
            node_levels.append(np.full(parts, level[row] - layer))
            node_rows.append(np.full(parts, rows))
            terms, scales = number + np.arange(parts), np.full(parts, one)
            number += parts
        own_inputs[row, : len(terms)], own_places[row, : len(terms)] = terms, scales
    each = node_levels, node_rows, inputs, places
    levels, owners, needed, weighed = map(np.concatenate, each)
    return Sweeps(forward, _packed(levels, owners, needed, weighed, rows, zero))


def _packed(
    level: Int[np.ndarray, "entries"],
    row: Int[np.ndarray, "entries"],
    inputs: Int[np.ndarray, "entries inputs"],
    places: Int[np.ndarray, "entries inputs"],
    rows: int,
    zero: int,
) -> Sweep:
    """Nodes of the same level side by side, in steps of `_WIDTH`."""
    more = -inputs.shape[1] % _UNROLLED
    inputs = np.pad(inputs, ((0, 0), (0, more)), constant_values=NOBODY)
    places = np.pad(places, ((0, 0), (0, more)), constant_values=zero)
    sorting = np.argsort(level, kind="stable")
    counts = np.bincount(level)
    parts = -(-counts // _WIDTH)
    first = np.concatenate([[0], np.cumsum(parts)])
    within = np.arange(len(level)) - np.repeat(np.cumsum(counts) - counts, counts)
    slot = np.empty(len(level), int)
    slot[sorting] = first[level[sorting]] * _WIDTH + within
    steps = int(first[-1])
    unit = max(1, 2 ** int(np.ceil(np.log2(max(steps, 1)))) // _GRANULARITY)
    total = -(-steps // unit) * unit * _WIDTH

    def packed(values: np.ndarray, nothing: int) -> np.ndarray:
        found = np.full((total, *values.shape[1:]), nothing, np.int32)
        found[slot] = values
        return found.reshape(-1, _WIDTH, *values.shape[1:])

    needed = packed(np.where(inputs == NOBODY, total, slot[inputs]), total)
    own = packed(row, rows), needed, packed(places, zero), slot[:rows].astype(np.int32)
    return Sweep(*own, np.asarray(steps, np.int32))


@stored
class Swept(NamedTuple):
    """A sweep with its weights, shape (levels, slots, inputs)."""

    sweep: Sweep
    weights: Float[Array, "levels slots inputs"]

    @classmethod
    def of(cls, sweep: Sweep, weights: Float[Array, "N V"]) -> "Swept":
        flat = jnp.concatenate([weights.ravel(), jnp.array([1.0, 0.0], weights.dtype)])
        return cls(sweep, flat[jnp.asarray(sweep.places)])

    def solve(self, right: Vectors) -> Vectors:
        """B^-1 right, or that of the transpose."""
        return self._run(right, solved=True)

    def times(self, right: Vectors) -> Vectors:
        """B right, or that of the transpose."""
        return self._run(right, solved=False)

    def _run(self, right: Array, *, solved: bool) -> Array:
        _, width, terms = self.weights.shape
        columns = right.shape[1]
        rows, inputs = (jnp.asarray(a) for a in (self.sweep.rows, self.sweep.inputs))
        padded = jnp.concatenate([right, jnp.zeros((1, columns), right.dtype)])
        own = padded[rows.reshape(-1)]
        nothing = jnp.zeros((1, columns), right.dtype)
        # Sums see what stands in their slots: solutions, or the right-hand side itself.
        seen = jnp.concatenate([jnp.zeros_like(own) if solved else own, nothing])

        def step(t: Any, state: tuple[Array, Array]) -> tuple[Array, Array]:
            seen, made = state
            places, weights = inputs[t], self.weights[t]

            def add(part: Any, total: Array) -> Array:
                first = part * _UNROLLED
                some = jax.lax.dynamic_slice_in_dim(places, first, _UNROLLED, 1)
                by = jax.lax.dynamic_slice_in_dim(weights, first, _UNROLLED, 1)
                for k in range(_UNROLLED):
                    total = total + by[:, k, None] * seen[some[:, k]]
                return total

            none = jnp.zeros((width, columns), right.dtype)
            total = jax.lax.fori_loop(0, terms // _UNROLLED, add, none)
            mine = jax.lax.dynamic_slice_in_dim(own, t * width, width)
            if solved:
                total = mine + total
                return jax.lax.dynamic_update_slice_in_dim(seen, total, t * width, 0), made
            partial = (rows[t] == len(right))[:, None]
            before = jax.lax.dynamic_slice_in_dim(seen, t * width, width)
            seen = jax.lax.dynamic_update_slice_in_dim(
                seen, jnp.where(partial, total, before), t * width, 0
            )
            return seen, jax.lax.dynamic_update_slice_in_dim(made, mine - total, t * width, 0)

        made = jnp.zeros((0, columns), right.dtype) if solved else jnp.zeros_like(own)
        seen, made = jax.lax.fori_loop(0, self.sweep.steps, step, (seen, made))
        return (seen if solved else made)[jnp.asarray(self.sweep.slots)]
