"""`Dense` with rows over devices: no device has a matrix of N x N numbers.

Every device has the rows of the inverse factor of B = I + W^1/2 K W^1/2 that are its own; kernel
values are made tile by tile where they are used. Everything here is as in `dense`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from jaxtyping import Float, PyTree

from latentgp.extensions.sharded.cholesky import (
    Layout,
    ShardedFactor,
    over_inverse,
    sharded_cholesky,
)
from latentgp.kernels import Kernel, LatentKernel
from latentgp.likelihoods.base import Marginals
from latentgp.numerics.cholesky import Factor
from latentgp.representations.dense import DensePosterior
from latentgp.representations.latent_axis import distinct_kernels, split_linear
from latentgp.runtime.mesh import ROWS, number_of_shards, summed
from latentgp.typing import Array, Inputs, PerRow, RowLatents, Scalar

# Below this product of precision and prior variance, marginals are computed the long way.
_WEAK_SITE = 1e-6

_ALIKE, _ROWS, _COLUMNS = PartitionSpec(), PartitionSpec(ROWS), PartitionSpec(None, ROWS)


class _Tiles(NamedTuple):
    """The Gram matrix of one kernel, as a device makes it."""

    kernel: Kernel  # the covariance function
    layout: Layout  # of the rows
    own: Float[Array, "own D"]  # the device's inputs, filled up
    every: Float[Array, "all D"]  # all inputs in elimination order

    def columns(self, j: Any, first: int, last: int) -> Float[Array, "own B"]:
        """Covariances of the device's blocks first to last (exclusive) with block j."""
        width = self.layout.width
        own = self.own[first * width : last * width]
        K = self.kernel.gram(own, self.layout.block(self.every, j))
        # The diagonal is free of the rounding of distances.
        return jnp.where(self.diagonal(j, first, last), self.kernel.diagonal(own)[:, None], K)

    def diagonal(self, j: Any, first: int, last: int) -> Any:
        """Where the diagonal of the matrix is."""
        width = self.layout.width
        numbers = self.layout.numbers(first)[: (last - first) * width]
        place = jnp.arange(len(numbers)) % width
        return (numbers == j)[:, None] & (place[:, None] == jnp.arange(width))

    def times(self, every: Float[Array, "all S"]) -> Float[Array, "own S"]:
        """Own rows of K times a matrix that every device has."""
        layout = self.layout

        def add(j: Any, total: Any) -> Any:
            # The barrier keeps the kernel's loop out of the products (see numerics/sums.py).
            K = jax.lax.optimization_barrier(self.columns(j, 0, layout.blocks))
            return total + K @ layout.block(every, j)

        nothing = jnp.zeros((layout.filled, every.shape[1]), every.dtype)
        return jax.lax.fori_loop(0, layout.blocks * layout.devices, add, nothing)


def _tiles(kernel: LatentKernel, system: int, layout: Layout, X: Inputs) -> _Tiles:
    each, every = distinct_kernels(kernel), layout.in_turn(X, "edge")
    return _Tiles(each[system % len(each)], layout, layout.own(every), every)


def condition(
    kernel: LatentKernel, X: Inputs, linear: RowLatents, precision: Float[Array, "N #Q"]
) -> DensePosterior:
    """Prior times sites, as `Dense.condition`; sites are functions of g, precisions positive.

    Every device has all but R, whose rows are over the devices.
    """
    X, linear, precision = _filled((X, linear, precision))

    def own(kernel: Any, X: Any, linear: Any, precision: Any) -> tuple[Any, ...]:
        layout = Layout.of(len(X))
        ends = np.cumsum([X.shape[1], linear.shape[1]])
        table = jax.lax.all_gather(jnp.concatenate([X, linear, precision], 1), ROWS, tiled=True)
        X, linear, precision = jnp.split(table, ends, axis=1)
        done, found = jnp.sum(X), []
        for system, latents in enumerate(_systems(kernel, precision.shape[1], linear.shape[1])):
            tiles = _tiles(kernel, system, layout, X)
            root = jnp.sqrt(precision[:, system % precision.shape[1]])
            found.append(_solved(tiles, linear[:, jnp.array(latents)], root, done))
            done = found[-1][-1]
        weights, inverses, evidence, kl = zip(*found, strict=True)
        weights = jnp.concatenate(weights, axis=1)
        return X, weights.T, precision.T, jnp.stack(inverses), sum(evidence), sum(kl)

    out = _ALIKE, _ALIKE, _ALIKE, _COLUMNS, _ALIKE, _ALIKE
    spread = jax.shard_map(
        own, in_specs=(_ALIKE, _ROWS, _ROWS, _ROWS), out_specs=out, check_vma=False
    )
    X, weights, precision, inverse, log_evidence, kl = spread(kernel, X, linear, precision)
    nothing = jnp.zeros((), X.dtype)
    return DensePosterior(
        kernel=kernel,
        X=X,
        weights=weights,
        precision=precision,
        root_precision=jnp.sqrt(precision),
        factor=Factor(jnp.zeros((len(inverse), 0, 0), X.dtype), inverse),
        raised=jnp.zeros((len(weights), 0, len(X)), X.dtype),
        log_evidence=log_evidence,
        kl=kl,
        jitter=nothing,
        trace_term=nothing,
    )


def pull_back(posterior: DensePosterior, X: Inputs) -> tuple[LatentKernel, Marginals]:
    """Derivative of the log evidence in the kernel, and the marginals at the rows.

    Half of a a' - W^1/2 B^-1 W^1/2 summed over latent functions is the derivative in K. Blocks of
    columns of it are made from the diagonal down, and pulled back through the kernel at once.
    """
    kernel, weights, precision = posterior.kernel, posterior.weights, posterior.precision
    inverse = posterior.factor.inverse
    size = len(X)
    (X,) = _filled((X,))

    def own(kernel: Any, X: Any, weights: Any, precision: Any, inverse: Any) -> Any:
        X = jax.lax.all_gather(X, ROWS, tiled=True)
        layout = Layout.of(inverse.shape[1])
        slopes, done = jax.tree.map(jnp.zeros_like, kernel), jnp.sum(X)
        means, variances = jnp.zeros_like(weights), jnp.zeros_like(weights)
        for system, latents in enumerate(_systems(kernel, len(precision), len(weights))):
            R = layout.to_blocks(inverse[system])
            factor = ShardedFactor(layout, R, jnp.full((), jnp.nan, R.dtype))
            root = jnp.sqrt(precision[system % len(precision)])
            tiles, chosen = _tiles(kernel, system, layout, X), jnp.array(latents)
            variance = _variances(tiles, factor, root, done)
            variances = variances.at[chosen].set(variance)
            slopes = jax.tree.map(lambda a, v=variance: a + 0 * jnp.sum(v), slopes)
            a = layout.in_turn(weights[chosen].T)
            slopes = _slope(kernel, system, X, factor, layout.in_turn(root), a, slopes)
            means = means.at[chosen].set(layout.in_rows(_gathered(tiles, a, slopes)).T)
            done = jnp.sum(means)
        me = jax.lax.axis_index(ROWS) * layout.rows
        marginals = (jax.lax.dynamic_slice_in_dim(a.T, me, layout.rows) for a in (means, variances))
        return summed(slopes), Marginals(*marginals)

    spread = jax.shard_map(
        own,
        in_specs=(_ALIKE, _ROWS, _ALIKE, _ALIKE, _COLUMNS),
        out_specs=(_ALIKE, _ROWS),
        check_vma=False,
    )
    in_kernel, marginals = spread(kernel, X, weights, precision, inverse)
    return in_kernel, jax.tree.map(lambda a: a[:size], marginals)


def _gathered(tiles: _Tiles, every: Float[Array, "all S"], done: PyTree) -> Float[Array, "all S"]:
    """K times a matrix, on every device, after what is done."""
    last = sum(jnp.sum(leaf) for leaf in jax.tree.leaves(done))
    return tiles.layout.every(tiles.times(every) + 0 * last)


def _solved(
    tiles: _Tiles, linear: Float[Array, "N S"], root: PerRow, done: Scalar
) -> tuple[Any, ...]:
    """Weights of the latent functions of one system, own rows of R, evidence and KL."""
    layout, latents = tiles.layout, linear.shape[1]
    root = layout.in_turn(root)
    own_root, scale = layout.own(root), root[:, None]

    def columns(j: Any, last: int) -> Any:
        K = jax.lax.optimization_barrier(tiles.columns(j, 0, last))
        scaled = own_root[: len(K), None] * K * layout.block(root, j)
        return scaled + tiles.diagonal(j, 0, last)

    factor = sharded_cholesky(columns, layout, done)
    logarithm = factor.half_log_determinant
    diagonal = 1 + root**2 * tiles.kernel.diagonal(tiles.every)
    split = jax.vmap(lambda own: split_linear(own, root, diagonal), 1, 1)
    ratio, rest = split(layout.in_turn(linear))
    K_rest = jax.lax.cond(
        jnp.any(rest != 0), lambda: _gathered(tiles, rest, logarithm), lambda: 0 * rest
    )
    h = ratio - scale * K_rest
    v, squares, trace = factor.solve(h + 0 * logarithm)
    weights = rest + scale * v
    across = jnp.sum(rest * K_rest)
    explained = jnp.sum(ratio**2) + across - jnp.sum(squares)
    # The mean times the weights: B v = h.
    norm = across + jnp.sum(v * (2 * scale * K_rest + h - v))
    divergence = latents * (trace - len(root)) + norm
    return (
        layout.in_rows(weights),
        layout.to_rows(factor.inverse),
        0.5 * explained - latents * logarithm,
        0.5 * divergence + latents * logarithm,
    )


def _slope(
    kernel: LatentKernel,
    system: int,
    X: Inputs,
    factor: ShardedFactor,
    root: Float[Array, "all"],
    weights: Float[Array, "all S"],
    slopes: LatentKernel,
) -> LatentKernel:
    """The device's part of the derivative in the kernel, added to those of other systems."""
    layout, latents = factor.layout, weights.shape[1]
    own_root, own_weights = layout.own(root), layout.own(weights)

    def add(slopes: Any, j: Any, first: int, inverse: Any) -> Any:
        chosen = slice(first * layout.width, None)
        lost = own_root[chosen, None] * inverse * layout.block(root, j)
        slope = own_weights[chosen] @ layout.block(weights, j).T - latents * lost
        # The part above the diagonal is that below.
        numbers = layout.numbers(first)
        counts = jnp.where(numbers > j, 1.0, jnp.where(numbers == j, 0.5, 0.0))
        _, pull = jax.vjp(
            lambda kernel: _tiles(kernel, system, layout, X).columns(j, first, layout.blocks),
            kernel,
        )
        (more,) = pull((counts[:, None] * slope).astype(slope.dtype))
        return jax.tree.map(jnp.add, slopes, more)

    return over_inverse(add, slopes, factor)


def _variances(tiles: _Tiles, factor: ShardedFactor, root: PerRow, done: Scalar) -> PerRow:
    """Variances at the rows, (1 - [B^-1]_nn) / w_n.

    Where a row says little, k - |R W^1/2 k_n|^2, which takes as long as the factor; where it says
    nothing, such as padding, the prior variance, which no derivative reads.
    """
    layout = tiles.layout
    root = layout.in_turn(root)
    precision, prior, own_root = root**2, tiles.kernel.diagonal(tiles.every), layout.own(root)

    def from_sites() -> Any:
        inverse = jax.lax.psum(jnp.sum(factor.inverse**2, axis=0) + 0 * done, ROWS)
        return (1 - inverse) / jnp.where(precision > 0, precision, 1.0)

    def from_gram() -> Any:
        def block(j: Any, explained: Any) -> Any:
            K = own_root[:, None] * tiles.columns(j, 0, layout.blocks)
            sums = jnp.sum((factor.inverse @ layout.every(K)) ** 2, axis=0)
            return jax.lax.dynamic_update_slice_in_dim(explained, sums, j * layout.width, 0)

        nothing = jnp.zeros_like(root) + 0 * done
        explained = jax.lax.fori_loop(0, layout.blocks * layout.devices, block, nothing)
        return prior - jax.lax.psum(explained, ROWS)

    weak = (precision > 0) & (precision * prior <= _WEAK_SITE)
    variance = jax.lax.cond(jnp.any(weak), from_gram, from_sites)
    variance = jnp.clip(variance, 0.0, prior)
    return layout.in_rows(jnp.where(precision > 0, variance, prior))


def _systems(kernel: LatentKernel, precisions: int, latents: int) -> list[list[int]]:
    """Latent functions of each matrix B: of one, where these share a kernel and precisions."""
    if len(distinct_kernels(kernel)) == precisions == 1:
        return [list(range(latents))]
    return [[q] for q in range(latents)]


def _filled(rows: PyTree) -> PyTree:
    """Rows up to a multiple of the devices: copies of the last input, of sites that say nothing."""
    X, *sites = rows
    more = -len(X) % number_of_shards()
    if not more:
        return rows
    X = jnp.pad(X, ((0, more), (0, 0)), mode="edge")
    return X, *(jnp.pad(a, ((0, more), (0, 0))) for a in sites)
