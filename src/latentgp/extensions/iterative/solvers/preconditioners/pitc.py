"""The PITC preconditioner."""

from __future__ import annotations

from jaxtyping import Int

from latentgp.extensions.iterative.solvers.operators import System
from latentgp.extensions.iterative.solvers.preconditioners.low_rank import LowRank, low_rank
from latentgp.extensions.iterative.solvers.preconditioners.nystrom import nystrom_factor
from latentgp.extensions.iterative.solvers.preconditioners.roots import block_root
from latentgp.modules import Module
from latentgp.typing import Array


class Pitc(Module):
    """Q + blocks of (K - Q) in place of K (Quiñonero-Candela & Rasmussen 2005).

    Args:
        rows: numbers of the rows U, shape (M,).
        blocks: rows of each block, shape (blocks, B), as `blocks_of_rows` gives them.
    """

    rows: Int[Array, "M"]
    blocks: Int[Array, "blocks B"]

    def __call__(self, system: System) -> LowRank:
        """The preconditioner of a system."""
        factor = nystrom_factor(system.covariance, self.rows)
        rest = block_root(system, self.blocks, factor)
        return low_rank(rest, system.scale[:, None] * factor)
