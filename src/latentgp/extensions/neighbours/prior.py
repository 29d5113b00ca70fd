"""The prior of latents in which each is conditioned on its neighbours: N(0, (B' D^-1 B)^-1)."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from latentgp.extensions.neighbours.conditionals import Block, given, grams_at, scan_blocks, turned
from latentgp.extensions.neighbours.full_scale import add_near, features_near, residual_grams
from latentgp.extensions.neighbours.levels import Levels, Swept, TriangularFactor
from latentgp.extensions.neighbours.warped import slope_of_whole, unwarped
from latentgp.kernels import LatentKernel
from latentgp.modules import stored
from latentgp.numerics.cholesky import lower_cholesky
from latentgp.numerics.triangular import solve_lower
from latentgp.representations.latent_axis import latent_diagonals, over_sharing, vmap_latents
from latentgp.runtime.x64 import usual_settings
from latentgp.typing import Array, Inputs, NeighbourRows, RowLatents

# Of the prior variance: neighbours so near that one says all of the other.
_NUGGET = {jnp.dtype("float64"): 1e-9, jnp.dtype("float32"): 1e-4}


@stored
class Regression(NamedTuple):
    """Each row's latent given its neighbours': g_i ~ N(A_i g_c(i), D_i)."""

    weights: Float[Array, "#Q N V"]  # A; zero where there is no such neighbour
    variance: Float[Array, "#Q N"]  # D


def nugget_of(kernel: LatentKernel, X: Inputs) -> Float[Array, "#Q"]:
    """White noise added to latents, without which near rows would determine each other."""
    variances = jax.lax.stop_gradient(latent_diagonals(kernel, X))
    return _NUGGET.get(variances.dtype, 1e-4) * jnp.mean(variances, axis=1)


@jax.custom_vjp
def regression(
    kernel: LatentKernel,
    X: Inputs,
    neighbours: NeighbourRows,
    features: Float[Array, "#Q N M"] | None = None,
) -> Regression:
    """Every row's latent given those of its neighbours; differentiable in kernel and features.

    With features of a low rank it is that of what these leave.
    """

    def of_latent(grams: Array, there: Array, root: Array) -> Regression:
        scales = root * there
        weights, _, less = jax.vmap(given)(grams, scales, jnp.zeros_like(scales[:, :-1]))
        return Regression(weights, (1 + scales[:, -1] ** 2 * grams[:, -1, -1] - less) / root**2)

    return _of_rows(of_latent, *unwarped(kernel, X), neighbours, features)


def posterior_regression(
    kernel: LatentKernel,
    X: Inputs,
    neighbours: NeighbourRows,
    later: Int[Array, "N #Q later"],
    precision: RowLatents,
    features: Float[Array, "#Q N M"] | None = None,
) -> Regression:
    """Each latent given its neighbours, and sites of its own row and of the nearest later ones.

    A preconditioner for the posterior precision: the posterior is a product of laws of each latent
    given all before it and the sites of all that are not. Of sites of later rows "VADU" (Kündig &
    Sigrist 2024) has none; with 20 the largest eigenvalue that is left falls from hundreds to a
    few. Negative precisions of sites count as zero. With features of a low rank it is of what these
    leave, given their weights.
    """
    held = jax.lax.stop_gradient((kernel, X, precision, features))
    kernel, X, precision, features = held
    known = neighbours.shape[2]
    own = jnp.broadcast_to(jnp.arange(len(X))[:, None, None], (*neighbours.shape[:2], 1))

    def of_latent(grams: Array, there: Array, root: Array, scales: Array) -> Regression:
        first = root * there[:, :known]
        last = jnp.ones_like(scales[:, -1:])
        scales = jnp.concatenate([first, scales[:, known:-1], last], axis=1)
        weights, _, less = jax.vmap(given)(grams, scales, jnp.zeros_like(scales[:, :-1]))
        variance = jnp.maximum(grams[:, -1, -1] - less, 0.0) + 1 / root**2
        return Regression(weights[:, :known] * first, variance)

    rows = jnp.concatenate([neighbours, later, own], axis=2)
    roots = jnp.sqrt(jnp.maximum(precision, 0.0)).T
    return _of_rows(of_latent, kernel, X, rows, features, roots)


def _of_rows(
    of_latent: Any,
    kernel: LatentKernel,
    X: Inputs,
    neighbours: NeighbourRows,
    features: Float[Array, "#Q N M"] | None,
    *values: Any,
) -> Regression:
    """Laws of rows, by Gram matrices of blocks, what is there, 1 / root(nugget) and values."""
    roots = 1 / jnp.sqrt(nugget_of(kernel, X))

    def step(carry: Any, chunk: Any, real: Bool[Array, "B"]) -> tuple[Any, Regression]:
        block = Block.of(*chunk)
        grams = grams_at(kernel, block.points(X))
        if features is not None:
            grams = vmap_latents(residual_grams, grams, features_near(features, block.rows))
        own = grams, turned(block.there), roots
        return carry, turned(vmap_latents(of_latent, *own, *map(block.take, values)))

    rows = jnp.arange(len(X)), jnp.asarray(neighbours)
    return turned(scan_blocks(step, None, rows, _rank(features))[1])


def _rank(features: Float[Array, "#Q N M"] | None) -> int:
    return 0 if features is None else features.shape[2]


def slope_of_regression(
    kernel: LatentKernel,
    X: Inputs,
    neighbours: NeighbourRows,
    features: Float[Array, "#Q N M"] | None,
    known: Regression,
    slope: Regression,
) -> tuple[LatentKernel, Float[Array, "#Q N M"] | None]:
    """Derivatives in kernel and features of what has the given ones in weights and variances.

    With u = (-A, 1) a row's variance is u' K u, at its least in A, and d A = K_cc^-1 (d k - d K_cc
    A): in the block K of its neighbours and itself the derivative is D' u u' + (q u' + u q') / 2,
    q = (K_cc^-1 A', 0), where A' and D' are those in weights and variance. Of features the block
    has -Phi Phi'.
    """
    given_kernel = kernel
    kernel, X = unwarped(kernel, X)
    roots = 1 / jnp.sqrt(nugget_of(kernel, X))

    def step(total: Any, chunk: Any, real: Bool[Array, "B"]) -> tuple[Any, None]:
        rows, neighbours, weights, in_weights, in_variance = chunk
        block = Block.of(rows, neighbours)
        points = block.points(X)
        grams, pull = jax.vjp(lambda kernel: grams_at(kernel, points), kernel)
        near = None if features is None else features_near(features, block.rows)
        left = grams if near is None else vmap_latents(residual_grams, grams, near)

        def of_latent(root: Array, *each: Array) -> Array:
            def of_row(gram: Array, there: Array, weights: Array, slope: Array, by: Array) -> Array:
                scales = (root * there)[:-1]
                inner = jnp.eye(len(scales), dtype=gram.dtype)
                lower = lower_cholesky(inner + scales[:, None] * gram[:-1, :-1] * scales)
                half = solve_lower(lower, (scales * slope)[:, None])
                q = scales * solve_lower(lower, half, transposed=True)[:, 0]
                u = jnp.append(-weights, 1.0)
                v = 0.5 * by * u + 0.5 * jnp.append(q, 0.0)
                return v[:, None] * u + u[:, None] * v

            return jnp.where(real[:, None, None], jax.vmap(of_row)(*each), 0.0)

        own = map(turned, (block.there, weights, in_weights, in_variance))
        in_gram = over_sharing(vmap_latents(of_latent, roots, left, *own), grams)
        in_kernel, in_features = total
        if near is not None:
            in_near = vmap_latents(lambda slope, near: -2 * slope @ near, in_gram, near)
            in_features = add_near(in_features, block, in_near)
        return (jax.tree.map(jnp.add, in_kernel, *pull(in_gram)), in_features), None

    each = map(turned, (known.weights, slope.weights, slope.variance))
    rows = jnp.arange(len(X)), jnp.asarray(neighbours), *each
    start = jax.tree.map(jnp.zeros_like, (kernel, features))
    in_kernel, in_features = scan_blocks(step, start, rows, _rank(features))[0]
    return slope_of_whole(given_kernel, in_kernel), in_features


def _forward(kernel: Any, X: Any, neighbours: Any, features: Any) -> Any:
    found = regression(kernel, X, neighbours, features)
    return found, (kernel, X, neighbours, features, found)


@usual_settings()
def _backward(kept: Any, slope: Any) -> Any:
    kernel, X, neighbours, features, found = kept
    own = kernel, X, neighbours, features, found, slope
    in_kernel, in_features = slope_of_regression(*own)
    return in_kernel, jnp.zeros_like(X), None, in_features


regression.defvjp(_forward, _backward)


@stored
class TriangularFactors(NamedTuple):
    """B, ones on its diagonal and -A beside it, of all latents."""

    each: tuple[TriangularFactor, ...]  # of each distinct kernel

    @classmethod
    def of(cls, weights: Float[Array, "#Q N V"], levels: tuple[Levels, ...]) -> TriangularFactors:
        return cls(tuple(map(TriangularFactor, levels, weights)))

    def attached(self, levels: tuple[Levels, ...]) -> TriangularFactors:
        """With these levels, which are its own."""
        pairs = zip(levels * (len(self.each) // len(levels)), self.each, strict=True)
        return TriangularFactors(tuple(own._replace(levels=levels) for levels, own in pairs))

    def times(self, right: Float[Array, "N Q S"]) -> Float[Array, "N Q S"]:
        """B right, of each latent its own."""
        return self._apply(TriangularFactor.times, right)

    def transposed_times(self, right: Float[Array, "N Q S"]) -> Float[Array, "N Q S"]:
        """B' right."""
        return self._apply(TriangularFactor.transposed_times, right)

    def solve(self, right: Float[Array, "N Q S"]) -> Float[Array, "N Q S"]:
        """B^-1 right."""
        return self._apply(TriangularFactor.solve, right)

    def transposed_solve(self, right: Float[Array, "N Q S"]) -> Float[Array, "N Q S"]:
        """B'^-1 right."""
        return self._apply(TriangularFactor.transposed_solve, right)

    def _apply(self, run: Any, right: Array) -> Array:
        if len(self.each) == 1:
            flat = right.reshape(len(right), -1)
            return run(self.each[0], flat).reshape(right.shape)
        parts = [run(own, right[:, q]) for q, own in enumerate(self.each)]
        return jnp.stack(parts, axis=1)


@stored
class SparseFactor(TriangularFactors):
    """The same in files that held sweeps for B and for its transpose."""

    def __new__(cls, each: tuple[tuple[Swept, Swept], ...]) -> TriangularFactors:
        return TriangularFactors(tuple(own.factor for own, _ in each))
