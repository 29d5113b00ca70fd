"""Conjugate gradients in which right-hand sides share their directions."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from latentgp.numerics.cholesky import lower_cholesky
from latentgp.numerics.solvers.operators import LinearOperator
from latentgp.numerics.solvers.preconditioners.base import Identity, Preconditioner
from latentgp.numerics.solvers.solution import Solution, certified, first_residual, norms
from latentgp.numerics.solvers.split import Split
from latentgp.numerics.solvers.traced import compiled
from latentgp.numerics.triangular import solve_lower
from latentgp.typing import Array


class State(NamedTuple):
    """An iteration: right-hand sides with their directions in common."""

    value: Float[Array, "N S"]
    basis: Float[Array, "N S"]  # orthonormal; the residual is basis @ coordinates
    coordinates: Float[Array, "S S"]
    directions: Float[Array, "N S"]
    broken: Bool[Array, ""]
    active: Bool[Array, ""]
    steps: Int[Array, ""]
    curvature: Float[Array, "S S"]  # S' A S of the last step's directions S
    turn: Float[Array, "S S"]  # the last residual is the new basis times it, in the old one


@compiled("tolerance", "max_steps")
def block_conjugate_gradients(
    operator: LinearOperator,
    right: Float[Array, "N S"],
    *,
    preconditioner: Preconditioner | None = None,
    start: Float[Array, "N S"] | None = None,
    tolerance: Any = 1e-6,
    max_steps: Any = 1000,
) -> Solution:
    """Solutions of A X = B, each in the space of all residuals (O'Leary 1980).

    A step costs a product with S columns, as in `conjugate_gradients`, and there are fewer of them.
    Residuals are kept orthonormal (Dubrulle 2001, BCGrQ), so equal right-hand sides do no harm. All
    go on until the last has converged.

    Args:
        operator: A, N rows.
        right: B, shape (N, S) with S <= N.
        preconditioner: P with its root; none unless given.
        start: what the iteration starts at, zero unless given.
        tolerance: of ||b - A x|| / ||b|| of each column.
        max_steps: the most products with A.

    Raises:
        InputError: a preconditioner without a root.

    Example:
        >>> from latentgp.numerics.solvers.operators import Stored
        >>> A = Stored(jnp.diag(jnp.array([1.0, 2.0, 4.0])))
        >>> found = block_conjugate_gradients(A, jnp.eye(3))
        >>> jnp.diagonal(found.value).round(4).tolist(), int(found.steps)
        ([1.0, 0.5, 0.25], 1)
    """
    P = Identity() if preconditioner is None else preconditioner
    split, goal = Split(operator, P), tolerance * norms(right)
    value, residual = first_residual(operator, right, start)
    end = jax.lax.while_loop(
        lambda state: state.active & (state.steps < max_steps),
        lambda state: advance_block(state, split, goal),
        start_block(split, residual, goal),
    )
    return solution_of(operator, right, value, P, end, tolerance)


def start_block(split: Split, residual: Float[Array, "N S"], goal: Float[Array, "S"]) -> State:
    """The state before the first step, at a residual of A."""
    basis, coordinates = jnp.linalg.qr(split.preconditioner.solve_root(residual))
    nothing = jnp.zeros_like(coordinates)
    return State(
        jnp.zeros_like(residual),
        basis,
        coordinates,
        basis,
        jnp.asarray(False),
        ~_finished(split, basis, coordinates, goal),
        jnp.asarray(0),
        nothing,
        nothing,
    )


def advance_block(state: State, split: Split, goal: Float[Array, "S"]) -> State:
    """One step; one that breaks down leaves the solution as it was."""
    product = split.times(state.directions)
    curvature = state.directions.T @ product
    lower = lower_cholesky(curvature)
    sound = jnp.all(jnp.isfinite(lower))
    lower = jnp.where(sound, lower, jnp.eye(len(lower), dtype=lower.dtype))

    def over(columns: Array) -> Array:
        """The columns times (S' A S)^-1, S the directions."""
        return solve_lower(lower, solve_lower(lower, columns.T), transposed=True).T

    basis, turn = jnp.linalg.qr(state.basis - over(product))
    coordinates = turn @ state.coordinates
    after = State(
        state.value + over(state.directions) @ state.coordinates,
        basis,
        coordinates,
        basis + state.directions @ turn.T,
        jnp.asarray(False),
        ~_finished(split, basis, coordinates, goal),
        state.steps + 1,
        curvature,
        turn,
    )
    stopped = state._replace(broken=~sound, active=jnp.asarray(False), steps=after.steps)
    return jax.tree.map(lambda a, b: jnp.where(sound, a, b), after, stopped)


def solution_of(
    operator: LinearOperator,
    right: Float[Array, "N S"],
    start: Float[Array, "N S"],
    preconditioner: Preconditioner,
    end: State,
    tolerance: Any,
) -> Solution:
    """The certified solution where an iteration from a start has ended."""
    return certified(
        operator,
        right,
        start + preconditioner.solve_root(end.value, transposed=True),
        tolerance=tolerance,
        broken=end.broken,
        stalled=~end.active,
        steps=end.steps,
    )


def _finished(
    split: Split,
    basis: Float[Array, "N S"],
    coordinates: Float[Array, "S S"],
    goal: Float[Array, "S"],
) -> Bool[Array, ""]:
    return jnp.all(norms(split.preconditioner.times_root(basis @ coordinates)) <= goal)
