"""Sums over rows, chunk by chunk, without an array of N rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
from jaxtyping import Bool, Float, PyTree

from latentgp.runtime.mesh import ROWS, number_of_shards, summed
from latentgp.typing import Array

Carry = TypeVar("Carry")
Step = Callable[[Carry, Any, Bool[Array, "B"]], tuple[Carry, Any]]

# A block of chunk x M numbers should stay in a core's own cache, and still be a large product.
_BLOCK_SIZE = 1 << 17
_MINIMAL_CHUNK, _MAXIMAL_CHUNK = 512, 8192
# Where there is no product, but one element-wise operation after another.
_CACHED = 1 << 18


def chunk_size(columns: int, *, in_cache: bool = False) -> int:
    """Number of rows in a chunk when each row needs `columns` numbers."""
    if in_cache:
        return max(1, _CACHED // max(columns, 1))
    return max(_MINIMAL_CHUNK, min(_MAXIMAL_CHUNK, _BLOCK_SIZE // max(columns, 1)))


def scan_rows(
    step: Step[Carry], carry: Carry, rows: PyTree, *, columns: int, in_cache: bool = False
) -> tuple[Carry, Any]:
    """`lax.scan` over chunks of rows, on each device over its own.

    A step takes the carry, a chunk of the rows and which of its rows are real, and gives the new
    carry, of sums to which adding zero changes nothing, and outputs one a row. Rows that fill up
    the last chunk repeat the last real one and must not count. `columns` are the numbers needed a
    row; `in_cache` they are no kernel block for a matrix product: smaller chunks pay.
    """
    if number_of_shards() == 1:
        return _scan_own(step, carry, rows, columns, in_cache)

    def own(rows: PyTree) -> tuple[Carry, Any]:
        nothing = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), carry)
        sums, outputs = _scan_own(step, nothing, rows, columns, in_cache)
        return summed(sums), outputs

    cut = PartitionSpec(ROWS)
    spread = jax.shard_map(own, in_specs=cut, out_specs=(PartitionSpec(), cut), check_vma=False)
    sums, outputs = spread(rows)
    return jax.tree.map(jnp.add, carry, sums), outputs


def _scan_own(
    step: Step[Carry], carry: Carry, rows: PyTree, columns: int, in_cache: bool
) -> tuple[Carry, Any]:
    """The same over the rows of one device."""
    size = jax.tree.leaves(rows)[0].shape[0]
    chunks = -(-size // chunk_size(columns, in_cache=in_cache))
    if chunks <= 1:
        return step(carry, rows, jnp.ones(size, bool))
    width = -(-size // chunks)

    def split(array: Array) -> Array:
        widths = ((0, chunks * width - size), *((0, 0),) * (array.ndim - 1))
        return jnp.pad(array, widths, mode="edge").reshape(chunks, width, *array.shape[1:])

    real = (jnp.arange(chunks * width) < size).reshape(chunks, width)
    parts = jax.tree.map(split, rows), real
    carry, outputs = jax.lax.scan(lambda c, part: step(c, *part), carry, parts)
    return carry, jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[:size], outputs)


def in_chunks(
    function: Callable[[Float[Array, "B D"]], PyTree], X: Float[Array, "N D"], columns: int
) -> PyTree:
    """Outputs whose last axis is of the rows, of a chunk of these at a time.

    The last chunk reaches back into the one before it: a row may be read twice.
    """
    size = len(X)
    width = min(size, chunk_size(columns))
    if width == size:
        return function(X)

    def write(chunk: Any, whole: PyTree) -> PyTree:
        start = jnp.minimum(chunk * width, size - width)
        made = function(jax.lax.dynamic_slice_in_dim(X, start, width))
        update = jax.lax.dynamic_update_slice_in_dim
        return jax.tree.map(lambda a, b: update(a, b, start, -1), whole, made)

    shapes = jax.eval_shape(function, X[:width])
    start = jax.tree.map(lambda a: jnp.zeros((*a.shape[:-1], size), a.dtype), shapes)
    return jax.lax.fori_loop(0, -(-size // width), write, start)
