"""`Dense` with rows over devices: no device has a matrix of N x N numbers.

Every device has the rows of the inverse factor of B = I + W^1/2 K W^1/2 that are its own; kernel
values are made tile by tile where they are used. Everything here is as in `dense`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
from jaxtyping import Float, PyTree

from latentgp.kernels import Kernel, LatentKernel
from latentgp.likelihoods.base import Marginals
from latentgp.numerics.sharded_cholesky import Layout, ShardedFactor, over_inverse, sharded_cholesky
from latentgp.representations.latent_axis import distinct_kernels, split_linear
from latentgp.runtime.mesh import ROWS, number_of_shards
from latentgp.typing import Array

# Below this product of precision and prior variance, marginals are computed the long way.
_WEAK_SITE = 1e-6

_ALIKE, _ROWS, _COLUMNS = PartitionSpec(), PartitionSpec(ROWS), PartitionSpec(None, ROWS)


class Conditioned(NamedTuple):
    """Posterior given sites, of N rows filled up to a multiple of the devices.

    Attributes:
        X: inputs, on every device, shape (N, D).
        weights: K^-1 times the posterior mean, on every device, shape (Q, N).
        precision: W, on every device, shape (#Q, N).
        inverse: R with R B R' = I, its rows over the devices, shape (#Q, N, N).
        log_evidence: without the sites' own constants, in nats.
        kl: from the prior to the posterior, in nats.
    """

    X: Float[Array, "N D"]
    weights: Float[Array, "Q N"]
    precision: Float[Array, "#Q N"]
    inverse: Float[Array, "#Q N N"]
    log_evidence: Float[Array, ""]
    kl: Float[Array, ""]


class _Tiles(NamedTuple):
    """The Gram matrix of one kernel, as a device makes it.

    Attributes:
        kernel: the covariance function.
        layout: of the rows.
        own: the device's inputs, filled up.
        every: all inputs in elimination order.
    """

    kernel: Kernel
    layout: Layout
    own: Float[Array, "F D"]
    every: Float[Array, "A D"]

    def columns(self, j: Any, first: int, last: int) -> Float[Array, "F B"]:
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

    def times(self, every: Float[Array, "A S"]) -> Float[Array, "F S"]:
        """Own rows of K times a matrix that every device has."""
        layout = self.layout

        def add(j: Any, total: Any) -> Any:
            # The barrier keeps the kernel's loop out of the products (see numerics/sums.py).
            K = jax.lax.optimization_barrier(self.columns(j, 0, layout.blocks))
            return total + K @ layout.block(every, j)

        nothing = jnp.zeros((layout.filled, every.shape[1]), every.dtype)
        return jax.lax.fori_loop(0, layout.blocks * layout.devices, add, nothing)


class _Own(NamedTuple):
    """What a device knows of the rows.

    Attributes:
        layout: of the rows.
        X: the device's inputs, filled up.
        every: all inputs in elimination order.
    """

    layout: Layout
    X: Float[Array, "F D"]
    every: Float[Array, "A D"]

    @classmethod
    def of(cls, X: Float[Array, "R D"]) -> "_Own":
        layout = Layout.of(len(X))
        own = layout.fill(X, mode="edge")
        return cls(layout, own, layout.every(own))

    def tiles(self, kernel: LatentKernel, system: int) -> _Tiles:
        each = distinct_kernels(kernel)
        return _Tiles(each[system % len(each)], self.layout, self.X, self.every)


def condition(
    kernel: LatentKernel,
    X: Float[Array, "N D"],
    linear: Float[Array, "N Q"],
    precision: Float[Array, "N #Q"],
) -> Conditioned:
    """Prior times sites, as `Dense.condition`; sites are functions of g, precisions positive."""
    X, linear, precision = _filled((X, linear, precision))

    def own(kernel: Any, X: Any, linear: Any, precision: Any) -> Conditioned:
        rows = _Own.of(X)
        systems = _systems(kernel, precision.shape[1], linear.shape[1])
        found = []
        for system, latents in enumerate(systems):
            root = jnp.sqrt(precision[:, system % precision.shape[1]])
            chosen = linear[:, jnp.array(latents)]
            found.append(_solved(rows.tiles(kernel, system), chosen, root))
        weights, inverses, evidence, kl = zip(*found, strict=True)
        every = [jax.lax.all_gather(a, ROWS, tiled=True) for a in (X, precision)]
        weights = jax.lax.all_gather(jnp.concatenate(weights, axis=1), ROWS, tiled=True)
        return Conditioned(
            every[0], weights.T, every[1].T, jnp.stack(inverses), sum(evidence), sum(kl)
        )

    out = Conditioned(_ALIKE, _ALIKE, _ALIKE, _COLUMNS, _ALIKE, _ALIKE)
    spread = jax.shard_map(
        own, in_specs=(_ALIKE, _ROWS, _ROWS, _ROWS), out_specs=out, check_vma=False
    )
    return spread(kernel, X, linear, precision)


def pull_back(
    kernel: LatentKernel,
    X: Float[Array, "N D"],
    weights: Float[Array, "Q M"],
    precision: Float[Array, "#Q M"],
    inverse: Float[Array, "#Q M M"],
) -> tuple[LatentKernel, Marginals]:
    """Derivative of the log evidence in the kernel, and the marginals at the rows.

    Half of a a' - W^1/2 B^-1 W^1/2 summed over latent functions is the derivative in K. Blocks of
    columns of it are made from the diagonal down, and pulled back through the kernel at once.

    Args:
        kernel: of the prior.
        X: inputs of the rows.
        weights: of `condition`, and so are those that follow; M of them are N, filled up.
        precision: W.
        inverse: R.
    """
    size = len(X)
    (X,) = _filled((X,))

    def own(kernel: Any, X: Any, weights: Any, precision: Any, inverse: Any) -> Any:
        rows = _Own.of(X)
        slopes = jax.tree.map(jnp.zeros_like, kernel)
        systems = _systems(kernel, len(precision), len(weights))
        means, variances = jnp.zeros_like(weights), jnp.zeros_like(weights)
        for system, latents in enumerate(systems):
            factor = ShardedFactor(rows.layout, rows.layout.to_blocks(inverse[system]), jnp.nan)
            root = jnp.sqrt(precision[system % len(precision)])
            chosen = jnp.array(latents)
            a = rows.layout.fill(weights[chosen].T)
            slopes = _slope(rows, kernel, system, factor, rows.layout.fill(root), a, slopes)
            tiles = rows.tiles(kernel, system)
            mean = tiles.times(rows.layout.every(a))[: len(X)]
            means = means.at[chosen].set(mean.T)
            variances = variances.at[chosen].set(_variances(tiles, factor, root))
        return jax.lax.psum(slopes, ROWS), Marginals(means.T, variances.T)

    spread = jax.shard_map(
        own,
        in_specs=(_ALIKE, _ROWS, _COLUMNS, _COLUMNS, _COLUMNS),
        out_specs=(_ALIKE, _ROWS),
        check_vma=False,
    )
    in_kernel, marginals = spread(kernel, X, weights, precision, inverse)
    return in_kernel, jax.tree.map(lambda a: a[:size], marginals)


def _solved(tiles: _Tiles, linear: Float[Array, "R C"], root: Float[Array, "R"]) -> tuple[Any, ...]:
    """Own weights of the latent functions of one system, own rows of R, evidence and KL."""
    layout, latents = tiles.layout, linear.shape[1]
    own_root = layout.fill(root)
    every_root = layout.every(own_root)

    def columns(j: Any, last: int) -> Any:
        K = jax.lax.optimization_barrier(tiles.columns(j, 0, last))
        scaled = own_root[: len(K), None] * K * layout.block(every_root, j)
        return scaled + tiles.diagonal(j, 0, last)

    factor = sharded_cholesky(columns, layout, root.dtype)
    diagonal = 1 + own_root**2 * tiles.kernel.diagonal(tiles.own)
    linear = layout.fill(linear)
    ratio, rest = jax.vmap(lambda own: split_linear(own, own_root, diagonal), 1, 1)(linear)
    some = jax.lax.psum(jnp.sum(rest != 0), ROWS) > 0
    K_rest = jax.lax.cond(
        some, lambda: tiles.times(layout.every(rest)), lambda: jnp.zeros_like(rest)
    )
    half = factor.solve_lower(layout.every(ratio - own_root[:, None] * K_rest))
    weights = rest + own_root[:, None] * factor.solve_upper(half)
    mean = tiles.times(layout.every(weights))
    sums = jnp.stack(
        [
            jnp.sum(ratio**2) + jnp.sum(rest * K_rest) - jnp.sum(half**2),
            latents * (jnp.sum(factor.inverse**2) - layout.filled) + jnp.sum(mean * weights),
        ]
    )
    explained, divergence = jax.lax.psum(sums, ROWS)
    logarithm = latents * factor.half_log_determinant
    return (
        weights[: layout.rows],
        layout.to_rows(factor.inverse),
        0.5 * explained - logarithm,
        0.5 * divergence + logarithm,
    )


def _slope(
    rows: _Own,
    kernel: LatentKernel,
    system: int,
    factor: ShardedFactor,
    root: Float[Array, "F"],
    weights: Float[Array, "F C"],
    slopes: LatentKernel,
) -> LatentKernel:
    """The device's part of the derivative in the kernel, added to those of other systems."""
    layout = rows.layout
    every_root, every_weights = layout.every(root), layout.every(weights)
    latents = weights.shape[1]

    def add(slopes: Any, j: Any, first: int, inverse: Any) -> Any:
        chosen = slice(first * layout.width, None)
        lost = root[chosen, None] * inverse * layout.block(every_root, j)
        slope = weights[chosen] @ layout.block(every_weights, j).T - latents * lost
        # The part above the diagonal is that below.
        numbers = layout.numbers(first)
        counts = jnp.where(numbers > j, 1.0, jnp.where(numbers == j, 0.5, 0.0))
        _, pull = jax.vjp(
            lambda kernel: rows.tiles(kernel, system).columns(j, first, layout.blocks), kernel
        )
        (more,) = pull((counts[:, None] * slope).astype(slope.dtype))
        return jax.tree.map(jnp.add, slopes, more)

    return over_inverse(add, slopes, factor)


def _variances(tiles: _Tiles, factor: ShardedFactor, root: Float[Array, "R"]) -> Float[Array, "R"]:
    """Variances at own rows, (1 - [B^-1]_nn) / w_n.

    Where a row says little, k - |R W^1/2 k_n|^2, which takes as long as the factor; where it says
    nothing, such as padding, the prior variance, which no derivative reads.
    """
    layout, size = tiles.layout, len(root)
    precision, prior = root**2, tiles.kernel.diagonal(tiles.own)[:size]
    own_root = layout.fill(root)

    def from_sites() -> Any:
        inverse = layout.summed_own(jnp.sum(factor.inverse**2, axis=0)[None])[:size, 0]
        return (1 - inverse) / jnp.where(precision > 0, precision, 1.0)

    def from_gram() -> Any:
        def block(j: Any, explained: Any) -> Any:
            K = own_root[:, None] * tiles.columns(j, 0, layout.blocks)
            sums = jnp.sum(factor.solve_lower(layout.every(K)) ** 2, axis=0)
            return jax.lax.dynamic_update_slice_in_dim(explained, sums, j * layout.width, 0)

        nothing = jnp.zeros(layout.filled * layout.devices, root.dtype)
        explained = jax.lax.fori_loop(0, layout.blocks * layout.devices, block, nothing)
        return prior - layout.summed_own(explained[None])[:size, 0]

    weak = (precision > 0) & (precision * prior <= _WEAK_SITE)
    some = jax.lax.psum(jnp.sum(weak), ROWS) > 0
    variance = jnp.clip(jax.lax.cond(some, from_gram, from_sites), 0.0, prior)
    return jnp.where(precision > 0, variance, prior)


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
