"""Log-determinants by the quadrature of block conjugate gradients."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from latentgp.extensions.iterative.solvers.block_conjugate_gradients import (
    SplitOperator,
    advance_block,
    solution_of,
    start_block,
)
from latentgp.extensions.iterative.solvers.operators import LinearOperator
from latentgp.extensions.iterative.solvers.preconditioners.base import Preconditioner
from latentgp.extensions.iterative.solvers.solution import Solution, norms
from latentgp.numerics.cholesky import eigenvectors
from latentgp.typing import Array, Vectors

# The quadrature's band matrix has as many blocks as there were steps, rounded up to one of a few
# numbers, but at most so many rows.
_FEWEST_BLOCKS, _MORE = 8, 2
_MOST_ROWS = 2048


class RecordedBlock(NamedTuple):
    """Solutions, and the coefficients of the block iteration that found them."""

    solution: Solution  # of all right-hand sides
    coordinates: Float[Array, "S S"]  # phi with R^-1 B = Q_0 phi, Q_0 the first orthonormal basis
    curvatures: Float[Array, "T S S"]  # D_k = S_k' R^-1 A R^-T S_k of the directions of step k
    turns: Float[Array, "T S S"]  # tau_k, of the residual after step k in the basis there
    steps: Int[Array, ""]  # how many were made; what is beyond is zero
    broken: Bool[Array, ""]  # whether the iteration broke down


def recorded_block_conjugate_gradients(
    operator: LinearOperator,
    right: Vectors,
    preconditioner: Preconditioner,
    tolerance: Any,
    max_steps: int,
) -> RecordedBlock:
    """`block_conjugate_gradients` from zero, of at most N columns, that keep their coefficients."""
    split, goal = SplitOperator(operator, preconditioner), tolerance * norms(right)
    begun = start_block(split, right, goal)
    none = jnp.zeros((max_steps, *begun.turn.shape), right.dtype)

    def step(now: Any) -> Any:
        state, curvatures, turns = now
        made = state.steps
        state = advance_block(state, split, goal)
        return state, curvatures.at[made].set(state.curvature), turns.at[made].set(state.turn)

    end, curvatures, turns = jax.lax.while_loop(
        lambda now: now[0].active & (now[0].steps < max_steps), step, (begun, none, none)
    )
    nothing = jnp.zeros_like(right)
    solution = solution_of(operator, right, nothing, preconditioner, end, tolerance)
    return RecordedBlock(solution, begun.coordinates, curvatures, turns, end.steps, end.broken)


def block_quadrature(recorded: RecordedBlock) -> Float[Array, "S"]:
    """Block Gauss quadrature of u' log(R^-1 A R^-T) u, u = R^-1 b (Golub & Meurant 2010, 6.6).

    With V the residual bases side by side, V' R^-1 A R^-T V = U' D U with the block diagonal D
    of the curvatures and ones above which U has -tau_k'. So its blocks are D_k + tau_k D_{k-1}
    tau_k' on the diagonal and -tau_k D_{k-1} below. All columns share the space, so that there
    are fewer steps than of `quadrature` for the same error.

    Of very many steps the first are enough: where all give solutions to 1e-6, half of them give
    the logarithm to some 1e-3 nats, of ill-conditioned matrices less well.
    """
    most = len(recorded.curvatures)
    most = max(1, min(most, max(most // 2, _MOST_ROWS // recorded.turns.shape[1])))
    sizes = [min(_FEWEST_BLOCKS, most)]
    while sizes[-1] < most:
        sizes.append(min(_MORE * sizes[-1], most))

    def of_size(blocks: int) -> Any:
        return lambda: _of_blocks(recorded, blocks)

    place = jnp.searchsorted(jnp.asarray(sizes), jnp.minimum(recorded.steps, most))
    found = jax.lax.switch(place, [of_size(blocks) for blocks in sizes])
    return jnp.where(recorded.broken, jnp.nan, found)


def _of_blocks(recorded: RecordedBlock, blocks: int) -> Float[Array, "S"]:
    width = recorded.turns.shape[1]
    made = (jnp.arange(blocks) < recorded.steps)[:, None, None]
    unit = jnp.eye(width, dtype=recorded.turns.dtype)
    D = jnp.where(made, recorded.curvatures[:blocks], unit)
    ahead = made[1:]
    below = jnp.where(ahead, -recorded.turns[: blocks - 1] @ D[:-1], 0.0)
    more = -below @ jnp.swapaxes(recorded.turns[: blocks - 1], 1, 2)
    D = D.at[1:].add(jnp.where(ahead, more, 0.0))
    T = jnp.zeros((blocks, width, blocks, width), D.dtype)
    k = jnp.arange(blocks)
    T = T.at[k, :, k, :].set(D)
    T = T.at[k[1:], :, k[:-1], :].set(below)
    T = T.at[k[:-1], :, k[1:], :].set(jnp.swapaxes(below, 1, 2))
    T = T.reshape(blocks * width, blocks * width)
    values, vectors = eigenvectors(0.5 * (T + T.T))
    shares = (vectors[:width].T @ recorded.coordinates) ** 2
    return jnp.log(values) @ shares
