"""Log-determinants by stochastic Lanczos quadrature."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from latentgp.extensions.iterative.solvers.conjugate_gradients import advance, check_fixed, start_at
from latentgp.extensions.iterative.solvers.operators import LinearOperator
from latentgp.extensions.iterative.solvers.preconditioners.base import (
    Identity,
    Preconditioner,
    draws,
)
from latentgp.extensions.iterative.solvers.solution import Solution, certified, norms
from latentgp.extensions.iterative.solvers.traced import compiled
from latentgp.numerics.cholesky import eigenvectors
from latentgp.typing import Array, RandomKey, Scalar, Vectors


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
    R^-1 z. A preconditioner near A leaves little to estimate (Gardner et al. 2018).

    Args:
        operator: A, N rows.
        key: random key of the probe vectors.
        preconditioner: P with its log-determinant and root; none unless given.
        probes: number of probe vectors, at least two.
        tolerance: of the relative residuals at which the iteration ends.
        max_steps: the most steps, and so the most nodes of the quadrature.

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
) -> SolutionRecord:
    """Conjugate gradients from zero, without a restart, that keep their coefficients."""
    check_fixed(preconditioner)
    goal = tolerance * norms(right)
    begun = start_at(right, jnp.zeros_like(right), preconditioner, goal)
    none = jnp.zeros((max_steps, right.shape[1]), right.dtype)

    def step(now: Any) -> Any:
        state, lengths, momenta, steps = now
        state = advance(state, operator, preconditioner, goal)
        lengths = lengths.at[steps].set(state.length)
        return state, lengths, momenta.at[steps].set(state.momentum), steps + 1

    state, lengths, momenta, steps = jax.lax.while_loop(
        lambda now: jnp.any(now[0].active) & (now[-1] < max_steps),
        step,
        (begun, none, none, jnp.asarray(0)),
    )
    solution = certified(
        operator, right, state.value, tolerance, state.broken, ~state.active, steps
    )
    return SolutionRecord(solution, begun.inner, lengths, momenta, state.broken)


def quadrature(recorded: SolutionRecord) -> Float[Array, "S"]:
    """Gauss quadrature of u' log(R^-1 A R^-T) u, u = R^-1 b (Golub & Meurant 2010, 7.1).

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

    columns = recorded.lengths.T, recorded.momenta.T, recorded.inner, recorded.broken
    return jax.lax.map(lambda one: of_one(*one), columns)


def mean_of(values: Float[Array, "S"]) -> Estimate:
    """Mean and its standard error."""
    return Estimate(jnp.mean(values), jnp.std(values, ddof=1) / jnp.sqrt(values.size))
