"""Conjugate gradients in which right-hand sides share their directions."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from latentgp.extensions.iterative.solvers.conjugate_gradients import conjugate_gradients
from latentgp.extensions.iterative.solvers.operators import LinearOperator
from latentgp.extensions.iterative.solvers.preconditioners.base import Identity, Preconditioner
from latentgp.extensions.iterative.solvers.solution import (
    CONVERGED,
    OUT_OF_STEPS,
    Solution,
    compiled,
    first_residual,
    norms,
    relative,
)
from latentgp.numerics.cholesky import lower_cholesky
from latentgp.numerics.triangular import solve_lower
from latentgp.typing import Array, Vectors

# What is left of a column is rounding below so many times the precision.
_ROUNDING = 10
# A restart that leaves more than this part of the worst residual has come to its end.
_PROGRESS = 0.5


class SplitOperator(LinearOperator):
    """R^-1 A R^-T with P = R R', whose eigenvalues are those of P^-1 A."""

    operator: LinearOperator
    preconditioner: Preconditioner

    @property
    def size(self) -> int:
        return self.operator.size

    def times(self, right: Vectors) -> Vectors:
        outer = self.preconditioner.solve_root(right, transposed=True)
        return self.preconditioner.solve_root(self.operator.times(outer))


class State(NamedTuple):
    """An iteration: right-hand sides with their directions in common."""

    value: Vectors
    basis: Vectors  # orthonormal, or zero; the residual is basis @ coordinates
    coordinates: Float[Array, "S S"]
    directions: Vectors
    broken: Bool[Array, ""]
    active: Bool[Array, ""]
    steps: Int[Array, ""]
    curvature: Float[Array, "S S"]  # S' A S of the last step's directions S
    turn: Float[Array, "S S"]  # the last residual is the new basis times it, in the old one


@compiled("tolerance", "max_steps")
def block_conjugate_gradients(
    operator: LinearOperator,
    right: Vectors,
    *,
    preconditioner: Preconditioner | None = None,
    start: Vectors | None = None,
    tolerance: Any = 1e-6,
    max_steps: Any = 1000,
) -> Solution:
    """Solutions of A X = B, each in the space of all residuals (O'Leary 1980).

    A step costs a product with S columns, as in `conjugate_gradients`, and there are fewer of them.
    Residuals are kept orthonormal (Dubrulle 2001, BCGrQ), and those that depend on others are left
    out (at a start random directions take their places): right-hand sides may be equal, zero or of
    any size. All go on until the last has converged.
    Where residuals computed from X say that it has not, the iteration starts again from X, and in
    the end goes on with directions of each column's own.

    Arguments are those of `conjugate_gradients`, with a P that has a root.

    Raises:
        InputError: a preconditioner without a root.

    Example:
        >>> from latentgp.extensions.iterative.solvers.operators import StoredCovariance
        >>> A = StoredCovariance(jnp.diag(jnp.array([1.0, 2.0, 4.0])))
        >>> found = block_conjugate_gradients(A, jnp.eye(3))
        >>> jnp.diagonal(found.value).round(4).tolist(), int(found.steps)
        ([1.0, 0.5, 0.25], 1)
    """
    P = Identity() if preconditioner is None else preconditioner
    split, goal = SplitOperator(operator, P), tolerance * norms(right)
    value, residual = first_residual(operator, right, start)
    most = max_steps if right.shape[1] <= operator.size else 0  # more have no basis

    def cycle(now: Any) -> Any:
        value, residual, before, _, steps = now
        end = jax.lax.while_loop(
            lambda state: state.active & (state.steps < most),
            lambda state: advance_block(state, split, goal),
            start_block(split, residual, goal)._replace(steps=steps),
        )
        value = value + P.solve_root(end.value, transposed=True)
        residual = right - operator.exactly_times(value)
        return value, residual, relative(residual, right), before, end.steps

    def going(now: Any) -> Bool[Array, ""]:
        _, _, size, before, steps = now
        helped = jnp.max(size) <= _PROGRESS * jnp.max(before)
        return jnp.any(size > tolerance) & helped & (steps < most)

    size = relative(residual, right)
    begun = value, residual, size, jnp.full_like(size, jnp.inf), jnp.asarray(0)
    value, _, size, _, steps = jax.lax.while_loop(going, cycle, begun)
    code = jnp.where(size <= tolerance, CONVERGED, OUT_OF_STEPS)
    found = Solution(value, size, code, steps, jnp.asarray(0))
    return gone_on(found, operator, right, P, tolerance, max_steps)


def gone_on(
    found: Solution,
    operator: LinearOperator,
    right: Vectors,
    preconditioner: Preconditioner,
    tolerance: Any,
    max_steps: Any,
) -> Solution:
    """Solutions that a block iteration has ended short of, column by column to their end."""

    def apart() -> Solution:
        after = conjugate_gradients(
            operator,
            right,
            preconditioner=preconditioner,
            start=jnp.where(jnp.isfinite(found.value), found.value, 0.0),
            tolerance=tolerance,
            max_steps=max_steps - found.steps,
        )
        return eqx.tree_at(lambda s: s.steps, after, found.steps + after.steps)

    short = jnp.any(found.code != CONVERGED) & (found.steps < max_steps)
    return jax.lax.cond(short, apart, lambda: found)


def orthonormal(
    columns: Vectors, rounding: Float[Array, "S"]
) -> tuple[Vectors, Float[Array, "S S"]]:
    """Q and R with Q R the columns, Q orthonormal but zero where a column depends on those before.

    Classical Gram-Schmidt, twice (Giraud, Langou & Rozlozník 2005): reflections would fill Q up
    with directions of rounding, which are what is left of a column at most.
    """

    def one(place: Int[Array, ""], now: tuple[Array, Array]) -> tuple[Array, Array]:
        basis, inner = now
        column = columns[:, place]
        first = column @ basis
        left = column - basis @ first
        second = left @ basis
        left = left - basis @ second
        length = jnp.sqrt(jnp.sum(left**2))
        new = length > rounding[place]
        own = jnp.where(new, left / jnp.where(new, length, 1.0), 0.0)
        inner = inner.at[:, place].set(first + second)
        inner = inner.at[place, place].set(jnp.where(new, length, 0.0))
        return basis.at[:, place].set(own), inner

    size = columns.shape[1]
    nothing = jnp.zeros_like(columns), jnp.zeros((size, size), columns.dtype)
    return jax.lax.fori_loop(0, size, one, nothing)


def start_block(split: SplitOperator, residual: Vectors, goal: Float[Array, "S"]) -> State:
    """The state before the first step, at a residual of A."""
    white = split.preconditioner.solve_root(residual)
    length = norms(white)
    unit = jnp.where(length > 0, length, 1.0)
    rounding = jnp.full_like(length, _smallest(white))
    basis, inner = orthonormal(white / unit, rounding)
    basis, coordinates = _filled_up(basis, rounding), inner * unit
    nothing, begins = jnp.zeros_like(coordinates), _unfinished(split, basis, coordinates, goal)
    first = jnp.zeros_like(residual), basis, coordinates, basis, jnp.asarray(False), begins
    return State(*first, jnp.asarray(0), nothing, nothing)


def _filled_up(basis: Vectors, rounding: Float[Array, "S"]) -> Vectors:
    """The basis with random directions in place of zeros: a step with more of them goes farther."""
    gone = jnp.all(basis == 0, axis=0)
    order = jnp.argsort(gone)  # so that nothing is made orthogonal to what is random
    key = jax.random.key_data(jax.random.key(0))
    held = jax.random.wrap_key_data(jax.lax.optimization_barrier(key))  # or XLA draws too early
    fill = jax.random.normal(held, basis.shape, basis.dtype)
    whole, _ = orthonormal(jnp.where(gone, fill, basis)[:, order], rounding)
    return whole[:, jnp.argsort(order)]


def advance_block(state: State, split: SplitOperator, goal: Float[Array, "S"]) -> State:
    """One step; one that breaks down leaves the solution as it was."""
    product = split.times(state.directions)
    gone = jnp.all(state.directions == 0, axis=0)
    curvature = state.directions.T @ product + jnp.diag(gone.astype(product.dtype))
    lower = lower_cholesky(curvature)
    sound = jnp.all(jnp.isfinite(lower))
    lower = jnp.where(sound, lower, jnp.eye(len(lower), dtype=lower.dtype))

    def over(columns: Array) -> Array:
        """The columns times (S' A S)^-1, S the directions."""
        return solve_lower(lower, solve_lower(lower, columns.T), transposed=True).T

    change = over(product)
    basis, turn = orthonormal(state.basis - change, (1 + norms(change)) * _smallest(change))
    coordinates = turn @ state.coordinates
    after = State(
        state.value + over(state.directions) @ state.coordinates,
        basis,
        coordinates,
        basis + state.directions @ turn.T,
        jnp.asarray(False),
        _unfinished(split, basis, coordinates, goal),
        state.steps + 1,
        curvature,
        turn,
    )
    stopped = state._replace(broken=~sound, active=jnp.asarray(False), steps=after.steps)
    return jax.tree.map(lambda a, b: jnp.where(sound, a, b), after, stopped)


def _unfinished(
    split: SplitOperator, basis: Vectors, coordinates: Float[Array, "S S"], goal: Float[Array, "S"]
) -> Bool[Array, ""]:
    """Whether a column has not converged, and there is a direction left to go."""
    residual = norms(split.preconditioner.times_root(basis @ coordinates))
    return ~jnp.all(residual <= goal) & jnp.any(basis != 0)


def _smallest(columns: Array) -> float:
    """Residual length of a unit column that depends on others."""
    return _ROUNDING * float(jnp.finfo(columns.dtype).eps)
