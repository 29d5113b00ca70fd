"""Functions of any number of rows by programs of few sizes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from latentgp.runtime.mesh import gather, number_of_shards, shard_rows
from latentgp.runtime.programs import Program
from latentgp.runtime.switch import predicted
from latentgp.runtime.x64 import fresh

_BUCKETS = (64, 512, 4096)
_PIECE_SIZE = 1 << 23


class Buckets:
    """Rows cut into pieces of one of three sizes, the last one padded to it, on the device.

    A new number of rows compiles nothing, and memory does not grow with it. At least half of what
    is computed is of real rows, unless there are fewer than 32. What a function gives stays on the
    device for the next one, until `to_numpy`.
    """

    def __init__(self, pieces: list[PyTree], size: int):
        self.pieces, self.size = pieces, size
        self.width = jax.tree.leaves(pieces[0])[0].shape[0]  # rows a piece

    @classmethod
    def of(cls, rows: PyTree, columns: int = 1) -> "Buckets":
        """Buckets of NumPy arrays that share their first axis, smaller where columns are many."""
        size, shards = jax.tree.leaves(rows)[0].shape[0], number_of_shards()
        own = -(-size // shards)
        fitting = (b for b in reversed(_BUCKETS) if b <= 2 * own and b * columns <= _PIECE_SIZE)
        width = next(fitting, _BUCKETS[0]) * shards
        return cls([_piece(rows, start, width) for start in range(0, max(size, 1), width)], size)

    def beside(self, rows: PyTree) -> "Buckets":
        """These with further arrays of the same rows, as pairs."""
        width = self.width
        more = [(own, _piece(rows, i * width, width)) for i, own in enumerate(self.pieces)]
        return Buckets(more, self.size)

    def map(self, function: Callable[..., Any], *arguments: Any, columns: int = 1) -> "Buckets":
        """`function(*arguments, rows)`, one output a row, of every piece; compiled once a size.

        The function is the same object from call to call; a piece is worked off in parts where
        columns, numbers needed a row, are many. At most two pieces are under way, so that an
        interrupt, or an abort of the run (RunAborted), soon ends the work, but no process alone.
        """
        part = width = self.width
        while part % 2 == 0 and part * columns > _PIECE_SIZE and part > _BUCKETS[0]:
            part //= 2
        arguments, found = fresh(arguments), []
        for piece in self.pieces:
            if len(found) > 1:
                jax.block_until_ready(found[-2])
            if found and jax.process_count() == 1:
                predicted(len(found) * width, self.size)
            found.append(_mapped(function, part, arguments, piece))
        return Buckets(found, self.size)

    def to_numpy(self) -> Any:
        """The real rows of all pieces."""
        joined = jax.tree.map(lambda *parts: np.concatenate(parts), *map(gather, self.pieces))
        return jax.tree.map(lambda a: a[: self.size], joined)


@partial(Program, static_argnums=(0, 1))
def _mapped(function: Callable[..., Any], part: int, arguments: Any, rows: PyTree) -> Any:
    size = jax.tree.leaves(rows)[0].shape[0]
    if part == size:
        return function(*arguments, rows)
    parts = jax.tree.map(lambda a: a.reshape(size // part, part, *a.shape[1:]), rows)
    found = jax.lax.map(lambda own: function(*arguments, own), parts)
    return jax.tree.map(lambda a: a.reshape(size, *a.shape[2:]), found)


def apply_in_buckets(function: Callable, *arguments: Any, rows: PyTree, columns: int = 1) -> Any:
    """A function of rows, for any number of rows, compiled for few; on all devices.

    Arguments are those of `Buckets.of` and `Buckets.map`; gives NumPy arrays, one output a row.
    """
    return Buckets.of(rows, columns).map(function, *arguments).to_numpy()


def _piece(rows: PyTree, start: int, width: int) -> PyTree:
    """So many rows from one on; the last one is repeated (zeros if there is none) to fill it up."""
    own = jax.tree.map(lambda array: array[start : start + width], rows)
    lacking = jax.tree.map(lambda a: ((0, width - len(a)), *((0, 0),) * (a.ndim - 1)), own)
    piece = jax.tree.map(
        lambda a, pads: np.pad(a, pads, mode="edge" if len(a) else "constant"), own, lacking
    )
    return shard_rows(piece) if number_of_shards() > 1 else piece
