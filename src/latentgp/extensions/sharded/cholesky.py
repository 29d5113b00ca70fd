"""Cholesky factor of an N x N matrix whose rows are cut over the devices of a mesh.

Every device has N / P rows, in blocks. Blocks are eliminated in turn, the first of every device,
then the second of every device and so on, so that all of them have work until the end: a
block-cyclic layout of rows that stay where they are (Golub & Van Loan 2013, 1.6). What is kept is
the inverse R of the factor, R A R' = I, so that solves are two products, each with one message.

All functions run inside `jax.shard_map` over the axis `ROWS`. Every message has to depend on the
one before it: XLA starts loops that do not as it likes, and devices wait for each other for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentgp.numerics.cholesky import lower_cholesky
from latentgp.numerics.triangular import inverse_of_lower
from latentgp.runtime.mesh import ROWS, summed
from latentgp.typing import Array

_WIDTH = 256
# Loops over blocks have arrays of one size: four loops, each of its own, leave out what is zero.
_STAGES = 4


class Layout(NamedTuple):
    """Division of the devices' rows into blocks.

    Elimination order is that of blocks: block j is the (j // P)th of device j % P.
    """

    rows: int  # of each device
    width: int  # rows of a block; the last one of a device is filled up
    blocks: int  # of each device
    devices: int  # P

    @classmethod
    def of(cls, rows: int, width: int | None = None) -> "Layout":
        """For so many rows of each device, in blocks of at most so many (256 unless given)."""
        blocks = -(-rows // (width or _WIDTH))
        return cls(rows, -(-rows // blocks), blocks, jax.lax.axis_size(ROWS))

    @property
    def filled(self) -> int:
        """Rows of a device with those that fill up its last block."""
        return self.width * self.blocks

    @property
    def stages(self) -> list[tuple[int, int]]:
        """First and last block (exclusive) of a device in each loop."""
        ends = np.unique(np.linspace(0, self.blocks, _STAGES + 1).astype(int)).tolist()
        return list(pairwise(ends))

    def every(self, own: Float[Array, "own *S"]) -> Float[Array, "all *S"]:
        """Filled rows (of the first blocks, or all) of every device in elimination order."""
        blocks = own.reshape(-1, self.width, *own.shape[1:])
        return jax.lax.all_gather(blocks, ROWS, axis=1).reshape(-1, *own.shape[1:])

    def in_turn(self, rows: Float[Array, "N *S"], mode: Any = "constant") -> Float[Array, "all *S"]:
        """All rows, which every device has, filled up and in elimination order."""
        parts = rows.reshape(self.devices, self.rows, *rows.shape[1:])
        more = ((0, 0), (0, self.filled - self.rows), *((0, 0),) * (rows.ndim - 1))
        parts = jnp.pad(parts, more, mode=mode)
        parts = parts.reshape(self.devices, self.blocks, self.width, *rows.shape[1:])
        return jnp.swapaxes(parts, 0, 1).reshape(-1, *rows.shape[1:])

    def in_rows(self, every: Float[Array, "all *S"]) -> Float[Array, "N *S"]:
        """The opposite of `in_turn`."""
        parts = every.reshape(self.blocks, self.devices, self.width, *every.shape[1:])
        parts = jnp.swapaxes(parts, 0, 1).reshape(self.devices, self.filled, *every.shape[1:])
        return parts[:, : self.rows].reshape(-1, *every.shape[1:])

    def own(self, every: Float[Array, "all *S"]) -> Float[Array, "own *S"]:
        """The device's rows of those in elimination order."""
        parts = every.reshape(self.blocks, self.devices, self.width, *every.shape[1:])
        return parts[:, jax.lax.axis_index(ROWS)].reshape(-1, *every.shape[1:])

    def summed_own(self, parts: Float[Array, "S all"]) -> Float[Array, "own S"]:
        """Own rows of a sum over devices, whose columns are in elimination order."""
        blocks = parts.reshape(len(parts), -1, self.devices, self.width)
        own = jax.lax.psum_scatter(blocks, ROWS, scatter_dimension=2)
        return own.reshape(len(parts), -1).T

    def block(self, every: Float[Array, "all *S"], j: Any) -> Float[Array, "B *S"]:
        """Block j of rows in elimination order."""
        return jax.lax.dynamic_slice_in_dim(every, j * self.width, self.width)

    def numbers(self, first: int = 0) -> Int[Array, "own"]:
        """Number of the block that every own row is in, from a block of the device on."""
        blocks = jnp.arange(first, self.blocks) * self.devices + jax.lax.axis_index(ROWS)
        return jnp.repeat(blocks, self.width)

    def to_rows(self, R: Float[Array, "own all"]) -> Float[Array, "rows N"]:
        """Own rows of a matrix, without fillers, columns in the order of the rows."""
        parts = R.reshape(-1, self.blocks, self.devices, self.width)
        parts = jnp.moveaxis(parts, 2, 1).reshape(-1, self.devices, self.filled)
        return parts[: self.rows, :, : self.rows].reshape(self.rows, -1)

    def to_blocks(self, R: Float[Array, "rows N"]) -> Float[Array, "own all"]:
        """The opposite of `to_rows`, zeros at fillers."""
        more = self.filled - self.rows
        parts = R.reshape(self.rows, self.devices, self.rows)
        parts = jnp.pad(parts, ((0, more), (0, 0), (0, more)))
        parts = parts.reshape(-1, self.devices, self.blocks, self.width)
        return jnp.moveaxis(parts, 2, 1).reshape(self.filled, -1)


class ShardedFactor(NamedTuple):
    """Own rows of the inverse R of a lower Cholesky factor, R A R' = I, in elimination order."""

    layout: Layout  # of its rows
    inverse: Float[Array, "own all"]  # own rows of R
    # half the log-determinant of A; NaN where A is not positive definite
    half_log_determinant: Float[Array, ""]

    def solve(
        self, right: Float[Array, "all S"]
    ) -> tuple[Float[Array, "all S"], Float[Array, "S"], Float[Array, ""]]:
        """A^-1 b on every device, |L^-1 b|^2 of each column, and the trace of A^-1; one message."""
        half = self.inverse @ right
        squares = jnp.sum(half**2, axis=0), jnp.sum(self.inverse**2)
        solved, squares = summed((half.T @ self.inverse, squares))
        return solved.T, *squares


def sharded_cholesky(
    columns: Callable[[Any, int], Float[Array, "own B"]], layout: Layout, done: Float[Array, ""]
) -> ShardedFactor:
    """Factor of a positive definite matrix that no device has whole, by bordering.

    With R known for the blocks before block j, and A_j the part of its columns above it,

        L_j' = R A_j,  L_jj L_jj' = A_jj - L_j L_j',  R_j = -L_jj^-1 L_j R,  R_jj = L_jj^-1

    (Golub & Van Loan 2013, 4.2.9, with the inverse of the factor in place of the solve). Every
    device makes its own rows of A_j, which are gathered, and its own part of L_j R, which are
    added: two messages of N x B numbers a block. A device holds N^2 / P numbers and panels of
    N x B.

    Args:
        columns: for the number j of a block and a number of the device's own blocks, the rows of
            these in the block's columns; rows that fill up are those of the identity.
        layout: of the rows.
        done: a number that the last message before this gave, which is multiplied by zero: of two
            loops without an order each device may wait in another one.

    Example:
        >>> from jax.sharding import Mesh, PartitionSpec
        >>> def half_log_determinant(scale):
        ...     layout = Layout.of(2, width=1)
        ...     columns = lambda j, blocks: scale * (layout.numbers()[:blocks, None] == j)
        ...     return sharded_cholesky(columns, layout, scale).half_log_determinant
        >>> one = Mesh(jax.devices()[:1], (ROWS,))
        >>> spec = PartitionSpec()
        >>> run = jax.shard_map(
        ...     half_log_determinant, mesh=one, in_specs=spec, out_specs=spec, check_vma=False
        ... )
        >>> float(run(jnp.exp(jnp.ones(())))).__round__(4)
        1.0
    """
    width, devices = layout.width, layout.devices
    me = jax.lax.axis_index(ROWS)
    R = jnp.zeros((0, 0), done.dtype)
    half_log_determinant = 0 * done

    for first, last in layout.stages:
        rows, size = last * width, last * width * devices
        R = jnp.pad(R, ((0, rows - R.shape[0]), (0, size - R.shape[1])))

        def border(j: Any, state: Any, last: int = last, rows: int = rows) -> Any:
            R, half_log_determinant = state
            A = layout.every(columns(j, last))
            L = R @ A  # rows of R from block j on are still zero
            parts = jnp.concatenate([L.T @ R, L.T @ L], axis=1)
            sums = jax.lax.psum(parts, ROWS)
            lower = lower_cholesky(layout.block(A, j) - sums[:, -width:])
            inverse = inverse_of_lower(lower)
            new = -(inverse @ sums[:, :-width])
            new = jax.lax.dynamic_update_slice_in_dim(new, inverse, j * width, 1)
            start = j // devices * width
            old = jax.lax.dynamic_slice_in_dim(R, start, width)
            new = jnp.where(j % devices == me, new, old)
            R = jax.lax.dynamic_update_slice_in_dim(R, new, start, 0)
            return R, half_log_determinant + jnp.sum(jnp.log(jnp.diagonal(lower)))

        start = R, half_log_determinant
        R, half_log_determinant = jax.lax.fori_loop(first * devices, last * devices, border, start)
    return ShardedFactor(layout, R, half_log_determinant)


def over_inverse(
    step: Callable[[Any, Any, int, Float[Array, "own B"]], Any], carry: Any, factor: ShardedFactor
) -> Any:
    """A loop over the blocks of columns of A^-1 = R'R, of which the part from the diagonal down.

    A step takes the carry, which is to depend on the last message before this, the number j of a
    block, the first of the device's blocks that are given, and own rows of the block's columns from
    that one on. Of rows before block j, of which there are some, the values are right too.
    """
    layout, width = factor.layout, factor.layout.width
    for first, last in layout.stages:
        start = first * layout.devices
        R = factor.inverse[first * width :, start * width :]

        def one(j: Any, carry: Any, R: Array = R, start: int = start, first: int = first) -> Any:
            own = jax.lax.dynamic_slice_in_dim(R, (j - start) * width, width, 1)
            return step(carry, j, first, layout.summed_own(own.T @ R))

        carry = jax.lax.fori_loop(start, last * layout.devices, one, carry)
    return carry
