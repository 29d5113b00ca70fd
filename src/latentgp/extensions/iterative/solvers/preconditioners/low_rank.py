"""P = Phi Phi' + D of low rank plus a diagonal or blocks: solves, root, log-determinant."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Float

from latentgp.extensions.iterative.solvers.operators import System
from latentgp.extensions.iterative.solvers.preconditioners.base import Preconditioner
from latentgp.extensions.iterative.solvers.preconditioners.roots import DiagonalRoot, Root
from latentgp.typing import Array, PerRow, Scalar, Vectors


class LowRank(Preconditioner):
    """P = T (I + Q diag(s) Q') T', where T T' = D and Q has orthonormal columns.

    Its root is R = T (I + Q diag(sqrt(1 + s) - 1) Q').
    """

    rest: Root  # the root T of D
    basis: Float[Array, "N R"]  # Q
    excess: Float[Array, "R"]  # s >= 0

    def solve(self, right: Vectors) -> Vectors:
        inner = self._scaled(1 / (1 + self.excess), self.rest.solve(right))
        return self.rest.solve(inner, transposed=True)

    def log_determinant(self) -> Scalar:
        return self.rest.log_determinant() + jnp.sum(jnp.log1p(self.excess))

    def solve_root(self, right: Vectors, *, transposed: bool = False) -> Vectors:
        by = 1 / jnp.sqrt(1 + self.excess)
        if transposed:
            return self.rest.solve(self._scaled(by, right), transposed=True)
        return self._scaled(by, self.rest.solve(right))

    def times_root(self, right: Vectors) -> Vectors:
        return self.rest.times(self._scaled(jnp.sqrt(1 + self.excess), right))

    def _scaled(self, by: Float[Array, "R"], right: Vectors) -> Vectors:
        """(I + Q diag(by - 1) Q') right."""
        return right + self.basis @ ((by - 1)[:, None] * (self.basis.T @ right))


def low_rank(rest: Root, factor: Float[Array, "N R"]) -> LowRank:
    """T T' + Phi Phi' by a factorisation of T^-1 Phi, which keeps its digits where D is small.

    The inverse by Woodbury's formula has a difference of nearly equal numbers there.

    Example:
        >>> P = low_rank(DiagonalRoot(jnp.ones(2)), jnp.array([[1.0], [0.0]]))
        >>> P.solve(jnp.ones((2, 1)))[:, 0].round(6).tolist()
        [0.5, 1.0]
    """
    orthonormal, upper = jnp.linalg.qr(rest.solve(factor))
    left, singular, _ = jnp.linalg.svd(upper, full_matrices=False)
    return LowRank(rest, orthonormal @ left, singular**2)


def with_diagonal(
    system: System, factor: Float[Array, "N R"], left_out: PerRow | None = None
) -> LowRank:
    """S (Phi Phi' + diag(left out)) S + D near a system's S K S + D.

    Args:
        system: A.
        factor: Phi, with Phi Phi' near K.
        left_out: prior variance that Phi Phi' lacks; none unless given.
    """
    variance = system.added
    if left_out is not None:
        variance = variance + system.scale**2 * jnp.maximum(left_out, 0)
    return low_rank(DiagonalRoot(jnp.sqrt(variance)), system.scale[:, None] * factor)
