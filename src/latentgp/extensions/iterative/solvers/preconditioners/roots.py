"""Diagonal and block-diagonal matrices D = T T' by their roots T, and block Jacobi."""

from __future__ import annotations

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from latentgp.extensions.iterative.solvers.operators import System
from latentgp.extensions.iterative.solvers.preconditioners.base import Preconditioner
from latentgp.modules import Module, forwarded
from latentgp.numerics.cholesky import lower_cholesky
from latentgp.numerics.triangular import solve_lower
from latentgp.typing import Array, PerRow, Scalar, Vectors


class Root(eqx.Module):
    """A square root T of a positive definite matrix D = T T'."""

    @abstractmethod
    def times(self, right: Vectors) -> Vectors:
        """T right."""

    @abstractmethod
    def solve(self, right: Vectors, *, transposed: bool = False) -> Vectors:
        """T^-1 right, or T^-T right."""

    @abstractmethod
    def log_determinant(self) -> Scalar:
        """The logarithm of |D|."""


class DiagonalRoot(Root):
    """Standard deviations: the root of a diagonal."""

    std: PerRow

    def times(self, right: Vectors) -> Vectors:
        return self.std[:, None] * right

    def solve(self, right: Vectors, *, transposed: bool = False) -> Vectors:
        return right / self.std[:, None]

    def log_determinant(self) -> Scalar:
        return 2 * jnp.sum(jnp.log(self.std))


class BlockRoot(Root):
    """Cholesky factors of the blocks of rows that belong together."""

    rows: Int[Array, "blocks B"]  # of each block its rows; N, which is no row, fills up short ones
    # their factors, (blocks, B, B), the identity where rows are filled up
    lower: Float[Array, "blocks B B"]

    def times(self, right: Vectors) -> Vectors:
        return self._blockwise(lambda L, b: L @ b, right)

    def solve(self, right: Vectors, *, transposed: bool = False) -> Vectors:
        return self._blockwise(lambda L, b: solve_lower(L, b, transposed=transposed), right)

    def log_determinant(self) -> Scalar:
        return 2 * jnp.sum(jnp.log(jnp.diagonal(self.lower, axis1=1, axis2=2)))

    def _blockwise(self, function, right: Vectors) -> Vectors:
        parts = right.at[self.rows].get(mode="fill", fill_value=0)
        made = jax.lax.map(lambda pair: function(*pair), (self.lower, parts))
        return jnp.zeros_like(right).at[self.rows].set(made, mode="drop")


def block_root(
    system: System, rows: Int[Array, "blocks B"], factor: Float[Array, "N R"] | None = None
) -> BlockRoot:
    """The root of A's blocks, less those of S Phi Phi' S where a factor Phi is given.

    A is S K S + D, and N fills up short blocks of rows.
    """

    def of_block(own: Int[Array, "B"]) -> Float[Array, "B B"]:
        real = own < system.size
        own = jnp.minimum(own, system.size - 1)
        K = system.covariance.block(own)
        if factor is not None:
            K = K - factor[own] @ factor[own].T
        scale = jnp.where(real, system.scale[own], 0)
        added = jnp.where(real, system.added[own], 1)
        return lower_cholesky(scale[:, None] * K * scale + jnp.diag(added))

    return BlockRoot(rows, jax.lax.map(of_block, rows))


class BlockJacobi(Module):
    """The blocks of A on its diagonal, and zero elsewhere: processes that know their block only."""

    # rows of each block, shape (blocks, B), as `blocks_of_rows` gives them
    blocks: Int[Array, "blocks B"]

    def __call__(self, system: System) -> BlockDiagonal:
        return BlockDiagonal(block_root(system, self.blocks))


class BlockDiagonal(Preconditioner):
    """P = T T' with a block-diagonal root."""

    blocks: BlockRoot

    log_determinant = forwarded("blocks.log_determinant")
    solve_root = forwarded("blocks.solve")
    times_root = forwarded("blocks.times")
