"""Draws of a state-space process, before and after the sites (Durbin & Koopman 2002)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.extensions.state_space import lanes as small
from latentgp.extensions.state_space.lanes import Matrix, UnrolledMatrix, number
from latentgp.extensions.state_space.markov.beliefs import Filter, zeros
from latentgp.extensions.state_space.markov.processes import together
from latentgp.extensions.state_space.markov.series import Series
from latentgp.typing import Array, RandomKey, RowLatents


def prior_draw(
    process: Filter,
    series: Series,
    key: RandomKey,
    shape: tuple[int, ...],
    readings: Matrix | None = None,
) -> tuple[Float[Array, "N *S"], Float[Array, "N *S"]]:
    """Draws of f at the rows from the prior, with axes such as one for latent functions behind.

    Beside them what is read of the states if that is something else.

    Each lane is drawn from a state of zero, and moved by where the lane before it ends.
    """
    gap = series.lanes.gap
    steps, lanes = gap.shape
    size = process.space.size
    like = jnp.zeros((*shape, lanes), gap.dtype)
    keys = jax.random.split(key, steps)
    h = process.measurement(gap[0])

    def drawn(x: Any, where: Any, key: Any) -> tuple[Any, Any]:
        A, Q = process.transition(where)
        noise = jax.random.normal(key, (size, *like.shape), like.dtype)
        white = small.matrix([[entry] for entry in noise], like)
        return A, small.full(A @ x + small.semidefinite_root(Q) @ white, like)

    def onward(carry: Any, at: Any) -> tuple[Any, None]:
        x, Phi = carry
        A, moved = drawn(x, *at)
        return (moved, small.full(A @ Phi, like)), None

    def final(x: Any, at: Any) -> tuple[Any, Any]:
        where, key, reading = at
        _, moved = drawn(x, where, key)
        read = h if reading is None else reading
        return moved, (number(h.mT @ moved), number(read.mT @ moved))

    begin = zero = zeros(size, 1, like)
    unit = small.full(small.matrix(small.identity(size).rows, like), like)
    if lanes > 1:
        (ends, Phi), _ = jax.lax.scan(onward, (zero, unit), (series.lanes, keys))
        axis = -1 if isinstance(ends, UnrolledMatrix) else -3
        each = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, axis, 0), (ends, Phi))
        first = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), each[0])
        _, starts = jax.lax.scan(lambda x, at: (at[1] @ x + at[0], x), first, each)
        begin = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, axis), starts)
    _, values = jax.lax.scan(final, begin, (series.lanes, keys, readings))
    f, read = map(series.to_rows, values)
    return f, read


def perturbation(
    filters: list[Filter],
    groups: list[tuple[int, ...]],
    series: Series,
    precision: RowLatents,
    key: RandomKey,
    number: int,
    readings: list[Matrix] | None = None,
) -> tuple[Float[Array, "N S Q"], Float[Array, "N S Q"]]:
    """Draws of the prior, and linear terms whose posterior mean makes deviations of them.

    With prior draws f and noise e the linear terms are -W f - W^1/2 e: f plus the mean that these
    give is a draw of the posterior less its mean.
    """
    keys = jax.random.split(key, len(filters) + 1)
    each = zip(filters, groups, keys[1:], readings or [None] * len(filters), strict=True)
    drawn = [
        prior_draw(process, series, own, (number, len(group)), reading)
        for process, group, own, reading in each
    ]
    prior, read = (together([pair[i] for pair in drawn], groups) for i in range(2))
    noise = jax.random.normal(keys[0], prior.shape, prior.dtype)
    held = jnp.maximum(precision, 0.0)[:, None]
    return read, -held * prior - jnp.sqrt(held) * noise
