"""Rows that carry a linear functional of f: values, derivatives, averages, regions.

A row has the columns [x (D), a, v (D), h, r]: a f + v . grad f at x, averaged over an interval of
length h around x along one column; or the weighted sum of f over the points of region r, from 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError
from latentgp.modules import Module
from latentgp.rows.arrays import as_inputs
from latentgp.typing import Array, Inputs, in_double_precision

__all__ = ["Regions", "averages", "derivatives", "values"]


class EncodedColumns(NamedTuple):
    """Columns of rows that carry functionals."""

    x: Float[Array, "*N D"]  # where
    value: Float[Array, "*N"]  # how much of f
    direction: Float[Array, "*N D"]  # of the derivative; zero for none
    width: Float[Array, "*N"]  # of the interval that is averaged over, units of its column
    region: Float[Array, "*N"]  # number of the region from 1; zero for none


def width_of(columns: int) -> int:
    """Number of columns of rows with functionals of a function of so many inputs."""
    return 2 * columns + 3


def decoded(rows: Float[Array, "*N columns"], columns: int) -> EncodedColumns:
    """The parts of rows with functionals of a function of D inputs."""
    x, value, rest = rows[..., :columns], rows[..., columns], rows[..., columns + 1 :]
    return EncodedColumns(x, value, rest[..., :columns], rest[..., columns], rest[..., -1])


def values(X: Any) -> Float[np.ndarray, "N columns"]:
    """Rows for values of f at X, shape (N, D).

    Example:
        >>> values([[0.5], [2.0]]).tolist()
        [[0.5, 1.0, 0.0, 0.0, 0.0], [2.0, 1.0, 0.0, 0.0, 0.0]]
    """
    return _rows(as_inputs(X), value=1.0)


def derivatives(X: Any, column: int = 0) -> Float[np.ndarray, "N columns"]:
    """Rows for partial derivatives of f at X along a column, units of f over those of the column.

    Args:
        X: inputs, shape (N, D).
        column: counted from 0.

    Raises:
        InputError: there is no such column.

    Example:
        >>> derivatives([[0.5]]).tolist()
        [[0.5, 0.0, 1.0, 0.0, 0.0]]
    """
    X = as_inputs(X)
    direction = np.zeros_like(X)
    direction[:, _checked(column, X)] = 1.0
    return _rows(X, direction=direction)


def averages(X: Any, width: Any, column: int = 0) -> Float[np.ndarray, "N columns"]:
    """Rows for averages of f over intervals of a column, centred at X; integrals over the width.

    The kernel is told the column: `Functionals(kernel, average_along=column)`.

    Args:
        X: centres of the intervals, shape (N, D): (start + end) / 2 in the column.
        width: end - start, one number or shape (N,), not negative.
        column: counted from 0.

    Raises:
        InputError: there is no such column, or a width is negative.

    Example:
        >>> averages([[0.5]], width=1.0).tolist()
        [[0.5, 1.0, 0.0, 1.0, 0.0]]
    """
    X = as_inputs(X)
    _checked(column, X)
    width = np.broadcast_to(np.asarray(width, np.float64), len(X))
    if not np.all(width >= 0):
        raise InputError(f"width must be end - start, not negative, got {np.min(width):g}.")
    return _rows(X, value=1.0, width=width)


class Regions(Module):
    """Regions, each a weighted list of points, over which f is summed.

    Args:
        points: of each region, shape (S, D) with S of its own, such as cells of a grid.
        weights: of each region's points, such as shares of its population; one over their number.

    Raises:
        InputError: no region, one without points, or weights that are not as many.

    Example:
        >>> Regions([[[0.0], [1.0]], [[2.0]]]).rows().tolist()
        [[0.5, 1.0, 0.0, 0.0, 1.0], [2.0, 1.0, 0.0, 0.0, 2.0]]
    """

    points: Float[Array, "regions S D"] = eqx.field(converter=in_double_precision)
    weights: Float[Array, "regions S"] = eqx.field(converter=in_double_precision)

    def __init__(self, points: Sequence[Any], weights: Sequence[Any] | None = None):
        each = [as_inputs(region) for region in points]
        if not each or not all(map(len, each)):
            raise InputError("Regions need at least one region, and each at least one point.")
        equal = ([1 / len(region)] * len(region) for region in each)
        shares = [np.asarray(s, np.float64) for s in (equal if weights is None else weights)]
        if [len(share) for share in shares] != [len(region) for region in each]:
            raise InputError("Regions need one weight for each point of each region.")
        most = max(map(len, each))
        # Further points of a region are copies of its first one, of weight zero.
        self.points = np.stack([np.concatenate([r, r[:1].repeat(most - len(r), 0)]) for r in each])
        self.weights = np.stack([np.pad(share, (0, most - len(share))) for share in shares])

    def rows(self, which: Any = None) -> Float[np.ndarray, "N columns"]:
        """Rows for the sums over some regions, counted from 0, or over all in their order."""
        number = len(self.weights)
        which = np.arange(number) if which is None else np.asarray(which)
        if which.size and not (which.min() >= 0 and which.max() < number):
            raise InputError(f"There are the regions 0 to {number - 1}, got {which.tolist()}.")
        rest = np.abs(self.weights) > 0
        middle = np.sum(self.points * rest[..., None], 1) / np.maximum(rest.sum(1), 1)[:, None]
        return _rows(middle[which], value=1.0, region=which + 1.0)


def spread_over_regions(
    regions: Regions, rows: EncodedColumns
) -> tuple[EncodedColumns, Float[Array, "S N"]]:
    """Rows at every point of their regions, leaves (S, N, ...), and the weights of these."""
    place = jnp.maximum(rows.region.astype(int) - 1, 0)
    within = rows.region > 0
    points = jnp.asarray(regions.points)[place].astype(rows.x.dtype)
    weights = jnp.asarray(regions.weights)[place].astype(rows.x.dtype)
    itself = jnp.eye(1, weights.shape[1], dtype=rows.x.dtype)
    x = jnp.where(within[:, None, None], points, rows.x[:, None])
    weights = jnp.where(within[:, None], weights, itself)
    number = weights.shape[1]
    rest = jax.tree.map(lambda a: jnp.broadcast_to(a, (number, *a.shape)), rows)
    return rest._replace(x=jnp.moveaxis(x, 1, 0)), weights.T


def _rows(
    X: Inputs, value: float = 0.0, direction: Any = 0.0, width: Any = 0.0, region: Any = 0.0
) -> Float[np.ndarray, "N columns"]:
    N, D = X.shape
    parts = ((value, 1), (direction, D), (width, 1), (region, 1))
    columns = [
        np.broadcast_to(np.reshape(part, (-1, size)) if np.ndim(part) else part, (N, size))
        for part, size in parts
    ]
    return np.concatenate([X, *columns], axis=1)


def _checked(column: int, X: Float[np.ndarray, "N D"]) -> int:
    if not 0 <= column < X.shape[1]:
        raise InputError(f"There are the columns 0 to {X.shape[1] - 1}, got {column}.")
    return column
