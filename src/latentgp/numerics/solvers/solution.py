"""What a solver returns: the solution, and how far it is one."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentgp.numerics.solvers.operators import LinearOperator
from latentgp.typing import Array

OUTCOMES = ("converged", "out of steps", "breakdown", "stalled")
CONVERGED, OUT_OF_STEPS, BREAKDOWN, STALLED = range(4)
_MEANINGS = {
    OUT_OF_STEPS: "raise max_steps or give a closer preconditioner",
    BREAKDOWN: "the matrix or the preconditioner is not positive definite, or not finite",
    STALLED: "rounding allows no more: add jitter, or use double precision",
}


class Solution(eqx.Module):
    """Solutions of A x = b for S right-hand sides, with their certificate.

    Args:
        value: x, shape (N, S).
        relative_residual: ||b - A x|| / ||b|| of each, computed from x itself at the end.
        code: of each, a place in `OUTCOMES`.
        steps: products with A, not counting those that check.
        inner_steps: products with a matrix that the preconditioner's own solves made.
    """

    value: Float[Array, "N S"]
    relative_residual: Float[Array, "S"]
    code: Int[Array, "S"]
    steps: Int[Array, ""]
    inner_steps: Int[Array, ""]

    @property
    def outcomes(self) -> tuple[str, ...]:
        """The code of each right-hand side in words."""
        return tuple(OUTCOMES[code] for code in np.asarray(self.code))

    @property
    def complaint(self) -> str | None:
        """One sentence on what did not converge, with its residual; None if all did."""
        code, residual = np.asarray(self.code), np.asarray(self.relative_residual)
        failed = np.flatnonzero(code != CONVERGED)
        if not failed.size:
            return None
        # A residual that is not a number is the worst.
        worst = int(failed[np.argmax(np.nan_to_num(residual[failed], nan=np.inf))])
        return (
            f"{failed.size} of {code.size} solves did not converge: the worst, number {worst}, has "
            f"a relative residual of {residual[worst]:.2g} after {int(self.steps)} steps "
            f"({OUTCOMES[int(code[worst])]}); {_MEANINGS[int(code[worst])]}."
        )


def first_residual(
    operator: LinearOperator, right: Float[Array, "N S"], start: Float[Array, "N S"] | None
) -> tuple[Float[Array, "N S"], Float[Array, "N S"]]:
    """Where an iteration starts, zero unless given, and the residual there."""
    if start is None:
        return jnp.zeros_like(right), right
    return start, right - operator.exactly_times(start)


def norms(columns: Float[Array, "N S"]) -> Float[Array, "S"]:
    """Euclidean norm of every column."""
    return jnp.sqrt(jnp.sum(columns**2, axis=0))


def relative(residual: Float[Array, "N S"], right: Float[Array, "N S"]) -> Float[Array, "S"]:
    """||residual|| / ||right|| of every column; zero for zero of zero."""
    size, whole = norms(residual), norms(right)
    return jnp.where(size == 0, 0.0, size / whole)


def certified(
    operator: LinearOperator,
    right: Float[Array, "N S"],
    value: Float[Array, "N S"],
    *,
    tolerance: Any,
    broken: Any,
    stalled: Any,
    steps: Any,
    inner_steps: Any = 0,
) -> Solution:
    """A solution with its residual computed anew, and its code by that."""
    residual = relative(right - operator.exactly_times(value), right)
    failed = jnp.where(broken, BREAKDOWN, jnp.where(stalled, STALLED, OUT_OF_STEPS))
    code = jnp.where(residual <= tolerance, CONVERGED, failed)
    return Solution(value, residual, code, jnp.asarray(steps), jnp.asarray(inner_steps))
