"""Result of a solver, the solution and its certificate, and what all solvers share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentgp.errors import warn_user
from latentgp.extensions.iterative.solvers.operators import LinearOperator
from latentgp.typing import Array, Vectors

Function = TypeVar("Function", bound=Callable[..., Any])

OUTCOMES = ("converged", "out of steps", "breakdown", "stalled")
CONVERGED, OUT_OF_STEPS, BREAKDOWN, STALLED = range(4)
_MEANINGS = {
    OUT_OF_STEPS: "raise max_steps or give a closer preconditioner",
    BREAKDOWN: "the matrix or the preconditioner is not positive definite, or not finite",
    STALLED: "rounding allows no more: add jitter, or use double precision",
}


class Solution(eqx.Module):
    """Solutions of A x = b for S right-hand sides, with their certificate."""

    value: Vectors  # x
    # ||b - A x|| / ||b|| of each, computed from x itself at the end
    relative_residual: Float[Array, "S"]
    code: Int[Array, "S"]  # of each, a place in `OUTCOMES`
    steps: Int[Array, ""]  # products with A, not counting those that check
    inner_steps: Int[Array, ""]  # products with a matrix that the preconditioner's own solves made

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

    def tell(self, what: str) -> None:
        """Warn of what did not converge, from inside a program whose result has no place for it.

        A sentence begins with what rests on the solution.
        """
        code, residual = self.code.astype(jnp.int32), self.relative_residual.astype(jnp.float32)
        failed = code != CONVERGED
        # A residual that is not a number is the worst.
        worst = jnp.argmax(jnp.where(failed, jnp.nan_to_num(residual, nan=jnp.inf), -1.0))
        jax.debug.callback(functools.partial(_warn, what), residual[worst], code[worst])


def _warn(what: str, residual: Any, code: Any) -> None:
    if code != CONVERGED:
        warn_user(
            f"{what} rest on a linear solve that did not converge: a relative residual of "
            f"{float(residual):.1g} is left ({OUTCOMES[int(code)]}); {_MEANINGS[int(code)]}."
        )


def first_residual(
    operator: LinearOperator, right: Vectors, start: Vectors | None
) -> tuple[Vectors, Vectors]:
    """Where an iteration starts, zero unless given, and the residual there."""
    if start is None:
        return jnp.zeros_like(right), right
    return start, right - operator.exactly_times(start)


def norms(columns: Vectors) -> Float[Array, "S"]:
    """Euclidean norm of every column, whose squares may be too small or large to be numbers."""
    largest = jnp.max(jnp.abs(columns), axis=0)
    unit = jnp.where(largest > 0, largest, 1.0)
    return unit * jnp.sqrt(jnp.sum((columns / unit) ** 2, axis=0))


def compiled(*numbers: str) -> Callable[[Function], Function]:
    """`equinox.filter_jit` that traces plain numbers of these names, not compiling for each value.

    Example:
        >>> @compiled("by")
        ... def times(x, *, by=1.0):
        ...     return x * by
        >>> float(times(np.ones(()), by=3.0))
        3.0
    """

    def decorate(function: Function) -> Function:
        inner = eqx.filter_jit(function)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            plain = {n: np.asarray(kwargs[n]) for n in numbers if is_plain(kwargs.get(n))}
            return inner(*args, **{**kwargs, **plain})

        return call  # pyright: ignore

    return decorate


def is_plain(value: Any) -> bool:
    """Whether a value is a number of Python's own."""
    return isinstance(value, int | float)


def in_units_of_columns(solver: Function) -> Function:
    """A solver whose right-hand sides have unit length: squares of what is tiny are zero."""

    @functools.wraps(solver)
    def solve(operator: Any, right: Any, *, start: Any = None, **settings: Any) -> Solution:
        unit = norms(jnp.asarray(right))
        unit = jnp.where(unit > 0, unit, 1.0)
        begun = {} if start is None else {"start": start / unit}
        found = solver(operator, right / unit, **begun, **settings)
        return eqx.tree_at(lambda s: s.value, found, found.value * unit)

    return solve  # pyright: ignore


def relative(residual: Vectors, right: Vectors) -> Float[Array, "S"]:
    """||residual|| / ||right|| of every column; zero for zero of zero."""
    size, whole = norms(residual), norms(right)
    return jnp.where(size == 0, 0.0, size / whole)


def certified(
    operator: LinearOperator,
    right: Vectors,
    value: Vectors,
    tolerance: Any,
    broken: Any,
    stalled: Any,
    steps: Any,
    inner_steps: Any = 0,
) -> Solution:
    """A solution with its residual computed anew, and its code by that."""
    residual = relative(right - operator.exactly_times(value), right)
    return coded(value, residual, tolerance, broken, stalled, steps, inner_steps)


def coded(
    value: Vectors,
    residual: Float[Array, "S"],
    tolerance: Any,
    broken: Any,
    stalled: Any,
    steps: Any,
    inner_steps: Any = 0,
) -> Solution:
    """A solution with the relative residual that it has, and its code by that."""
    failed = jnp.where(broken, BREAKDOWN, jnp.where(stalled, STALLED, OUT_OF_STEPS))
    code = jnp.where(residual <= tolerance, CONVERGED, failed)
    return Solution(value, residual, code, jnp.asarray(steps), jnp.asarray(inner_steps))
