"""Filter and smoother of a state-space process in lanes, with its adjoint written by hand.

A series is cut into lanes of consecutive rows, and all lanes take a step at a time, each entry of
the small matrices an array over them. Evidence needs the lanes' elements and what joins them;
marginals and derivatives need the filter in each lane, from where the lane really begins, and the
adjoint back.

The adjoint (r, N) is that of de Jong (1988): the log evidence has the derivatives r in a predicted
mean and (r r' - N) / 2 in a predicted covariance, the smoothed mean is m + P r and the smoothed
covariance P - P N P.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.extensions.state_space import lanes as small
from latentgp.extensions.state_space.kernels import StateSpace
from latentgp.extensions.state_space.lanes import Matrix, UnrolledMatrix, number, scaled
from latentgp.extensions.state_space.markov.beliefs import (
    Adjoint,
    Belief,
    Filter,
    full_pair,
    updated_back,
    zeros,
)
from latentgp.extensions.state_space.markov.elements import elements_of, joined
from latentgp.extensions.state_space.markov.series import Lanes, Series
from latentgp.modules import stored_as
from latentgp.typing import Array


@stored_as("Filtered")
class FilterResult(NamedTuple):
    """Filter's results for the smoother."""

    # means and covariances of the state after the row before each, entries of shape (T, ...,
    # lanes), covariances without their upper half
    before: Any
    error: Float[Array, "T *Q lanes"]  # e = (l - w m) / S of each row, for S = 1 + w h'P h
    weight: Float[Array, "T *Q lanes"]  # w / S
    last: Belief  # mean and covariance where lanes end
    ends: Adjoint  # the adjoint where lanes end
    log_evidence: Float[Array, "*Q"]  # of each latent


@stored_as("Smoothed")
class SmoothedMarginals(NamedTuple):
    """Marginals of f at the rows, and the adjoint before each row's update, in lanes."""

    mean: Float[Array, "T *Q lanes"]
    variance: Float[Array, "T *Q lanes"]
    adjoint: Any


def filtered(
    process: Filter,
    series: Series,
    linear: Float[Array, "T *S lanes"],
    precision: Float[Array, "T *Q lanes"],
) -> FilterResult:
    """Filter sites in lanes; linear terms may have axes in front of those of the precisions."""
    like_mean, like_spread = linear[0], precision[0]
    size = process.space.size
    starts = Belief(zeros(size, 1, like_mean), zeros(size, size, like_spread))
    ends, found = Adjoint(*starts), None
    if linear.shape[-1] > 1:
        starts, ends, found = joined(process, elements_of(process, series, linear, precision))
    h, moves = process.measurement(like_spread), process.moves(series.lanes)

    def step(belief: Belief, at: Any) -> tuple[Belief, Any]:
        where, linear, precision, own = at
        A, Q, root = moves.of(process, where, own)
        mean = process.begun(A @ belief.mean, where)
        predicted = Belief(mean, process.moved(belief.spread, A, Q, root))
        after = process.update(predicted, h, linear, precision)
        mean, P = process.known(belief)
        out = (mean, _lower(P)), after.error, after.weight, after.value
        return full_pair(after.belief, like_mean, like_spread), out

    last, (before, error, weight, values) = jax.lax.scan(
        step, starts, (series.lanes, linear, precision, moves.each)
    )
    evidence = jnp.sum(values, axis=(0, -1)) if found is None else found
    last = full_pair(process.known(last), like_mean, like_spread)
    return FilterResult(before, error, weight, last, ends, evidence)


def smoothed(
    process: Filter,
    series: Series,
    precision: Float[Array, "T *Q lanes"],
    found: FilterResult,
    slopes: bool,
    readings: Matrix | None = None,
) -> tuple[SmoothedMarginals, StateSpace | None]:
    """Marginals at the rows; derivatives of the evidence in the process if wanted.

    Marginals are those of the readings, a column of states for each row, if not of f.
    """
    like_mean, like_spread = found.error[0], precision[0]
    h = process.measurement(like_spread)
    gap = series.lanes.gap[0]
    space = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, jnp.broadcast_shapes(jnp.shape(leaf), gap.shape)),
        process.space,
    )
    widest = max((jnp.shape(leaf) for leaf in jax.tree.leaves(space)), key=len, default=gap.shape)
    like_move, moves = jnp.zeros(widest, gap.dtype), process.moves(series.lanes)

    def move(space: StateSpace, at: Lanes) -> tuple[Matrix, Matrix]:
        A, Q = process.transition(at, space)
        return small.full(A, like_move), small.full(Q, like_move)

    def step(carry: Any, at: Any) -> tuple[Any, Any]:
        later, (mean, P), total = carry
        where, w, error, weight, (former, lower), reading, own = at
        u = P @ h
        read = h if reading is None else reading
        v = u if reading is None else P @ reading
        values = number(read.mT @ mean) + number(v.mT @ later.r)
        variances = number(read.mT @ v) - number(v.mT @ later.N @ v)
        now = updated_back(later, h, u, w, error, weight)
        before, cotangents = Belief(former, from_lower(lower)), None
        A = moves.of(process, where, own)[0]
        if slopes:
            in_P = now.r @ now.r.mT - now.N
            in_A = now.r @ former.mT + in_P @ (A @ before.spread)
            found_slopes = small.full(in_A, like_spread), small.full(scaled(in_P, 0.5), like_spread)
            cotangents = _over_latents(found_slopes, like_spread, like_move)
        if slopes and moves.each is None:
            _, pull = jax.vjp(lambda space: move(space, where), space)
            total, cotangents = jax.tree.map(jnp.add, total, pull(cotangents)[0]), None
        earlier = Adjoint(A.mT @ now.r, small.symmetric(A.mT @ now.N @ A))
        now = full_pair(now, like_mean, like_spread)
        carry = full_pair(earlier, like_mean, like_spread), before, total
        return carry, (values, variances, (now.r, _lower(now.N)), cotangents)

    none = jax.tree.map(jnp.zeros_like, space)
    rows = series.lanes, precision, found.error, found.weight, found.before, readings, moves.each
    (_, _, total), (mean, variance, adjoint, cotangents) = jax.lax.scan(
        step, (found.ends, found.last, none), rows, reverse=True
    )
    if cotangents is not None:
        _, pull = jax.vjp(lambda space: jax.vmap(move, (None, 0))(space, series.lanes), space)
        total = pull(cotangents)[0]
    slope = jax.tree.map(_sum_to, total, process.space) if slopes else None
    return SmoothedMarginals(mean, variance, adjoint), slope


def _over_latents(matrices: Any, like: Any, wanted: Any) -> Any:
    """Matrices summed over the latents that share a transition."""
    if like.shape == wanted.shape:
        return matrices
    extra = tuple(range(like.ndim - wanted.ndim))
    return jax.tree.map(lambda leaf: jnp.sum(leaf, axis=extra), matrices)


def _sum_to(values: Any, like: Any) -> Any:
    """Values over lanes summed to the shape of the leaf they belong to."""
    shape = jnp.shape(like)
    values = jnp.sum(values, axis=tuple(range(values.ndim - len(shape))))
    narrow = tuple(i for i, n in enumerate(shape) if n == 1)
    return jnp.sum(values, axis=narrow, keepdims=True) if narrow else values


def _lower(M: Matrix) -> Any:
    """The lower half of a symmetric matrix."""
    if not isinstance(M, UnrolledMatrix):
        return M
    return tuple(row[: i + 1] for i, row in enumerate(M.rows))


def from_lower(lower: Any) -> Matrix:
    """A symmetric matrix of its lower half."""
    return small.symmetric(UnrolledMatrix(lower)) if isinstance(lower, tuple) else lower
