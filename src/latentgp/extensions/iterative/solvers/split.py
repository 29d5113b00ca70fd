"""Conjugate gradients preconditioned from both sides by a root."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from latentgp.extensions.iterative.solvers.conjugate_gradients import advance, start_at
from latentgp.extensions.iterative.solvers.operators import LinearOperator
from latentgp.extensions.iterative.solvers.preconditioners.base import Identity, Preconditioner
from latentgp.extensions.iterative.solvers.solution import (
    Solution,
    certified,
    in_units_of_columns,
    norms,
)
from latentgp.extensions.iterative.solvers.traced import compiled
from latentgp.typing import Vectors


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


@compiled("tolerance", "max_steps")
@in_units_of_columns
def split_conjugate_gradients(
    operator: LinearOperator,
    right: Vectors,
    *,
    preconditioner: Preconditioner,
    tolerance: Any = 1e-6,
    max_steps: Any = 1000,
) -> Solution:
    """Solutions of A x = b by R^-1 A R^-T (R' x) = R^-1 b (Saad 2003, 9.2.1).

    In exact arithmetic its iterates are those of `conjugate_gradients` with the same P, which is
    preconditioned from the left. This one shows the preconditioned matrix as an operator.

    Args:
        operator: A, N rows.
        right: b, shape (N, S).
        preconditioner: P with its root.
        tolerance: of ||b - A x|| / ||b||, not of the preconditioned residual.
        max_steps: the most products with A.

    Raises:
        InputError: a preconditioner without a root.
    """
    split, goal = SplitOperator(operator, preconditioner), tolerance * norms(right)
    begun = start_at(preconditioner.solve_root(right), jnp.zeros_like(right), Identity(), goal * 0)

    def unfinished(state: Any) -> Any:
        return state.active & ~(norms(preconditioner.times_root(state.residual)) <= goal)

    def step(now: Any) -> Any:
        state = advance(now[0], split, Identity(), goal * 0)
        return state._replace(active=unfinished(state)), now[1] + 1

    begun = begun._replace(active=unfinished(begun))
    state, steps = jax.lax.while_loop(
        lambda now: jnp.any(now[0].active) & (now[1] < max_steps), step, (begun, jnp.asarray(0))
    )
    value = preconditioner.solve_root(state.value, transposed=True)
    return certified(operator, right, value, tolerance, state.broken, ~state.active, steps)
