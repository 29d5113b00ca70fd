"""Each row's pseudo-target given those of its neighbours: small factorisations, row by row.

With precisions W and linear terms l of the sites, r = W^-1/2 l and B = I + W^1/2 K W^1/2, their
evidence is N(r | 0, B) over N(r | 0, I). For N(r | 0, B) stands prod_i N(r_i | r_c(i)), each factor
from the block of B at row i and its neighbours c(i) (Vecchia 1988). A row of weight zero has that
of the identity.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from latentgp.extensions.neighbours.search import NOBODY
from latentgp.extensions.neighbours.warped import slope_of_whole, unwarped
from latentgp.kernels import LatentKernel
from latentgp.modules import stored
from latentgp.numerics.cholesky import lower_cholesky
from latentgp.numerics.triangular import solve_lower
from latentgp.representations.latent_axis import distinct_kernels, over_sharing, vmap_latents
from latentgp.representations.variables import Centres
from latentgp.runtime.row_scan import scan_rows
from latentgp.typing import Array, Inputs, NeighbourRows, RowLatents, Scalar


@stored
class ScaledSites(NamedTuple):
    """Sites as pseudo-targets of unit noise."""

    root: Float[Array, "#Q N"]  # W^1/2
    target: Float[Array, "Q N"]  # r = W^-1/2 l; zero where the precision is


@stored
class Conditionals(NamedTuple):
    """Law of each row's pseudo-target given those of its neighbours."""

    weights: Float[Array, "N #Q V"]  # A, such that the mean is A r_c
    dual: Float[Array, "N Q V"]  # B_cc^-1 r_c
    variance: Float[Array, "N #Q"]  # of r_i given r_c
    residual: RowLatents  # r_i less its mean in standard deviations

    @property
    def rows(self) -> Float[Array, "N #Q M"]:
        """Rows (-A, 1) / sqrt(d) of U, with which the pseudo-targets are white."""
        return whitening_rows(self.weights, self.variance)


def errors_by(weights: Float[Array, "*B V"]) -> Float[Array, "*B M"]:
    """Rows (-A, 1), by which they are less their means given the neighbours."""
    own = jnp.ones((*weights.shape[:-1], 1), weights.dtype)
    return jnp.concatenate([-weights, own], axis=-1)


def whitening_rows(
    weights: Float[Array, "*B V"], variance: Float[Array, "*B"]
) -> Float[Array, "*B M"]:
    """The same in standard deviations, (-A, 1) / sqrt(d)."""
    return errors_by(weights) / jnp.sqrt(variance)[..., None]


def grams_at(kernel: LatentKernel, points: Float[Array, "#Q B V D"]) -> Float[Array, "#Q B V V"]:
    """Gram matrices of a few points for each of many rows."""
    each = distinct_kernels(kernel)
    spread = jnp.broadcast_to(points, (len(each), *points.shape[1:]))
    pairs = zip(each, spread, strict=True)
    return jnp.stack([jax.vmap(own.symmetric_gram)(points) for own, points in pairs])


def turned(each: Any) -> Any:
    """Arrays with their axes of rows and of latent functions exchanged."""
    return jax.tree.map(lambda a: jnp.moveaxis(a, 1, 0), each)


def scan_blocks(step: Any, start: Any, rows: Any, rank: int = 0) -> tuple[Any, Any]:
    """`scan_rows` over rows and, second, their neighbours, with small matrices of each.

    Of a low rank there are so many features of each row of a block.
    """
    size = rows[1].shape[2] + 1
    columns = size * (size + rank)
    return scan_rows(step, start, rows, columns=columns, in_cache=True)


class Block(NamedTuple):
    """Rows with their neighbours, these first."""

    rows: Int[Array, "B #Q M"]  # numbers of V neighbours and of the rows themselves, M = V + 1
    there: Bool[Array, "B #Q M"]  # whether there is such a neighbour

    @classmethod
    def of(cls, rows: Int[Array, "B"], neighbours: Int[Array, "B #Q V"]) -> "Block":
        own = jnp.broadcast_to(rows[:, None, None], (*neighbours.shape[:2], 1))
        both = jnp.concatenate([neighbours, own], axis=2)
        return cls(jnp.where(both == NOBODY, own, both), both != NOBODY)

    def points(self, X: Inputs) -> Float[Array, "#Q B M D"]:
        """Inputs of the rows."""
        return jnp.asarray(X)[jnp.moveaxis(self.rows, 1, 0)]

    def take(self, values: Float[Array, "#Q N"]) -> Float[Array, "#Q B M"]:
        """Values of each latent function at the rows, zero at those that are not there."""
        return vmap_latents(
            lambda own, rows, there: jnp.where(there, own[rows], 0.0),
            jnp.asarray(values),
            *map(turned, self),
        )

    def add(self, sums: Float[Array, "Q N"], values: Float[Array, "Q B M"]) -> Float[Array, "Q N"]:
        """Sums over the rows, with these values added where they belong."""
        latents = jnp.arange(len(sums))
        rows, there = map(turned, self)
        rows = jnp.broadcast_to(rows, values.shape)
        return sums.at[latents[:, None, None], rows].add(jnp.where(there, values, 0.0))


class Terms(NamedTuple):
    """Rows whose terms make the evidence."""

    rows: Int[Array, "terms"]  # their numbers
    each: float  # for how many rows each of them stands


class Slopes(NamedTuple):
    """Derivatives of the log evidence, in roots and targets those of the sites."""

    kernel: LatentKernel
    root: Float[Array, "Q N"]
    target: Float[Array, "Q N"]
    points: Centres | None = None  # inducing ones, where there are any

    @classmethod
    def start(cls, kernel: LatentKernel, sites: ScaledSites) -> "Slopes":
        """Derivative of r'r / 2, to which those of the rows' terms are added."""
        in_kernel = jax.tree.map(jnp.zeros_like, kernel)
        return cls(in_kernel, jnp.zeros_like(sites.target), sites.target)

    def plus(
        self,
        block: Block,
        kernel: LatentKernel,
        root: Float[Array, "Q B M"],
        target: Float[Array, "Q B M"],
    ) -> "Slopes":
        """With those of some rows' terms."""
        added = jax.tree.map(jnp.add, self.kernel, kernel)
        return Slopes(added, block.add(self.root, root), block.add(self.target, target))


def given(
    gram: Float[Array, "M M"], root: Float[Array, "M"], target: Float[Array, "V"]
) -> tuple[Float[Array, "V"], Float[Array, "V"], Scalar]:
    """A row given the pseudo-targets of its neighbours, which have unit noise.

    The Gram matrix is that of the neighbours and, last, the row, and the roots scale it.

    Returns:
        Weights of the neighbours' targets in the row's mean, B_cc^-1 r_c, and what the variance of
        the row's own part is less by.
    """
    scaled = root[:, None] * gram * root
    cross = scaled[-1, :-1]
    lower = lower_cholesky(jnp.eye(len(cross), dtype=gram.dtype) + scaled[:-1, :-1])
    half = solve_lower(lower, jnp.stack([cross, target], axis=1))
    weights, dual = solve_lower(lower, half, transposed=True).T
    return weights, dual, half[:, 0] @ half[:, 0]


def conditionals(
    kernel: LatentKernel, X: Inputs, neighbours: NeighbourRows, sites: ScaledSites, terms: Terms
) -> tuple[Conditionals, Scalar]:
    """Rows given their neighbours, and the log evidence of the sites, in nats."""
    kernel, X = unwarped(kernel, X)

    def step(total: Array, chunk: Any, real: Bool[Array, "B"]) -> tuple[Array, Conditionals]:
        block = Block.of(*chunk)
        grams = grams_at(kernel, block.points(X))
        root, target = block.take(sites.root), block.take(sites.target)

        def of_latent(grams: Array, root: Array, target: Array) -> Conditionals:
            weights, dual, less = jax.vmap(given)(grams, root, target[:, :-1])
            variance = 1 + root[:, -1] ** 2 * grams[:, -1, -1] - less
            mean = jnp.sum(weights * target[:, :-1], axis=1)
            residual = (target[:, -1] - mean) / jnp.sqrt(variance)
            return Conditionals(weights, dual, variance, residual)

        found = vmap_latents(of_latent, grams, root, target)
        nats = found.residual**2 + jnp.log(found.variance)
        total = total + jnp.sum(jnp.where(real, nats, 0.0))
        return total, turned(found)

    rows = terms.rows, neighbours[terms.rows]
    total, found = scan_blocks(step, jnp.zeros((), X.dtype), rows)
    # Of r given its neighbours over N(r | 0, 1).
    return found, 0.5 * (jnp.sum(sites.target**2) - terms.each * total)


def slopes(
    kernel: LatentKernel,
    X: Inputs,
    neighbours: NeighbourRows,
    sites: ScaledSites,
    known: Conditionals,
    terms: Terms,
) -> Slopes:
    """Derivatives of the log evidence, without another factorisation.

    With u = (-A, 1) / sqrt(d) of a row and its residual s, that of its term in its block of B is
    (s (a u' + u a') + (s^2 - 1) u u') / 2, a = (B_cc^-1 r_c, 0), and in the block of r it is -s u.
    """
    whole = kernel
    kernel, X = unwarped(kernel, X)

    def step(sums: Slopes, chunk: Any, real: Bool[Array, "B"]) -> tuple[Slopes, None]:
        rows, neighbours, known = chunk
        block = Block.of(rows, neighbours)
        points = block.points(X)
        grams, pull = jax.vjp(lambda kernel: grams_at(kernel, points), kernel)
        root = block.take(sites.root)

        def of_latent(grams: Array, root: Array, known: Conditionals) -> tuple[Array, Array, Array]:
            u = whitening_rows(known.weights, known.variance)
            a = jnp.pad(known.dual, ((0, 0), (0, 1)))
            s = known.residual[:, None]
            # (v u' + u v') / 2 for v = s a + (s^2 - 1) u / 2.
            each = jnp.where(real, terms.each, 0.0)[:, None]
            v = each * (s * a + 0.5 * (s**2 - 1) * u)
            outer = 0.5 * (v[:, :, None] * u[:, None, :] + u[:, :, None] * v[:, None, :])
            in_gram = root[:, :, None] * outer * root[:, None, :]
            in_root = 2 * jnp.sum(outer * grams * root[:, None, :], axis=2)
            return in_gram, in_root, each * (-s * u)

        in_gram, in_root, in_target = vmap_latents(of_latent, grams, root, turned(known))
        (in_kernel,) = pull(over_sharing(in_gram, grams))
        return sums.plus(block, in_kernel, in_root, in_target), None

    rows = terms.rows, neighbours[terms.rows], known
    found = scan_blocks(step, Slopes.start(kernel, sites), rows)[0]
    return found._replace(kernel=slope_of_whole(whole, found.kernel))
