"""Solves by products in single precision, corrected by residuals in double precision."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Bool, PyTree

from latentgp.extensions.iterative.solvers.conjugate_gradients import conjugate_gradients
from latentgp.extensions.iterative.solvers.operators import LinearOperator
from latentgp.extensions.iterative.solvers.preconditioners.base import Preconditioner
from latentgp.extensions.iterative.solvers.solution import (
    BREAKDOWN,
    Solution,
    certified,
    compiled,
    first_residual,
    norms,
    relative,
)
from latentgp.typing import Array, Vectors

# What single precision can be asked for at once, and the least that a correction must give.
_INNER_TOLERANCE, _PROGRESS = 1e-3, 0.5


@compiled("tolerance", "max_steps")
def refined_conjugate_gradients(
    operator: LinearOperator,
    right: Vectors,
    *,
    preconditioner: Preconditioner | None = None,
    start: Vectors | None = None,
    tolerance: Any = 1e-8,
    max_steps: Any = 1000,
) -> Solution:
    """Solutions of A x = b by iterative refinement (Golub & Van Loan 2013, 3.5.3).

    Corrections are solved for in single precision, the residual that each of them leaves is made in
    double precision. Where A is too ill-conditioned for that, no correction helps, and the code is
    "stalled". Arguments are those of `conjugate_gradients`. At most `max_steps` products are in
    single precision, `inner_steps` of the solution, whose `steps` are those in double precision.

    Raises:
        InputError: a preconditioner that iterates inside.

    Example:
        >>> import latentgp.extensions.iterative.solvers.operators as operators
        >>> with jax.enable_x64(True):
        ...     A = operators.StoredCovariance(jnp.diag(jnp.array([1.0, 4.0])))
        ...     found = refined_conjugate_gradients(A, jnp.ones((2, 1)), tolerance=1e-14)
        >>> found.value.round(12).tolist(), found.outcomes
        ([[1.0], [0.25]], ('converged',))
    """
    single, P = in_single_precision(operator), in_single_precision(preconditioner)
    value, residual = first_residual(operator, right, start)
    size = relative(residual, right)
    no = jnp.zeros(size.shape, bool)

    def unfinished(size: Any, stalled: Any, broken: Any) -> Bool[Array, "S"]:
        return ~(size <= tolerance) & ~stalled & ~broken

    def correct(now: Any) -> Any:
        value, residual, size, stalled, broken, steps, inner_steps = now
        # In units of its own, or single precision would underflow.
        unit = norms(residual)
        unit = jnp.where(unit > 0, unit, 1.0)
        wanted = jnp.where(unfinished(size, stalled, broken), residual / unit, 0.0)
        found = conjugate_gradients(
            single,
            wanted.astype(jnp.float32),
            preconditioner=P,
            tolerance=_INNER_TOLERANCE,
            max_steps=max_steps - inner_steps,
        )
        better = value + unit * found.value
        residual = right - operator.times(better)
        after = relative(residual, right)
        broken = broken | (found.code == BREAKDOWN)
        stalled = stalled | ~(after <= jnp.maximum(_PROGRESS * size, tolerance))
        return better, residual, after, stalled, broken, steps + 1, inner_steps + found.steps

    def going(now: Any) -> Bool[Array, ""]:
        _, _, size, stalled, broken, _, inner_steps = now
        return jnp.any(unfinished(size, stalled, broken)) & (inner_steps < max_steps)

    zero = jnp.asarray(0)
    end = jax.lax.while_loop(going, correct, (value, residual, size, no, no, zero, zero))
    value, _, _, stalled, broken, steps, inner_steps = end
    stuck = stalled & (inner_steps < max_steps)
    return certified(operator, right, value, tolerance, broken, stuck, steps, inner_steps)


def in_single_precision(tree: PyTree) -> PyTree:
    """Its double-precision arrays rounded, all else as it is.

    Example:
        >>> in_single_precision(1.5), in_single_precision(None)
        (1.5, None)
    """

    def rounded(leaf: Any) -> Any:
        doubled = eqx.is_array_like(leaf) and getattr(leaf, "dtype", None) == jnp.float64
        return jnp.asarray(leaf, jnp.float32) if doubled else leaf

    return jax.tree.map(rounded, tree)
