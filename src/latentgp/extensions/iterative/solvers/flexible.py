"""Conjugate gradients with a preconditioner that changes from step to step."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from latentgp.extensions.iterative.solvers.operators import LinearOperator
from latentgp.extensions.iterative.solvers.preconditioners.base import Preconditioner
from latentgp.extensions.iterative.solvers.solution import (
    Solution,
    certified,
    compiled,
    first_residual,
    in_units_of_columns,
    norms,
)
from latentgp.typing import Array, Vectors

_PROGRESS = 0.5


class _State(NamedTuple):
    value: Vectors
    residual: Vectors
    directions: Float[Array, "kept N S"]  # the latest ones, in turns
    products: Float[Array, "kept N S"]
    curvatures: Float[Array, "kept S"]  # zero where there is none
    checked: Float[Array, "S"]  # norms of b - A x when it was last computed from x
    stuck: Bool[Array, "S"]
    broken: Bool[Array, "S"]
    steps: Int[Array, ""]
    inner_steps: Int[Array, ""]


@compiled("tolerance", "max_steps")
@in_units_of_columns
def flexible_conjugate_gradients(
    operator: LinearOperator,
    right: Vectors,
    *,
    preconditioner: Preconditioner,
    start: Vectors | None = None,
    tolerance: Any = 1e-6,
    max_steps: Any = 1000,
    kept: int = 20,
) -> Solution:
    """Solutions of A x = b where P^-1 is itself an iteration (Notay 2000, FCG(m)).

    Every direction is made conjugate again to the latest ones, which are kept. It is A P^-1 (P x) =
    b, preconditioned from the right, in the inner product that makes A P^-1 symmetric. Where the
    residual that is carried along says converged and the one computed from x does not, the
    iteration goes on from that.

    Arguments are those of `conjugate_gradients` with any P, whose products inside are in
    `Solution.inner_steps`, and so many kept directions, each with its product: 2 N S numbers.

    Example:
        >>> from latentgp.extensions.iterative.solvers import operators
        >>> from latentgp.extensions.iterative.solvers.preconditioners.iterated import Regularised
        >>> A = operators.StoredCovariance(jnp.diag(jnp.array([1.0, 4.0])))
        >>> P = Regularised(0.1)(A)
        >>> found = flexible_conjugate_gradients(A, jnp.ones((2, 1)), preconditioner=P)
        >>> found.value[:, 0].round(4).tolist(), found.outcomes
        ([1.0, 0.25], ('converged',))
    """
    goal = tolerance * norms(right)
    value, residual = first_residual(operator, right, start)
    none = jnp.zeros((kept, *right.shape), right.dtype)
    no = jnp.zeros(right.shape[1], bool)
    nought = jnp.zeros((kept, right.shape[1]), right.dtype)
    never, zero = jnp.full(no.shape, jnp.inf, right.dtype), jnp.asarray(0)
    begun = _State(value, residual, none, none, nought, never, no, no, zero, zero)

    def active(state: _State) -> Bool[Array, "S"]:
        return ~(norms(state.residual) <= goal) & ~state.stuck & ~state.broken

    def from_value(state: _State) -> _State:
        residual = right - operator.exactly_times(state.value)
        size = norms(residual)
        stuck = state.stuck | ((size > goal) & (size > _PROGRESS * state.checked))
        return state._replace(residual=residual, checked=size, stuck=stuck)

    def step(state: _State) -> _State:
        towards, inner_steps = preconditioner.counted_solve(state.residual)
        known = state.curvatures > 0
        parts = jnp.sum(state.products * towards, axis=1) / jnp.where(known, state.curvatures, 1.0)
        direction = towards - jnp.sum(parts[:, None] * state.directions, axis=0)
        product = operator.times(direction)
        curvature = jnp.sum(direction * product, axis=0)
        sound = (curvature > 0) & jnp.isfinite(curvature)
        moving = active(state) & sound
        along = jnp.sum(direction * state.residual, axis=0)
        length = jnp.where(moving, along / jnp.where(moving, curvature, 1.0), 0.0)
        direction, product = jnp.where(moving, direction, 0.0), jnp.where(moving, product, 0.0)
        place = state.steps % kept
        after = state._replace(
            value=state.value + length * direction,
            residual=state.residual - length * product,
            directions=state.directions.at[place].set(direction),
            products=state.products.at[place].set(product),
            curvatures=state.curvatures.at[place].set(jnp.where(moving, curvature, 0.0)),
            broken=state.broken | (active(state) & ~sound),
            steps=state.steps + 1,
            inner_steps=state.inner_steps + inner_steps,
        )
        return jax.lax.cond(jnp.any(active(after)), lambda state: state, from_value, after)

    end = jax.lax.while_loop(
        lambda state: jnp.any(active(state)) & (state.steps < max_steps), step, begun
    )
    return certified(
        operator, right, end.value, tolerance, end.broken, end.stuck, end.steps, end.inner_steps
    )
