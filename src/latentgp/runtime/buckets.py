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

    @classmethod
    def of(cls, rows: PyTree, columns: int = 1) -> "Buckets":
        """Buckets of NumPy arrays that share their first axis.

        Args:
            rows: the arrays.
            columns: numbers needed a row; pieces are smaller where it is large.
        """
        size, shards = jax.tree.leaves(rows)[0].shape[0], number_of_shards()
        own = -(-size // shards)
        fitting = (b for b in reversed(_BUCKETS) if b <= 2 * own and b * columns <= _PIECE_SIZE)
        width = next(fitting, _BUCKETS[0]) * shards
        pieces = []
        for start in range(0, max(size, 1), width):
            piece = jax.tree.map(lambda a, start=start: a[start : start + width], rows)
            piece = jax.tree.map(lambda a: _fill(a, width), piece)
            pieces.append(shard_rows(piece) if shards > 1 else piece)
        return cls(pieces, size)

    def beside(self, rows: PyTree) -> "Buckets":
        """These with further arrays of the same rows, as pairs."""
        width = jax.tree.leaves(self.pieces[0])[0].shape[0]
        more = []
        for index, piece in enumerate(self.pieces):
            own = jax.tree.map(lambda a, i=index: a[i * width : (i + 1) * width], rows)
            own = jax.tree.map(lambda a: _fill(a, width), own)
            more.append((piece, shard_rows(own) if number_of_shards() > 1 else own))
        return Buckets(more, self.size)

    def map(self, function: Callable[..., Any], *arguments: Any, columns: int = 1) -> "Buckets":
        """`function(*arguments, rows)` of every piece; compiled once for each size.

        At most two pieces are under way, so that an interrupt, or an abort of the run, soon ends
        the work. Of several processes none ends it alone.

        Args:
            function: gives outputs one a row; the same object from call to call.
            arguments: what does not depend on the row.
            columns: numbers needed a row; a piece is worked off in parts where they are many.

        Raises:
            RunAborted: the run is aborted between two pieces.
        """
        width = jax.tree.leaves(self.pieces[0])[0].shape[0]
        part = width
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


def apply_in_buckets(
    function: Callable[..., Any], *arguments: Any, rows: PyTree, columns: int = 1
) -> Any:
    """A function of rows, for any number of rows, compiled for few; on all devices.

    Args:
        function: `function(*arguments, rows)` gives outputs one a row.
        arguments: what does not depend on the row.
        rows: NumPy arrays that share their first axis.
        columns: numbers needed a row; pieces are smaller where it is large.

    Returns:
        NumPy arrays, one output a row.
    """
    return Buckets.of(rows, columns).map(function, *arguments).to_numpy()


def _fill(array: np.ndarray, width: int) -> np.ndarray:
    """The array with its last row repeated (zeros if it has none) up to a number of rows."""
    padding = ((0, width - len(array)), *((0, 0),) * (array.ndim - 1))
    return np.pad(array, padding, mode="edge" if len(array) else "constant")
