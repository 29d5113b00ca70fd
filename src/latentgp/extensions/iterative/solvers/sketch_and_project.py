"""Accelerated sketch-and-project: solves by blocks of rows drawn at random."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from latentgp.errors import InputError
from latentgp.extensions.iterative.solvers.operators import System
from latentgp.extensions.iterative.solvers.preconditioners.low_rank import LowRank, low_rank
from latentgp.extensions.iterative.solvers.preconditioners.nystrom import random_rows
from latentgp.extensions.iterative.solvers.preconditioners.roots import DiagonalRoot
from latentgp.extensions.iterative.solvers.solution import (
    Solution,
    certified,
    first_residual,
    relative,
)
from latentgp.extensions.iterative.solvers.traced import compiled
from latentgp.numerics.cholesky import jittered_cholesky
from latentgp.typing import Array, RandomKey, Scalar, Vectors

_POWER_STEPS = 10
# A residual so many times that of zero is no solve any more.
_DIVERGED = 1e6


@compiled("tolerance", "max_passes")
def sketch_and_project(
    system: System,
    right: Vectors,
    key: RandomKey,
    *,
    block: int,
    rank: int,
    start: Vectors | None = None,
    tolerance: Any = 1e-2,
    max_passes: Any = 100,
) -> Solution:
    """Solutions of A x = b by approximate projections on random blocks (Rathore et al. 2025).

    Each step solves a block of rows with a Nyström approximation of its own, at a step size from a
    few power iterations, and with Nesterov's momentum. No step size is to be tuned. Residuals are
    computed after every pass, which costs half a pass more.

    Args:
        system: A = S K S + D.
        right: b, shape (N, S).
        key: random key of the blocks.
        block: rows of a block, N / 100 in the source.
        rank: of the approximation, at most the rows of a block, 100 in the source.
        start: what the iteration starts at, zero unless given.
        tolerance: of ||b - A x|| / ||b||.
        max_passes: the most passes, of N / block steps each.

    Returns:
        The solution; `steps` are its passes.

    Raises:
        InputError: a block of more rows than there are, or a rank beyond it.

    Example:
        >>> from latentgp.extensions.iterative.solvers import operators
        >>> K = operators.StoredCovariance(jnp.eye(4))
        >>> A = operators.noisy_system(K, 1.0)
        >>> found = sketch_and_project(A, jnp.ones((4, 1)), jax.random.key(0), block=2, rank=1)
        >>> found.value[:, 0].round(1).tolist(), found.outcomes
        ([0.5, 0.5, 0.5, 0.5], ('converged',))
    """
    size = system.size
    if not 0 < rank <= block <= size:
        raise InputError(
            f"block is {block} and rank {rank} with {size} rows: give a rank from 1 to block, and "
            "a block of at most the rows"
        )
    steps = -(-size // block)
    # Strong convexity mu and nu = N / block of the accelerated iteration (Gower et al. 2018).
    nu = size / block
    mu = jnp.minimum(jnp.min(system.added), nu)
    beta, gamma = 1 - jnp.sqrt(mu / nu), 1 / jnp.sqrt(mu * nu)
    alpha = 1 / (1 + gamma * nu)

    def step(number: Any, now: Any) -> Any:
        Y, V = now
        key_rows, key_sketch = jax.random.split(jax.random.fold_in(key, number))
        rows = random_rows(key_rows, size, block)
        residual = system.rows_times(rows, Y) - right[rows]
        A_b = system.block(rows)
        P = _near(A_b - jnp.diag(system.added[rows]), system.added[rows], rank, key_sketch)
        direction = P.solve(residual) / _largest(A_b, P, key_sketch)
        W = Y.at[rows].add(-direction)
        V = (beta * V + (1 - beta) * Y).at[rows].add(-gamma * direction)
        return alpha * V + (1 - alpha) * W, V

    def one_pass(now: Any) -> Any:
        Y, V, _, passes = now
        Y, V = jax.lax.fori_loop(passes * steps, (passes + 1) * steps, step, (Y, V))
        return Y, V, relative(right - system.times(Y), right), passes + 1

    def going(now: Any) -> Any:
        _, _, residual, passes = now
        open_ = jnp.any(residual > tolerance) & jnp.all(residual < _DIVERGED)
        return open_ & (passes < max_passes)

    first, residual = first_residual(system, right, start)
    begun = first, first, relative(residual, right), jnp.asarray(0)
    Y, _, residual, passes = jax.lax.while_loop(going, one_pass, begun)
    return certified(system, right, Y, tolerance, ~(residual < _DIVERGED), False, passes)


def _near(K: Float[Array, "B B"], added: Float[Array, "B"], rank: int, key: RandomKey) -> LowRank:
    """Randomised Nyström approximation, damped as Frangella, Tropp & Udell (2023) have it."""
    test = jnp.linalg.qr(jax.random.normal(key, (len(K), rank), K.dtype))[0]
    sketch = K @ test
    inner = test.T @ sketch
    factor = sketch @ jittered_cholesky(0.5 * (inner + inner.T)).factor.inverse.T
    smallest = jnp.min(jnp.linalg.svd(factor, compute_uv=False)) ** 2
    return low_rank(DiagonalRoot(jnp.sqrt(added + smallest)), factor)


def _largest(A: Float[Array, "B B"], P: LowRank, key: RandomKey) -> Scalar:
    """The largest eigenvalue of P^-1 A by power iterations, at least one."""
    v = jax.random.normal(key, (len(A), 1), A.dtype)

    def turn(_: Int[Array, ""], state: Any) -> Any:
        v, _ = state
        v = v / jnp.sqrt(jnp.sum(v**2))
        w = P.solve_root(A @ P.solve_root(v, transposed=True))
        return w, jnp.sum(v * w)

    return jnp.maximum(jax.lax.fori_loop(0, _POWER_STEPS, turn, (v, jnp.ones((), A.dtype)))[1], 1.0)
