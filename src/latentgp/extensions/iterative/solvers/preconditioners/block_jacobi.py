"""The block Jacobi preconditioner."""

from __future__ import annotations

from jaxtyping import Int

from latentgp.extensions.iterative.solvers.operators import System
from latentgp.extensions.iterative.solvers.preconditioners.base import Preconditioner
from latentgp.extensions.iterative.solvers.preconditioners.roots import BlockRoot, block_root
from latentgp.modules import Module, forwarded
from latentgp.typing import Array, Vectors


class BlockJacobi(Module):
    """The blocks of A on its diagonal, and zero elsewhere: processes that know their block only."""

    # rows of each block, shape (blocks, B), as `blocks_of_rows` gives them
    blocks: Int[Array, "blocks B"]

    def __call__(self, system: System) -> BlockDiagonal:
        """The preconditioner of a system."""
        return BlockDiagonal(block_root(system, self.blocks))


class BlockDiagonal(Preconditioner):
    """P = T T' with a block-diagonal root."""

    blocks: BlockRoot

    def solve(self, right: Vectors) -> Vectors:
        return self.blocks.solve(self.blocks.solve(right), transposed=True)

    log_determinant = forwarded("blocks.log_determinant")

    def solve_root(self, right: Vectors, *, transposed: bool = False) -> Vectors:
        return self.blocks.solve(right, transposed=transposed)

    def times_root(self, right: Vectors) -> Vectors:
        return self.blocks.times(right)
