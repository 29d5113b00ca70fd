"""Log-determinants by stochastic Lanczos quadrature, of columns apart or in blocks."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from latentgp.extensions.iterative.solvers.block_conjugate_gradients import (
    SplitOperator,
    advance_block,
    start_block,
)
from latentgp.extensions.iterative.solvers.conjugate_gradients import begun_at
from latentgp.extensions.iterative.solvers.operators import LinearOperator
from latentgp.extensions.iterative.solvers.preconditioners.base import (
    Identity,
    Preconditioner,
    draws,
)
from latentgp.extensions.iterative.solvers.solution import Solution, certified, compiled, norms
from latentgp.numerics.eigen import eigenvectors
from latentgp.typing import Array, RandomKey, Scalar, Vectors

# The quadrature's band matrix has as many blocks as there were steps, rounded up to one of a few
# numbers, but at most so many rows.
_FEWEST_BLOCKS, _MORE, _MORE_OF_ONE = 8, 2, 5
_MOST_ROWS = 2048
_PROBES_TOLERANCE = 1e-2  # of solves that are averaged
_RECORDED = 64  # steps of these that quadrature knows


class Estimate(NamedTuple):
    """A mean over probe vectors, with its standard error."""

    value: Scalar
    standard_error: Scalar


class SolutionRecord(NamedTuple):
    """Solutions, and the coefficients of the iteration that found them."""

    solution: Solution  # of all right-hand sides
    inner: Float[Array, "S"]  # b' P^-1 b of each
    lengths: Float[Array, "T S"]  # of all steps, shape (T, S), zero where none was made
    momenta: Float[Array, "T S"]  # of all steps
    broken: Bool[Array, "S"]  # whether an iteration broke down


@compiled("tolerance")
def log_determinant(
    operator: LinearOperator,
    key: RandomKey,
    *,
    preconditioner: Preconditioner | None = None,
    probes: int = 16,
    tolerance: Any = 1e-6,
    max_steps: int = 100,
) -> tuple[Estimate, Solution]:
    """The log-determinant of A by solves with draws from N(0, P) (Ubaru, Chen & Saad 2017).

    It is log |P| + tr log(R^-1 A R^-T), and the trace is the expectation of u' log(.) u over u =
    R^-1 z. A preconditioner near A leaves little to estimate (Gardner et al. 2018). There are at
    least two probe vectors, and as many nodes of the quadrature as steps of conjugate gradients.

    Raises:
        InputError: a preconditioner without a root.

    Returns:
        The estimate, whose standard error is that of the probes, and the solves: where these have
        not converged the quadrature may be off by more (see `Solution.complaint`).

    Example:
        >>> from latentgp.extensions.iterative.solvers.operators import StoredCovariance
        >>> K = StoredCovariance(4 * jnp.eye(50))
        >>> found, _ = log_determinant(K, jax.random.key(0), probes=200)
        >>> bool(abs(found.value - 50 * jnp.log(4.0)) < 4 * found.standard_error)
        True
    """
    P = Identity() if preconditioner is None else preconditioner
    right = draws(P, key, operator.size, probes, operator.dtype)
    recorded = recorded_conjugate_gradients(operator, right, P, tolerance, max_steps)
    return mean_of(P.log_determinant() + quadrature(recorded)), recorded.solution


def recorded_conjugate_gradients(
    operator: LinearOperator,
    right: Vectors,
    preconditioner: Preconditioner,
    tolerance: Any,
    max_steps: int,
    recorded: int | None = None,
) -> SolutionRecord:
    """Conjugate gradients from zero, without a restart, that keep their coefficients.

    Those of so many steps, of all unless given. A tolerance may be an array, of each column its
    own.
    """
    begun, move = begun_at(operator, right, preconditioner, None, tolerance)
    none = jnp.zeros((recorded or max_steps, right.shape[1]), right.dtype)

    def step(now: Any) -> Any:
        state, lengths, momenta, steps = now
        state = move(state)
        lengths = lengths.at[steps].set(state.length, mode="drop")
        momenta = momenta.at[steps].set(state.momentum, mode="drop")
        return state, lengths, momenta, steps + 1

    state, lengths, momenta, steps = jax.lax.while_loop(
        lambda now: jnp.any(now[0].active) & (now[-1] < max_steps),
        step,
        (begun, none, none, jnp.asarray(0)),
    )
    stalled = ~state.active
    solution = certified(operator, right, state.value, tolerance, state.broken, stalled, steps)
    return SolutionRecord(solution, begun.inner, lengths, momenta, state.broken)


class ProbedSolution(NamedTuple):
    """A^-1 B, A^-1 z of probe vectors, and what these tell of the log-determinant."""

    value: Float[Array, "N columns"]  # A^-1 B
    # b' v - v' A v / 2 of the first columns of B and A^-1 B, whose error is at most the residual's
    # squared norm
    gain: Scalar
    log_determinant: Estimate  # of A; that of P without probe vectors
    solved: Vectors  # A^-1 z
    preconditioned: Vectors  # P^-1 z
    solution: Solution  # of all


def probed_solution(
    operator: LinearOperator,
    preconditioner: Preconditioner,
    right: Float[Array, "N columns"],
    key: RandomKey,
    probes: int,
    *,
    tolerance: float,
    max_steps: int,
) -> ProbedSolution:
    """Solve with columns and with probe vectors z = R u at once, u of random signs, P = R R'."""
    number = right.shape[1]
    signs = jax.random.rademacher(key, (operator.size, probes), right.dtype)
    z = preconditioner.times_root(signs)
    loose = jnp.full(probes, max(tolerance, _PROBES_TOLERANCE))
    recorded = recorded_conjugate_gradients(
        operator,
        jnp.concatenate([right, z], axis=1),
        preconditioner,
        jnp.concatenate([jnp.full(number, tolerance), loose]),
        max_steps,
        min(max_steps, _RECORDED),
    )
    value, solved = jnp.split(recorded.solution.value, [number], axis=1)
    v, b = value[:, :1], right[:, :1]
    gain = jnp.sum(v * b) - 0.5 * jnp.sum(v * operator.times(v))
    near = preconditioner.log_determinant()
    found = Estimate(*jnp.full(2, jnp.nan, right.dtype))
    if probes:
        found = mean_of(near + quadrature(recorded, slice(number, None)))
    return ProbedSolution(value, gain, found, solved, preconditioner.solve(z), recorded.solution)


def quadrature(recorded: SolutionRecord, columns: slice = slice(None)) -> Float[Array, "some"]:
    """Gauss quadrature of u' log(R^-1 A R^-T) u, u = R^-1 b (Golub & Meurant 2010, 7.1).

    Of all columns, or of some.

    The tridiagonal matrix of Lanczos' iteration has the diagonal 1 / a_k + b_{k-1} / a_{k-1} and
    the off-diagonal sqrt(b_k) / a_k, a the lengths and b the momenta (Saad 2003, eq. 6.103).
    """

    def of_one(lengths: Array, momenta: Array, inner: Array, broken: Array) -> Array:
        made = lengths > 0
        a = jnp.where(made, lengths, 1.0)
        ahead = made[:-1] & made[1:]
        shared = jnp.where(ahead, momenta[:-1] / a[:-1], 0.0)
        diagonal = (1 / a).at[1:].add(shared)
        beside = jnp.where(ahead, jnp.sqrt(momenta[:-1]) / a[:-1], 0.0)
        T = jnp.diag(diagonal) + jnp.diag(beside, 1) + jnp.diag(beside, -1)
        values, vectors = eigenvectors(T)
        return jnp.where(broken, jnp.nan, inner * jnp.sum(vectors[0] ** 2 * jnp.log(values)))

    coefficients = recorded.lengths.T, recorded.momenta.T
    rows = jax.tree.map(lambda a: a[columns], (*coefficients, recorded.inner, recorded.broken))

    def of_steps(steps: int) -> Float[Array, "some"]:
        lengths, momenta, *rest = rows
        own = lengths[:, :steps], momenta[:, :steps], *rest
        return jax.lax.map(lambda one: of_one(*one), own)

    sizes = _sizes(len(recorded.lengths), _MORE_OF_ONE)
    place = jnp.searchsorted(jnp.asarray(sizes), jnp.minimum(recorded.solution.steps, sizes[-1]))
    return jax.lax.switch(place, [partial(of_steps, steps) for steps in sizes])


def _sizes(most: int, times: int) -> list[int]:
    """Numbers of blocks, each so many times the one before, up to the most."""
    sizes = [min(_FEWEST_BLOCKS, most)]
    while sizes[-1] < most:
        sizes.append(min(times * sizes[-1], most))
    return sizes


def mean_of(values: Float[Array, "S"]) -> Estimate:
    """Mean and its standard error."""
    return Estimate(jnp.mean(values), jnp.std(values, ddof=1) / jnp.sqrt(values.size))


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
    value = preconditioner.solve_root(end.value, transposed=True)
    stalled = ~end.active
    solution = certified(operator, right, value, tolerance, end.broken, stalled, end.steps)
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
    sizes = _sizes(most, _MORE)
    place = jnp.searchsorted(jnp.asarray(sizes), jnp.minimum(recorded.steps, most))
    found = jax.lax.switch(place, [partial(_of_blocks, recorded, blocks) for blocks in sizes])
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
    T = T.at[k, :, k, :].set(D).at[k[1:], :, k[:-1], :].set(below)
    T = T.at[k[:-1], :, k[1:], :].set(jnp.swapaxes(below, 1, 2))
    T = T.reshape(blocks * width, blocks * width)
    values, vectors = eigenvectors(0.5 * (T + T.T))
    shares = (vectors[:width].T @ recorded.coordinates) ** 2
    return jnp.log(values) @ shares
