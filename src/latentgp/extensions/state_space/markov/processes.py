"""Processes of the latent functions, those of one structure side by side, and draws of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.extensions.state_space import lanes as small
from latentgp.extensions.state_space.kernels import (
    StateSpace,
    Truncation,
    state_space,
    time_columns,
)
from latentgp.extensions.state_space.lanes import Matrix, UnrolledMatrix, number
from latentgp.extensions.state_space.markov.beliefs import Filter, zeros
from latentgp.extensions.state_space.markov.filtering import (
    FilterResult,
    SmoothedMarginals,
    filtered,
    smoothed,
)
from latentgp.extensions.state_space.markov.series import Series
from latentgp.kernels import LatentKernel, OwnKernels, PerLatent
from latentgp.kernels.per_latent import in_latent_order, kernel_groups
from latentgp.modules import stored_as
from latentgp.typing import Array, RandomKey, RowLatents


@stored_as("Conditioned")
class ProcessPosterior(NamedTuple):
    """The posterior of some latent functions of one structure, in lanes."""

    process: Filter
    filtered: FilterResult
    smoothed: SmoothedMarginals


def latents_of_groups(kernel: LatentKernel, inputs: int, latents: int) -> list[tuple[int, ...]]:
    """Numbers of the latent functions whose processes are of one structure."""
    if not isinstance(kernel, OwnKernels):
        return [tuple(range(latents))]
    own = PerLatent(*time_columns(kernel, inputs)[1])
    return [group.latents for group in kernel_groups(own, latents)]


def spaces_of(kernel: LatentKernel, inputs: int, truncation: Truncation) -> list[StateSpace]:
    """State-space forms of the groups, their leaves numbers, or of shape (Q, 1) for Q latents.

    Differentiable in the kernel.
    """
    _, own = time_columns(kernel, inputs)
    if not isinstance(kernel, OwnKernels):
        return [state_space(own[0], truncation)]
    groups = kernel_groups(PerLatent(*own), len(own))
    stacked = [jax.vmap(lambda k: state_space(k, truncation))(group.kernels) for group in groups]
    return [jax.tree.map(lambda leaf: leaf[:, None], space) for space in stacked]


def in_groups(
    values: Float[Array, "T *S Q lanes"], groups: list[tuple[int, ...]]
) -> list[Float[Array, "T *S _ lanes"]]:
    """Values of each group's latents."""
    return [values] if len(groups) == 1 else [values[..., jnp.asarray(g), :] for g in groups]


def together(
    values: list[Float[Array, "N *S _"]], groups: list[tuple[int, ...]]
) -> Float[Array, "N *S Q"]:
    """Values of all latents from those of each group."""
    if len(groups) == 1:
        return values[0]
    return jnp.moveaxis(
        in_latent_order(groups, [jnp.moveaxis(part, -1, 0) for part in values]), 0, -1
    )


def readings_of(
    measurements: list[list[tuple[float, ...]]], coefficients: Float[Array, "columns *S"]
) -> list[Matrix]:
    """Columns of states that read sums of parts, for each process."""
    like = coefficients[0]

    def entry(own: tuple[float, ...]) -> Any:
        return sum((a * h for a, h in zip(coefficients, own, strict=True) if h), start=0.0)

    columns = ([[entry(own)] for own in zip(*parts, strict=True)] for parts in measurements)
    return [small.full(small.matrix(column, like), like) for column in columns]


def means_given(
    filters: list[Filter],
    groups: list[tuple[int, ...]],
    series: Series,
    linear: Float[Array, "N *S Q"],
    precision: RowLatents,
    readings: list[Matrix] | None = None,
) -> Float[Array, "N *S Q"]:
    """Posterior means at the rows given sites: linear in their linear terms.

    They are means of the readings of each process, if not of f.
    """
    each = (in_groups(series.to_lanes(values), groups) for values in (linear, precision))
    found = []
    for process, told, w, own in zip(
        filters, *each, readings or [None] * len(filters), strict=True
    ):
        mean = smoothed(process, series, w, filtered(process, series, told, w), False, own)[0].mean
        found.append(series.to_rows(mean))
    return together(found, groups)


def prior_draw(
    process: Filter,
    series: Series,
    key: RandomKey,
    shape: tuple[int, ...],
    readings: Matrix | None = None,
) -> tuple[Float[Array, "N *S"], Float[Array, "N *S"]]:
    """Draws of f at the rows from the prior, and of what is read of the states if not f.

    Further axes are behind, such as one for latent functions. Each lane is drawn from a state of
    zero, and moved by where the lane before it ends.
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
    give is a draw of the posterior less its mean (Durbin & Koopman 2002).
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
