"""Solves with the posterior precision of latents: mean, variances at the rows, log-determinant."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from latentgp.extensions.iterative.solvers.conjugate_gradients import conjugate_gradients
from latentgp.extensions.iterative.solvers.log_determinant import (
    mean_of,
    quadrature,
    recorded_conjugate_gradients,
)
from latentgp.extensions.iterative.solvers.preconditioners.base import Identity
from latentgp.extensions.iterative.solvers.solution import BREAKDOWN, CONVERGED
from latentgp.extensions.neighbours.conditionals import Block
from latentgp.extensions.neighbours.latent_precision import (
    MOST_STEPS,
    PosteriorPrecision,
    mean_solved,
    perturbed,
    positive_part,
    row_times,
    solve_to,
    tolerance_of,
    without_negative,
)
from latentgp.extensions.neighbours.prior import Regression
from latentgp.modules import stored_as
from latentgp.numerics.cholesky import cholesky
from latentgp.numerics.small_matrices import small_eigh, small_inverse
from latentgp.typing import Array, NeighbourRows, RandomKey, RowLatents, Scalar

# Errors of evidences are of its square. Variances are off by more, as draws are few.
PROBE_TOLERANCE = 1e-4
_MOST_RECORDED = 200  # steps that quadrature reads
# Over twice what one of the same sites takes; one of 20 neighbours costs as much to make as 60.
_MOST_STEPS_KEPT = 30


def row_products(
    one: Float[Array, "N Q S"], other: Float[Array, "N Q S"], *, coupled: bool
) -> Float[Array, "N Q *R"]:
    """Means over draws of products: of latents of a row with each other, or each with itself."""
    if not coupled:
        return jnp.mean(one * other, axis=2)
    products = one @ jnp.swapaxes(other, 1, 2) / one.shape[2]
    return 0.5 * (products + jnp.swapaxes(products, 1, 2))


@stored_as("Solved")
class PrecisionSolves(NamedTuple):
    """Solves with the posterior precision A."""

    mean: Float[Array, "C Q"]  # A^-1 l
    left: Float[Array, "C Q S"]  # A^-1 z of probe vectors z with covariance P
    right: Float[Array, "C Q S"]  # P^-1 z: the mean of left right' is A^-1
    # variances of the posterior at the rows; covariances of a row's latents where sites couple them
    variance: Float[Array, "N Q *R"]
    log_determinant: Scalar  # of A
    standard_error: Scalar  # of the log-determinant
    residual: Scalar  # relative one of the mean; zero until a fit is finished
    # largest relative residual of the probe vectors' solves, which earlier files lack
    of_probes: Scalar | float = 0.0


def solved(
    M: PosteriorPrecision,
    diagonal: Float[Array, "N Q *R"],
    linear: RowLatents,
    key: RandomKey,
    probes: int,
    exact: bool,
) -> PrecisionSolves:
    """Mean, and all that probe vectors say; with `exact` there is one for each latent.

    A variance is 1 / A_ii + the mean of (x_i - z_i / A_ii)^2 over draws x = A^-1 z, z ~ N(0, A):
    of the row given all others, which is known, and of its mean given these (Sidén, Lindgren,
    Bolin & Villani 2018). Where a precision is negative there are no such draws, and with x = A^-1
    z and p = P^-1 z of probe vectors the square is (x_i - z_i / A_ii) p_i. Where latents are
    coupled A_ii is the block of a row, and squares are products with those of its other latents.
    """
    coupled = diagonal.ndim == 3
    given_others = small_inverse(diagonal) if coupled else 1 / diagonal
    right = M.from_rows(linear[..., None])
    if not probes:
        return _mean_alone(M.from_white(mean_solved(M, M.to_white(right)))[..., 0], diagonal)
    # Sweeps are of all columns at once: one of several costs little more than of one.
    if exact:
        units = jnp.eye(M.size, dtype=right.dtype)
        whole, noise = cholesky(M.times(units)), jnp.sqrt(M.size) * units
        every = jnp.concatenate([M.to_white(right), noise], axis=1)
        white = whole.inverse.T @ (whole.inverse @ every)
        log_det, error = 2 * whole.half_log_determinant, jnp.zeros((), right.dtype)
        of_probes, z = error, None
    else:
        noise = jax.random.rademacher(key, (M.size, probes), right.dtype)
        z = perturbed(M, jax.random.fold_in(key, 1), probes)
        first, drawn = jnp.split(M.to_white(jnp.concatenate([right, z], axis=2)), [1], axis=1)
        every = jnp.concatenate([first, noise, drawn], axis=1)
        tolerances = jnp.full(every.shape[1], PROBE_TOLERANCE).at[0].set(tolerance_of(M))
        recorded = recorded_conjugate_gradients(
            M, every, Identity(), tolerances, MOST_STEPS, _MOST_RECORDED
        )
        solution, broken = recorded.solution, recorded.broken[0]
        white = solution.value.at[:, 0].set(jnp.where(broken, jnp.nan, solution.value[:, 0]))
        log_det, error = mean_of(quadrature(recorded, slice(1, 1 + probes)))
        of_probes = jnp.max(solution.relative_residual[1:])
    found = M.from_white(jnp.concatenate([noise, white], axis=1))
    p, mean, x, draws = jnp.split(found, np.cumsum([noise.shape[1], 1, noise.shape[1]]), axis=2)
    by_others = row_times(given_others, M.from_preconditioner(noise)[: len(diagonal)])
    spread = row_products(M.at_rows(x) - by_others, M.at_rows(p), coupled=coupled)
    if z is not None:
        moved = M.at_rows(draws) - row_times(given_others, z[: len(diagonal)])
        by_draws = row_products(moved, moved, coupled=coupled)
        precision = M.sparse.precision
        values = small_eigh(precision)[0] if coupled else precision
        spread = jnp.where(jnp.any(values < 0), positive_part(spread), by_draws)
    log_det += M.log_determinant
    unknown, variance = jnp.zeros((), linear.dtype), given_others + spread
    return PrecisionSolves(mean[..., 0], x, p, variance, log_det, error, unknown, of_probes)


def mean_by_kept(
    M: PosteriorPrecision,
    fresh: Callable[[], PosteriorPrecision],
    diagonal: Float[Array, "N Q *R"],
    linear: RowLatents,
) -> tuple[PosteriorPrecision, PrecisionSolves]:
    """The mean alone, by a preconditioner of other sites, and the precision with what it took.

    That is `fresh`, with one of these sites, where the other takes many steps or breaks down: its
    sites may be far away, or of no proper posterior.
    """

    def attempt(state: _Attempt) -> _Attempt:
        M, _, anew, _ = state
        right = M.to_white(M.from_rows(linear[..., None]))
        most = jnp.where(anew, MOST_STEPS, _MOST_STEPS_KEPT)
        found = conjugate_gradients(M, right, tolerance=tolerance_of(M), max_steps=most)
        missed = ~anew & (found.code[0] != CONVERGED)
        white = jnp.where(found.code == BREAKDOWN, jnp.nan, found.value)
        M = jax.lax.cond(missed, fresh, lambda: M)
        return _Attempt(M, M.from_white(white)[..., 0], missed, ~missed)

    unknown = jax.eval_shape(lambda M: M.from_rows(linear[..., None])[..., 0], M)
    no = jnp.zeros((), bool)
    start = _Attempt(M, jnp.zeros(unknown.shape, unknown.dtype), no, no)
    end = jax.lax.while_loop(lambda state: ~state.ended, attempt, start)
    return end.operator, _mean_alone(end.mean, diagonal)


class _Attempt(NamedTuple):
    operator: PosteriorPrecision
    mean: Float[Array, "C Q"]
    anew: Bool[Array, ""]  # whether the preconditioner is of these sites
    ended: Bool[Array, ""]


def _mean_alone(mean: Float[Array, "C Q"], diagonal: Float[Array, "N Q *R"]) -> PrecisionSolves:
    none, nan = jnp.zeros((*mean.shape, 0), mean.dtype), jnp.asarray(jnp.nan)
    return PrecisionSolves(mean, none, none, jnp.zeros_like(diagonal), nan, nan, nan, nan)


def draws_of(M: PosteriorPrecision, key: RandomKey, number: int) -> Float[Array, "C Q S"]:
    """Draws A^-1 z, z ~ N(0, A), of coefficients less their mean.

    Where a precision is negative there is no such z: it counts as zero.
    """
    M = without_negative(M)
    return solve_to(M, perturbed(M, key, number), 10 * PROBE_TOLERANCE)


def diagonal_of(
    prior: Regression, neighbours: NeighbourRows, precision: Float[Array, "N Q *R"]
) -> Float[Array, "N Q *R"]:
    """Diagonal of A: 1 / D_i + W_i + the sum of A_ji^2 / D_j over those whose neighbour i is.

    Where latents are coupled, its blocks of the rows.
    """
    scaled = prior.weights**2 / prior.variance[..., None]
    block = Block.of(jnp.arange(len(precision)), jnp.asarray(neighbours))
    own = (1 / prior.variance)[..., None]
    sums = block.add(jnp.zeros_like(prior.variance), jnp.concatenate([scaled, own], axis=2))
    if precision.ndim == 2:
        return sums.T + precision
    identity = jnp.eye(precision.shape[1], dtype=precision.dtype)
    return sums.T[..., None] * identity + precision
