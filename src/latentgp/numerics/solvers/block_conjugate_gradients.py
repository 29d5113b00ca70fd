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


class _State(NamedTuple):
    value: Float[Array, "N S"]
    basis: Float[Array, "N S"]  # orthonormal; the residual is basis @ coordinates
    coordinates: Float[Array, "S S"]
    directions: Float[Array, "N S"]
    broken: Bool[Array, ""]
    active: Bool[Array, ""]
    steps: Int[Array, ""]


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
    basis, coordinates = jnp.linalg.qr(P.solve_root(residual))

    def finished(basis: Array, coordinates: Array) -> Array:
        return jnp.all(norms(P.times_root(basis @ coordinates)) <= goal)

    def step(state: _State) -> _State:
        product = split.times(state.directions)
        lower = lower_cholesky(state.directions.T @ product)
        sound = jnp.all(jnp.isfinite(lower))
        lower = jnp.where(sound, lower, jnp.eye(len(lower), dtype=lower.dtype))

        def over(columns: Array) -> Array:
            """The columns times (S' A S)^-1, S the directions."""
            return solve_lower(lower, solve_lower(lower, columns.T), transposed=True).T

        basis, turn = jnp.linalg.qr(state.basis - over(product))
        coordinates = turn @ state.coordinates
        after = _State(
            state.value + over(state.directions) @ state.coordinates,
            basis,
            coordinates,
            basis + state.directions @ turn.T,
            jnp.asarray(False),
            ~finished(basis, coordinates),
            state.steps + 1,
        )
        stopped = state._replace(broken=~sound, active=jnp.asarray(False), steps=after.steps)
        return jax.tree.map(lambda a, b: jnp.where(sound, a, b), after, stopped)

    begun = _State(
        jnp.zeros_like(right),
        basis,
        coordinates,
        basis,
        jnp.asarray(False),
        ~finished(basis, coordinates),
        jnp.asarray(0),
    )
    end = jax.lax.while_loop(lambda state: state.active & (state.steps < max_steps), step, begun)
    return certified(
        operator,
        right,
        value + P.solve_root(end.value, transposed=True),
        tolerance=tolerance,
        broken=end.broken,
        stalled=~end.active,
        steps=end.steps,
    )
