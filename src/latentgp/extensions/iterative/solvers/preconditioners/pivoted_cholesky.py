"""The pivoted Cholesky preconditioner."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.extensions.iterative.solvers.operators import Covariance, System
from latentgp.extensions.iterative.solvers.preconditioners.low_rank import LowRank, with_diagonal
from latentgp.modules import Module
from latentgp.typing import Array

# Of the largest prior variance: below it a pivot is rounding.
_ROUNDING = 1e-12


class PivotedCholesky(Module):
    """L L' in place of K by the largest pivots (Harbrecht, Peters & Schneider 2012).

    Example:
        >>> from latentgp.extensions.iterative.solvers import operators
        >>> K = operators.StoredCovariance(jnp.diag(jnp.array([1.0, 3.0])))
        >>> A = operators.noisy_system(K, 1.0)
        >>> PivotedCholesky(1)(A).solve(jnp.ones((2, 1)))[:, 0].round(6).tolist()
        [1.0, 0.25]
    """

    number: int  # of pivots, M, which are as many evaluations of a column of K

    def __call__(self, system: System) -> LowRank:
        """The preconditioner of a system."""
        number = min(self.number, system.size)
        return with_diagonal(system, pivoted_cholesky(system.covariance, number))


def pivoted_cholesky(covariance: Covariance, number: int) -> Float[Array, "N M"]:
    """L of the M largest pivots, the largest of what is left over first.

    Columns are zero once nothing but rounding is left over.
    """
    variance = covariance.diagonal()
    tiny = max(_ROUNDING, float(jnp.finfo(variance.dtype).eps)) * jnp.max(variance)

    def pivot(step: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        factor, left_over = state
        row = jnp.argmax(left_over)
        largest = left_over[row]
        column = covariance.columns(row[None])[:, 0] - factor @ factor[row]
        column = jnp.where(largest > tiny, column / jnp.sqrt(jnp.maximum(largest, tiny)), 0.0)
        left_over = (left_over - column**2).at[row].set(0.0)
        return factor.at[:, step].set(column), jnp.maximum(left_over, 0)

    empty = jnp.zeros((covariance.size, number), variance.dtype)
    return jax.lax.fori_loop(0, number, pivot, (empty, variance))[0]
