"""Stochastic dual descent: solves by gradients of random rows, with momentum and averaging."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from latentgp.extensions.iterative.solvers.operators import System
from latentgp.extensions.iterative.solvers.preconditioners.nystrom import random_rows
from latentgp.extensions.iterative.solvers.solution import Solution, certified
from latentgp.extensions.iterative.solvers.traced import compiled
from latentgp.typing import RandomKey, Vectors

_MOMENTUM, _AVERAGED = 0.9, 100.0


@compiled("step_size", "steps", "tolerance")
def dual_descent(
    system: System,
    right: Vectors,
    key: RandomKey,
    *,
    step_size: Any,
    block: int,
    steps: Any,
    start: Vectors | None = None,
    tolerance: Any = 1e-2,
) -> Solution:
    """Solutions of A x = b by stochastic dual descent (Lin et al. 2024, alg. 1).

    A step takes the gradient A x - b at some rows, times N / block, with Nesterov's momentum 0.9;
    the result is the average of the last iterates, about a hundredth of them. It diverges where the
    step size is too large, which the residual then says; `sketch_and_project` chooses its own.

    Args:
        system: A = S K S + D.
        right: b, shape (N, S).
        key: random key of the rows.
        step_size: of a step; at most about block / (N largest eigenvalue of a block) is stable.
        block: rows of a step.
        steps: the number of steps, all of which are made.
        start: what the iteration starts at, zero unless given.
        tolerance: of ||b - A x|| / ||b|| that counts as converged; computed once, at the end.

    Example:
        >>> from latentgp.extensions.iterative.solvers import operators
        >>> K = operators.StoredCovariance(jnp.eye(4))
        >>> A = operators.noisy_system(K, 1.0)
        >>> options = {"step_size": 0.02, "block": 2, "steps": 1000}
        >>> found = dual_descent(A, jnp.ones((4, 1)), jax.random.key(0), **options)
        >>> found.value[:, 0].round(2).tolist(), found.outcomes
        ([0.5, 0.5, 0.5, 0.5], ('converged',))
    """
    size = system.size
    step_size = jnp.asarray(step_size, right.dtype)
    kept = jnp.minimum(_AVERAGED / steps, 1.0).astype(right.dtype)

    def step(number: Any, now: Any) -> Any:
        value, velocity, average = now
        rows = random_rows(jax.random.fold_in(key, number), size, block)
        ahead = value + _MOMENTUM * velocity
        slope = (size / block) * (system.rows_times(rows, ahead) - right[rows])
        velocity = (_MOMENTUM * velocity).at[rows].add(-step_size * slope)
        value = value + velocity
        return value, velocity, kept * value + (1 - kept) * average

    first = jnp.zeros_like(right) if start is None else start
    begun = first, jnp.zeros_like(right), first
    _, _, average = jax.lax.fori_loop(0, steps, step, begun)
    diverged = ~jnp.all(jnp.isfinite(average), axis=0)
    return certified(system, right, average, tolerance, diverged, False, steps)
