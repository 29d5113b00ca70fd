"""A low rank and, of what it leaves, each row given its neighbours (Gyger, Furrer & Sigrist 2025).

With white inducing variables v ~ N(0, I), Phi = K_xz L^-T and L L' = K_zz, latent functions are
Phi v and a residual of covariance K - Phi Phi'. In units of the sites' noise pseudo-targets are

    r = F v + t,   F = W^1/2 Phi,   t ~ N(0, I + W^1/2 (K - Phi Phi') W^1/2),

and for the law of t stands prod_i N(t_i | t_c(i)) = N(0, (U'U)^-1), U with rows (-A, 1) / sqrt(d).
So U r has unit noise about U F v: with E = U F and e = U r the precision of v is I + E'E and its
linear term E'e.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from latentgp.extensions.neighbours.conditionals import (
    Block,
    ScaledSites,
    Slopes,
    given,
    grams_at,
    scan_blocks,
    turned,
    whitening_rows,
)
from latentgp.kernels import LatentKernel
from latentgp.modules import stored
from latentgp.numerics.cholesky import Factor, cholesky, differentiable_cholesky
from latentgp.numerics.triangular import solve_lower
from latentgp.representations.latent_axis import over_sharing, vmap_latents
from latentgp.representations.variables import Centres, covariance_of, cross_covariance
from latentgp.runtime.row_scan import scan_rows
from latentgp.typing import Array, Coefs, Inputs, NeighbourRows, Scalar


@stored
class LowRankPrior(NamedTuple):
    """Features of the rows."""

    points: Centres  # inducing points Z, or other inducing variables
    inverse: Float[Array, "#Q M M"]  # L^-1, of K_zz + jitter
    features: Float[Array, "#Q N M"]  # Phi


def features_if_any(low_rank: LowRankPrior | None) -> Float[Array, "#Q N M"] | None:
    """Features of the rows; None without a low rank."""
    return None if low_rank is None else low_rank.features


@stored
class LowRank(NamedTuple):
    """The same, and the posterior of the weights v."""

    points: Centres
    inverse: Float[Array, "#Q M M"]
    features: Float[Array, "#Q N M"]
    mean: Coefs  # of v
    factor: Factor  # of the precision I + E'E
    left: Float[Array, "Q N"]  # pseudo-targets less F times the mean of v


@stored
class Whitener(NamedTuple):
    """Rows of U: with them pseudo-targets are white, given what the low rank says of them."""

    rows: Float[Array, "N #Q V"]


class Law(NamedTuple):
    """Law of the pseudo-targets of all rows."""

    whitener: Whitener  # of the residuals
    low_rank: LowRank  # the rest
    log_evidence: Scalar  # of the sites, in nats
    jitter: Scalar  # of K_zz


def inverse_root(
    kernel: LatentKernel, points: Centres
) -> tuple[Float[Array, "#Q M M"], Float[Array, "#Q"]]:
    """L^-1, and the jitter that K_zz needs."""
    lower, jitter = vmap_latents(differentiable_cholesky, covariance_of(kernel, points))
    identity = jnp.eye(len(points), dtype=lower.dtype)
    return vmap_latents(lambda lower: solve_lower(lower, identity), lower), jitter


def features_given(
    kernel: LatentKernel, points: Centres, inverse: Float[Array, "#Q M M"], X: Inputs
) -> Float[Array, "#Q N M"]:
    """Phi = K_xz L^-T."""
    return vmap_latents(
        lambda block, root: (root @ block).T, cross_covariance(kernel, points, X), inverse
    )


@jax.jit
def features_of(kernel: LatentKernel, points: Centres, X: Inputs) -> Float[Array, "#Q N M"]:
    """Phi: that K - Phi Phi' is the covariance of what inducing points leave."""
    return features_given(kernel, points, inverse_root(kernel, points)[0], X)


def features_near(
    features: Float[Array, "#Q N M"], rows: Int[Array, "B #Q V"]
) -> Float[Array, "#Q B V M"]:
    """Features of the rows of blocks; of a row that is not there, some."""
    return vmap_latents(lambda own, rows: own[rows], features, turned(rows))


def features_seen(
    low_rank: LowRankPrior | LowRank, kernel: LatentKernel, near: Block, X: Float[Array, "B D"]
) -> Float[Array, "#Q B V M"]:
    """Features of the rows that new inputs see and, last, of these."""
    rows = features_near(low_rank.features, near.rows[:, :, :-1])
    own = features_given(kernel, low_rank.points, low_rank.inverse, X)
    return jnp.concatenate([rows, own[:, :, None]], axis=2)


def loadings_of(
    in_g: Float[Array, "#Q B V"], features: Float[Array, "#Q B V M"]
) -> Float[Array, "#Q B M"]:
    """Loadings of weighted sums of latents on the white inducing variables."""
    return vmap_latents(lambda *own: jnp.einsum("bk,bkm->bm", *own), in_g, features)


def add_near(
    sums: Float[Array, "#Q N M"], block: Block, values: Float[Array, "#Q B V M"]
) -> Float[Array, "#Q N M"]:
    """Sums over the rows, with values of the rows of blocks added where they belong."""
    return vmap_latents(
        lambda sums, rows, values: sums.at[rows].add(values), sums, turned(block.rows), values
    )


def residual_grams(
    grams: Float[Array, "B V V"], features: Float[Array, "B V M"]
) -> Float[Array, "B V V"]:
    """Covariances of what a low rank leaves."""
    return grams - features @ jnp.swapaxes(features, 1, 2)


def law_of(
    kernel: LatentKernel, X: Inputs, neighbours: NeighbourRows, sites: ScaledSites, points: Centres
) -> Law:
    """Every row given its neighbours and v, the posterior of v, and the log evidence."""
    inverse, jitter = inverse_root(kernel, points)
    features = features_given(kernel, points, inverse, X)

    def step(sums: Any, chunk: Any, real: Bool[Array, "B"]) -> tuple[Any, Array]:
        block = Block.of(*chunk)
        grams = grams_at(kernel, block.points(X))
        near = features_near(features, block.rows)
        root, target = block.take(sites.root), block.take(sites.target)

        def of_law(grams: Array, near: Array, root: Array) -> tuple[Array, Array, Array]:
            left = residual_grams(grams, near)
            weights, _, less = jax.vmap(given)(left, root, jnp.zeros_like(root[:, :-1]))
            variance = 1 + root[:, -1] ** 2 * left[:, -1, -1] - less
            u = whitening_rows(weights, variance)
            return u, jnp.log(variance), jnp.einsum("bk,bkm->bm", u * root, near) * real[:, None]

        u, log_variance, E = vmap_latents(of_law, grams, near, root)
        e = vmap_latents(lambda u, target: jnp.sum(u * target, axis=1), u, target)
        # Of the whitened over N(r | 0, 1).
        nats = target[:, :, -1] ** 2 - e**2 - log_variance
        products = vmap_latents(lambda E: E.T @ E, E)
        linear = vmap_latents(lambda E, e: e @ E, E, e)
        here = 0.5 * jnp.sum(jnp.where(real, nats, 0.0)), products, linear
        return jax.tree.map(jnp.add, sums, here), turned(u)

    size, laws = len(points), max(len(features), len(sites.root))
    shapes = (), (laws, size, size), (len(sites.target), size)
    start = tuple(jnp.zeros(shape, X.dtype) for shape in shapes)
    rows = jnp.arange(len(X)), neighbours
    (nats, products, linear), u = scan_blocks(step, start, rows, size)
    factor = vmap_latents(lambda P: cholesky(P + jnp.eye(size, dtype=P.dtype)), products)

    def solve(factor: Factor, linear: Array) -> tuple[Array, Array]:
        half = factor.inverse @ linear
        return factor.inverse.T @ half, 0.5 * half @ half - factor.half_log_determinant

    mean, gained = vmap_latents(solve, factor, linear)
    explained = vmap_latents(lambda own, mean: own @ mean, features, mean)
    left = sites.target - sites.root * explained
    low_rank = LowRank(points, inverse, features, mean, factor, left)
    return Law(Whitener(u), low_rank, nats + jnp.sum(gained), jnp.max(jitter))


def slopes(
    kernel: LatentKernel,
    X: Inputs,
    neighbours: NeighbourRows,
    sites: ScaledSites,
    whitener: Whitener,
    low_rank: LowRank,
) -> Slopes:
    """Derivatives of the log evidence: the mean, over v given r, of that of log N(r - F v).

    (Fisher's identity.) With u of a row and t = r - F v its term has (s (a u' + u a') + (s^2 - 1) u
    u') / 2 in its block of the residuals' covariance, s = u't and a = (B_cc^-1 t_c, 0), -s u in t
    and so u s v' in F. Of v there are mean m and covariance S, of t the mean T: E s a = (B_cc^-1
    (s T_c + F_c S E_i), 0), E s^2 = s^2 + E_i' S E_i and E s v = s m - S E_i, s = u'T.
    """
    features = low_rank.features
    covariance = vmap_latents(Factor.inverse_of_product, low_rank.factor)

    def step(sums: Any, chunk: Any, real: Bool[Array, "B"]) -> tuple[Any, None]:
        rows, neighbours, u = chunk
        block = Block.of(rows, neighbours)
        points = block.points(X)
        grams, pull = jax.vjp(lambda kernel: grams_at(kernel, points), kernel)
        near = features_near(features, block.rows)
        root, target = block.take(sites.root), block.take(low_rank.left)
        u = turned(u) * real[:, None]

        def of_latent(
            grams: Array, near: Array, root: Array, u: Array, target: Array, mean: Array, S: Array
        ) -> tuple[Array, ...]:
            left = residual_grams(grams, near)
            E = jnp.einsum("bk,bkm->bm", u * root, near)
            s = jnp.sum(u * target, axis=1)[:, None]
            SE = E @ S
            right = s * target + root * jnp.einsum("bkm,bm->bk", near, SE)
            _, a, _ = jax.vmap(given)(left, root, right[:, :-1])
            a = jnp.pad(a, ((0, 0), (0, 1)))
            square = s**2 + jnp.sum(E * SE, axis=1)[:, None]
            w = a + 0.5 * (square - 1) * u
            # The derivative in the block is (w u' + u w') / 2.
            ru, rw = root * u, root * w
            in_gram = 0.5 * (rw[:, :, None] * ru[:, None, :] + ru[:, :, None] * rw[:, None, :])
            sv = s * mean - SE
            in_root = w * jnp.einsum("bjk,bk->bj", left, ru)
            in_root += u * jnp.einsum("bjk,bk->bj", left, rw)
            in_root += u * jnp.einsum("bkm,bm->bk", near, sv)
            through = sv - jnp.einsum("bk,bkm->bm", rw, near)
            in_near = ru[:, :, None] * through[:, None] - rw[:, :, None] * E[:, None]
            return in_gram, in_near, in_root, -s * u

        own = grams, near, root, u, target, low_rank.mean, covariance
        in_gram, in_near, in_root, in_target = vmap_latents(of_latent, *own)
        (in_kernel,) = pull(over_sharing(in_gram, grams))
        sums, in_features = sums
        in_features = add_near(in_features, block, over_sharing(in_near, near))
        return (sums.plus(block, in_kernel, in_root, in_target), in_features), None

    start = Slopes.start(kernel, sites), jnp.zeros_like(features)
    rows = jnp.arange(len(X)), neighbours, whitener.rows
    (found, in_features), _ = scan_blocks(step, start, rows, len(low_rank.points))
    through, in_points = pull_features(kernel, low_rank.points, X, in_features)
    in_kernel = jax.tree.map(jnp.add, found.kernel, through)
    return found._replace(kernel=in_kernel, points=in_points)


def pull_features(
    kernel: LatentKernel, points: Centres, X: Inputs, slope: Float[Array, "#Q N M"]
) -> tuple[LatentKernel, Centres]:
    """Derivatives through the features, in kernel and inducing points."""
    inverse, pull_inverse, _ = jax.vjp(inverse_root, kernel, points, has_aux=True)

    def step(sums: Any, chunk: Any, real: Bool[Array, "B"]) -> tuple[Any, None]:
        x, slope = chunk
        _, pull = jax.vjp(lambda k, Z, root: features_given(k, Z, root, x), kernel, points, inverse)
        here = pull(turned(slope * real[:, None, None]))
        return jax.tree.map(jnp.add, sums, here), None

    start = jax.tree.map(jnp.zeros_like, (kernel, points, inverse))
    rows = X, turned(slope)
    (*direct, in_inverse), _ = scan_rows(step, start, rows, columns=len(points))
    return jax.tree.map(jnp.add, tuple(direct), pull_inverse(in_inverse))
