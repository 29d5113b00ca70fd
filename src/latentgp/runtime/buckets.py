"""Functions of any number of rows by programs of few sizes."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from latentgp.runtime.mesh import number_of_shards, place, whole
from latentgp.runtime.x64 import fresh

_BUCKETS = (64, 512, 4096)


_PIECE_SIZE = 1 << 23


def apply_in_buckets(
    function: Callable[..., Any], *arguments: Any, rows: PyTree, columns: int = 1
) -> Any:
    """A compiled function of rows, for any number of rows, compiled for few; on all devices.

    Rows are cut into pieces of one of three sizes, the last one padded to it, so a new number of
    rows compiles nothing and memory does not grow with it. At least half of what is computed is
    of real rows, unless there are fewer than 32.

    Args:
        function: `function(*arguments, rows)`, jitted, gives outputs one a row.
        arguments: what does not depend on the row.
        rows: NumPy arrays that share their first axis.
        columns: numbers needed a row; pieces are smaller where it is large.

    Returns:
        NumPy arrays, one output a row.
    """
    arguments = fresh(arguments)
    size, shards = jax.tree.leaves(rows)[0].shape[0], number_of_shards()
    own = -(-size // shards)
    fitting = (b for b in reversed(_BUCKETS) if b <= 2 * own and b * columns <= _PIECE_SIZE)
    width = next(fitting, _BUCKETS[0]) * shards
    pieces = []
    for start in range(0, max(size, 1), width):
        piece = jax.tree.map(lambda a, start=start: a[start : start + width], rows)
        real = jax.tree.leaves(piece)[0].shape[0]
        piece = jax.tree.map(lambda a: _fill(a, width), piece)
        outputs = whole(function(*arguments, place(piece) if shards > 1 else piece))
        pieces.append(jax.tree.map(lambda a, real=real: a[:real], outputs))
    return jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)


def _fill(array: np.ndarray, width: int) -> np.ndarray:
    """The array with its last row repeated (zeros if it has none) up to a number of rows."""
    padding = ((0, width - len(array)), *((0, 0),) * (array.ndim - 1))
    return np.pad(array, padding, mode="edge" if len(array) else "constant")
