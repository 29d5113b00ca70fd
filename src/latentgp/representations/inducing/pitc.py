"""Blocks of rows that share what inducing points leave open (PITC): O(N M^2 + N B^2)."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Float, Int

from latentgp.errors import InputError
from latentgp.kernels import LatentKernel
from latentgp.likelihoods.base import Marginals
from latentgp.numerics.cholesky import lower_cholesky
from latentgp.numerics.triangular import solve_lower
from latentgp.representations.inducing.natural_parameters import Statistics
from latentgp.representations.inducing.posterior import InducingPosterior, Prior, no_rows
from latentgp.representations.latent_axis import latent_grams, vmap_latents
from latentgp.rows.spread import robust_spread
from latentgp.rows.subsets import blocks_of_rows
from latentgp.sites.gaussian import GaussianSites
from latentgp.typing import Array, Inputs, Latents, PerRow, Points


class _Block(NamedTuple):
    """Sites of a block of rows for k' K_mm^-1 u, left of those for f = k' K_mm^-1 u + e.

    With e ~ N(0, R), R the covariance that u leaves open, they are E_e prod_n site_n(g_n + e_n),
    of which FITC takes the factors of R's diagonal (Quiñonero-Candela & Rasmussen 2005).
    """

    blocks: Float[Array, "#Q M B"]
    linear: Float[Array, "Q B"]
    precision: Float[Array, "Q B B"]
    loss: Latents


def blocks_for(X: Inputs, weights: PerRow | None, size: int) -> Int[np.ndarray, "blocks B"]:
    """Rows near each other, at most so many a block; N fills up short ones.

    Near is in inputs over their spreads. Rows of weight zero are in no block.

    Raises:
        InputError: rows that are traced.
    """
    if isinstance(X, Tracer) or isinstance(weights, Tracer):
        raise InputError(
            "Blocks of rows cannot be found inside grad, jit or vmap; give the method a "
            'representation that has them, Inducing(..., approximation="pitc").for_rows(X, None, '
            "kernel)."
        )
    X = np.asarray(X)
    real = np.arange(len(X)) if weights is None else np.flatnonzero(np.asarray(weights) > 0)
    spread, _ = robust_spread(X[real], None)
    found = blocks_of_rows(X[real] / spread, size)
    return np.append(real, len(X))[found]


def condition(
    kernel: LatentKernel,
    points: Points,
    prior: Prior,
    X: Inputs,
    sites: GaussianSites,
    rows: Int[Array, "blocks B"],
) -> Statistics:
    """Sums over blocks, of their sites for the inducing variables."""
    inverse = prior.precision

    def add(statistics: Any, own: Any) -> Any:
        at = _block(kernel, points, inverse, *_taken(X, sites, own))

        def sums(block: Any, linear: Any, precision: Any, loss: Any) -> Any:
            return block @ precision @ block.T, block @ linear, loss

        here = vmap_latents(sums, *at)
        return Statistics(*map(jnp.add, statistics, here)), None

    return jax.lax.scan(add, no_rows(sites.linear.shape[1], points), rows)[0]


class PulledBlocks(NamedTuple):
    """Derivatives of the log evidence through the rows, posterior marginals at these."""

    places: tuple[LatentKernel, Points]  # derivatives in kernel and inducing points
    inverse: Float[Array, "#Q M M"]  # that in K_mm^-1
    marginals: Marginals  # zero at rows of no block


def pull_back(
    posterior: InducingPosterior, X: Inputs, sites: GaussianSites, rows: Int[Array, "blocks B"]
) -> PulledBlocks:
    """Derivatives with the sums over rows held in what follows from them."""
    inverse, weights = posterior.prior_precision, posterior.mean_weights
    in_products = posterior.slope_in_sums

    def add(carry: Any, own: Any) -> Any:
        x, linear, precision = _taken(X, sites, own)

        def value(kernel: Any, points: Any, inverse: Any, linear: Any, precision: Any) -> Any:
            at = _block(kernel, points, inverse, x, linear, precision)

            def worth(block, linear, precision, loss, in_products, weights):
                products = jnp.sum((block.T @ in_products @ block) * precision)
                return products + linear @ (weights @ block) - 0.5 * loss

            return jnp.sum(vmap_latents(worth, *at, in_products, weights))

        places = posterior.kernel, posterior.centres, inverse
        *slopes, mean, in_precision = jax.grad(value, (0, 1, 2, 3, 4))(*places, linear, precision)
        variance = jnp.maximum(-2 * in_precision - mean**2, 0.0)
        total, means, variances = carry
        total = jax.tree.map(jnp.add, total, tuple(slopes))
        means, variances = (
            table.at[own].set(new.T, mode="drop")
            for table, new in ((means, mean), (variances, variance))
        )
        return (total, means, variances), None

    start = jax.tree.map(jnp.zeros_like, (posterior.kernel, posterior.centres, inverse))
    nothing = jnp.zeros_like(sites.linear)
    (total, means, variances), _ = jax.lax.scan(add, (start, nothing, nothing), rows)
    return PulledBlocks(total[:2], total[2], Marginals(means, variances))


def _taken(X: Any, sites: GaussianSites, own: Any) -> tuple[Array, Array, Array]:
    """Inputs, linear terms and precisions of a block; those that fill it up say nothing."""
    x = X.at[own].get(mode="clip")
    linear, precision = (
        table.at[own].get(mode="fill", fill_value=0.0).T
        for table in (sites.linear, sites.precision)
    )
    return x, linear, precision


def _block(
    kernel: LatentKernel,
    points: Points,
    inverse: Float[Array, "#Q M M"],
    X: Float[Array, "B D"],
    linear: Float[Array, "Q B"],
    precision: Float[Array, "Q B"],
) -> _Block:
    """With W and R: (W^-1 + R)^-1, (I + W R)^-1 l, log|I + W R| - l' (R^-1 + W)^-1 l."""
    blocks = latent_grams(kernel, points, X)

    def projected(block: Any, K: Any, inverse: Any, linear: Any, precision: Any) -> Any:
        R = K - block.T @ inverse @ block
        there = precision > 0
        root = jnp.where(there, jnp.sqrt(jnp.where(there, precision, 1.0)), 0.0)
        lower = lower_cholesky(jnp.eye(len(root)) + root[:, None] * R * root)
        half = solve_lower(lower, jnp.diag(root))
        pulled = R @ linear
        turned = half @ pulled
        loss = 2 * jnp.sum(jnp.log(jnp.diagonal(lower))) - linear @ pulled + turned @ turned
        return linear - half.T @ turned, half.T @ half, loss

    grams = latent_grams(kernel, X)
    return _Block(blocks, *vmap_latents(projected, blocks, grams, inverse, linear, precision))
