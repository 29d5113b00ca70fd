"""Conjugate gradients for several right-hand sides at once, with any preconditioner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from latentgp.errors import InputError
from latentgp.extensions.iterative.solvers.operators import LinearOperator
from latentgp.extensions.iterative.solvers.preconditioners.base import Identity, Preconditioner
from latentgp.extensions.iterative.solvers.solution import (
    Solution,
    certified,
    coded,
    compiled,
    first_residual,
    in_units_of_columns,
    norms,
    relative,
)
from latentgp.typing import Array, Vectors

# A restart that leaves more than this part of a residual was stopped by rounding.
_PROGRESS = 0.5


class State(NamedTuple):
    """An iteration: of each right-hand side its own, with a product in common."""

    value: Vectors
    residual: Vectors
    direction: Vectors
    inner: Float[Array, "S"]  # residual' P^-1 residual
    active: Bool[Array, "S"]
    broken: Bool[Array, "S"]
    length: Float[Array, "S"]  # of the last step, zero where none was made
    momentum: Float[Array, "S"]  # of the next direction, how much is the last one


def start_at(
    residual: Vectors, value: Vectors, preconditioner: Preconditioner, goal: Float[Array, "S"]
) -> State:
    """The state before the first step, from a value and its residual."""
    direction = preconditioner.solve(residual)
    inner = jnp.sum(residual * direction, axis=0)
    zero = jnp.zeros_like(inner)
    # Written so that what is not a number is broken, not finished.
    active = ~(norms(residual) <= goal)
    broken = active & ~((inner > 0) & jnp.isfinite(inner))
    return State(value, residual, direction, inner, active & ~broken, broken, zero, zero)


def advance(
    state: State, operator: LinearOperator, preconditioner: Preconditioner, goal: Float[Array, "S"]
) -> State:
    """One step (Golub & Van Loan 2013, alg. 11.5.1); finished columns stay as they are.

    A column is finished where the norm of its residual is at the goal.
    """
    product = operator.times(state.direction)
    curvature = jnp.sum(state.direction * product, axis=0)
    sound = (curvature > 0) & jnp.isfinite(curvature)
    moving = state.active & sound
    length = jnp.where(moving, state.inner / jnp.where(moving, curvature, 1.0), 0.0)
    residual = state.residual - length * jnp.where(moving, product, 0.0)
    towards = preconditioner.solve(residual)
    inner = jnp.sum(residual * towards, axis=0)
    going = moving & ~(norms(residual) <= goal)
    lost = going & ~((inner > 0) & jnp.isfinite(inner))
    going = going & ~lost
    # The last step's momentum is kept too: quadrature reads it.
    momentum = jnp.where(moving & (inner > 0), inner / jnp.where(moving, state.inner, 1.0), 0.0)
    return State(
        state.value + length * state.direction,
        residual,
        jnp.where(going, towards + momentum * state.direction, state.direction),
        jnp.where(going, inner, state.inner),
        going,
        state.broken | (state.active & ~sound) | lost,
        length,
        momentum,
    )


class _Cycle(NamedTuple):
    """State kept from one restart to the next."""

    value: Vectors
    residual: Vectors
    relative: Float[Array, "S"]
    broken: Bool[Array, "S"]
    stalled: Bool[Array, "S"]
    steps: Int[Array, ""]


def check_fixed(preconditioner: Preconditioner) -> None:
    """Raise InputError unless a preconditioner is the same matrix at all steps."""
    if not preconditioner.is_fixed:
        raise InputError(
            f"{type(preconditioner).__name__} is another matrix at every solve, as it iterates "
            "inside: solve with flexible_conjugate_gradients"
        )


def begun_at(
    operator: LinearOperator,
    right: Vectors,
    preconditioner: Preconditioner | None,
    start: Vectors | None,
    tolerance: Any,
) -> tuple[State, Callable[[State], State]]:
    """The state before the first step, and the step from one to the next, without restarts."""
    P = Identity() if preconditioner is None else preconditioner
    check_fixed(P)
    goal = tolerance * norms(right)
    value, residual = first_residual(operator, right, start)
    return start_at(residual, value, P, goal), lambda state: advance(state, operator, P, goal)


@compiled("tolerance", "max_steps")
@in_units_of_columns
def conjugate_gradients(
    operator: LinearOperator,
    right: Vectors,
    *,
    preconditioner: Preconditioner | None = None,
    start: Vectors | None = None,
    tolerance: Any = 1e-6,
    max_steps: Any = 1000,
) -> Solution:
    """Solutions of A x = b for a positive definite A (Hestenes & Stiefel 1952).

    Where the residual that is carried along says converged and the one computed from x does not,
    the iteration starts again from x.

    Args:
        operator: A, N rows.
        right: b, shape (N, S); each column has its own steps, products are shared.
        preconditioner: P, a fixed matrix; none unless given.
        start: what the iteration starts at, zero unless given.
        tolerance: of ||b - A x|| / ||b||.
        max_steps: the most products with A.

    Raises:
        InputError: a preconditioner that iterates inside.

    Returns:
        The solution with its residuals, computed from x, and codes; see `Solution.complaint`.

    Example:
        >>> from latentgp.extensions.iterative.solvers.operators import StoredCovariance
        >>> found = conjugate_gradients(StoredCovariance(4 * jnp.eye(3)), jnp.ones((3, 1)))
        >>> found.value[:, 0].round(6).tolist(), found.outcomes, int(found.steps)
        ([0.25, 0.25, 0.25], ('converged',), 1)
    """
    P = Identity() if preconditioner is None else preconditioner
    check_fixed(P)
    goal = tolerance * norms(right)
    value, residual = first_residual(operator, right, start)
    no = jnp.zeros(right.shape[1], bool)
    cycle = _Cycle(value, residual, relative(residual, right), no, no, jnp.asarray(0))

    def unfinished(cycle: _Cycle) -> Array:
        return ~(cycle.relative <= tolerance) & ~cycle.broken & ~cycle.stalled

    def restart(cycle: _Cycle) -> _Cycle:
        begun = start_at(cycle.residual, cycle.value, P, goal)
        begun = begun._replace(active=begun.active & unfinished(cycle))
        state, steps = jax.lax.while_loop(
            lambda now: jnp.any(now[0].active) & (now[1] < max_steps),
            lambda now: (advance(now[0], operator, P, goal), now[1] + 1),
            (begun, cycle.steps),
        )
        residual = right - operator.exactly_times(state.value)
        size = relative(residual, right)
        broken = jnp.logical_or(cycle.broken, state.broken)
        ended = (size > tolerance) & ~state.active & ~broken
        stuck = ended & (size > _PROGRESS * cycle.relative)
        return _Cycle(state.value, residual, size, broken, cycle.stalled | stuck, steps)

    end = jax.lax.while_loop(
        lambda cycle: jnp.any(unfinished(cycle)) & (cycle.steps < max_steps), restart, cycle
    )
    return coded(end.value, end.relative, tolerance, end.broken, end.stalled, end.steps)


class _FlexibleState(NamedTuple):
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
    begun = _FlexibleState(value, residual, none, none, nought, never, no, no, zero, zero)

    def active(state: _FlexibleState) -> Bool[Array, "S"]:
        return ~(norms(state.residual) <= goal) & ~state.stuck & ~state.broken

    def from_value(state: _FlexibleState) -> _FlexibleState:
        residual = right - operator.exactly_times(state.value)
        size = norms(residual)
        stuck = state.stuck | ((size > goal) & (size > _PROGRESS * state.checked))
        return state._replace(residual=residual, checked=size, stuck=stuck)

    def step(state: _FlexibleState) -> _FlexibleState:
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
