"""Rows in the order of time, cut into lanes that are filtered side by side."""

from __future__ import annotations

from math import isqrt
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from latentgp.extensions.state_space.kernels import Columns
from latentgp.modules import stored
from latentgp.typing import Array, Inputs, PerRow

_FEWEST_ROWS, _ROWS_A_LANE, _MOST_LANES = 2_048, 256, 4_096


def usual_lanes(rows: int) -> int:
    """Number of lanes for so many rows: one where a loop over all takes no longer.

    As many as a lane has rows, since a step of all lanes takes about as long as joining one; more
    where there are so many rows that it takes longer. A few thousand are the most that pay.
    """
    if rows < _FEWEST_ROWS:
        return 1
    return min(_MOST_LANES, max(rows // _ROWS_A_LANE, isqrt(rows)))


@stored
class RowOrder(NamedTuple):
    """The order of rows by series and time."""

    rows: Int[Array, "N"]  # numbers of the rows in their order
    ranks: Int[Array, "N"]  # the place of each row


def order_of(X: Any, columns: Columns, numpy: Any = jnp) -> RowOrder:
    """The order of rows, in NumPy or in JAX."""
    keys = (X[:, column] for column in columns if column is not None)
    rows = numpy.lexsort(tuple(keys))
    return RowOrder(rows, numpy.argsort(rows))


@stored
class Lanes(NamedTuple):
    """One step of all lanes, or all steps with an axis in front."""

    time: Float[Array, "*T lanes"]  # of the row
    gap: Float[Array, "*T lanes"]  # since the row before
    fresh: Bool[Array, "*T lanes"]  # whether a series begins here
    # which known state it goes on from, -1 for none; None where there are none at all
    start: Int[Array, "*T lanes"] | None = None


@stored
class Series(eqx.Module):
    """Rows of one or several series in lanes: T steps of some lanes, each of consecutive rows."""

    order: RowOrder | None  # of the rows; None where they are in order
    lanes: Lanes  # times and gaps, shape (T, lanes)
    times: PerRow  # of the rows in order
    label: PerRow | None  # number of the row's series; None for one series
    rows: int = eqx.field(static=True)  # N

    @classmethod
    def of(
        cls, X: Inputs, columns: Columns, order: RowOrder | None, lanes: int, known: int = 0
    ) -> "Series":
        """Rows with inputs X in an order, in so many lanes; at the first `known` states are."""
        X, rows = jnp.asarray(X), len(X)
        time = X[:, columns.time]
        label = None if columns.series is None else X[:, columns.series]
        if order is not None:
            time = time[order.rows]
            label = None if label is None else label[order.rows]
        steps = -(-rows // lanes)
        short = steps * lanes - rows

        def cut(values: Array) -> Array:
            return jnp.pad(values, (0, short), mode="edge").reshape(lanes, steps).T

        def before(values: Array) -> Array:
            """Values of the row before, those of the first row for itself."""
            last = jnp.concatenate([values[:1, 0], values[-1, :-1]])
            return jnp.concatenate([last[None], values[:-1]])

        in_lanes = cut(time)
        fresh = jnp.zeros((steps, lanes), bool).at[0, 0].set(True)
        if label is not None:
            labels = cut(label)
            fresh = fresh | (labels != before(labels))
        gap = jnp.where(fresh, 0.0, in_lanes - before(in_lanes))
        start = None
        if known:
            numbers = jnp.arange(rows) if order is None else order.rows
            start = jnp.where(fresh, cut(jnp.where(numbers < known, numbers, -1)), -1)
        return cls(order, Lanes(in_lanes, gap, fresh, start), time, label, rows)

    def to_lanes(self, values: Float[Array, "N *Q"]) -> Float[Array, "T *Q lanes"]:
        """Values of the rows, zero in lanes' ends that are no rows."""
        if self.order is not None:
            values = values[self.order.rows]
        steps, lanes = self.lanes.time.shape
        widths = [(0, steps * lanes - self.rows), *[(0, 0)] * (values.ndim - 1)]
        cut = jnp.pad(values, widths).reshape(lanes, steps, *values.shape[1:])
        return jnp.moveaxis(cut, 0, -1)

    def in_order(self, values: Float[Array, "T *Q lanes"]) -> Float[Array, "N *Q"]:
        """Values of lanes as those of the rows in the order of time."""
        moved = jnp.moveaxis(values, -1, 0)
        return moved.reshape(-1, *moved.shape[2:])[: self.rows]

    def to_rows(self, values: Float[Array, "T *Q lanes"]) -> Float[Array, "N *Q"]:
        """Values of lanes as those of the rows."""
        found = self.in_order(values)
        return found if self.order is None else found[self.order.ranks]

    def place(self, X: Float[Array, "B D"], columns: Columns) -> Int[Array, "B"]:
        """Numbers in the order of time of the last rows at or before new inputs; -1 for none."""
        X = jnp.asarray(X)
        t = X[:, columns.time]
        if self.label is None:
            return jnp.searchsorted(self.times, t, side="right") - 1
        label = X[:, columns.series]
        low = jnp.searchsorted(self.label, label, side="left")
        high = jnp.searchsorted(self.label, label, side="right")

        def halve(_: Any, bounds: Any) -> Any:
            low, high = bounds
            middle = (low + high) // 2
            before = (self.times[jnp.minimum(middle, self.rows - 1)] <= t) & (low < high)
            high = jnp.where(before | (low >= high), high, middle)
            return jnp.where(before, middle + 1, low), high

        first, _ = jax.lax.fori_loop(0, max(self.rows, 2).bit_length() + 1, halve, (low, high))
        return first - 1
