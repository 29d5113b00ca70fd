"""A preconditioner for the posterior precision: each latent given those before it, and sites.

The posterior is a product of laws of each latent given all before it and the sites of all that are
not. Here it is given its neighbours, its own site, and those of the nearest rows after it. Of the
latter "VADU" (Kündig & Sigrist 2024) has none; with 20 the largest eigenvalue that is left falls
from hundreds to a few.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Int

from latentgp.extensions.neighbours.conditionals import Block, given, grams_at
from latentgp.extensions.neighbours.prior import Regression, nugget_of
from latentgp.kernels import LatentKernel
from latentgp.representations.latent_axis import vmap_latents
from latentgp.runtime.row_scan import scan_rows
from latentgp.typing import Array, Inputs, NeighbourRows, RowLatents


def posterior_regression(
    kernel: LatentKernel,
    X: Inputs,
    neighbours: NeighbourRows,
    later: Int[Array, "N #Q later"],
    precision: RowLatents,
) -> Regression:
    """Each latent given its neighbours, and sites of its own row and of the nearest later ones.

    Negative precisions of sites count as zero.
    """
    kernel, X, precision = jax.lax.stop_gradient((kernel, X, precision))
    of_latents = 1 / jnp.sqrt(nugget_of(kernel, X))
    of_sites = jnp.sqrt(jnp.maximum(precision, 0.0)).T
    known = neighbours.shape[2]
    both = jnp.concatenate([neighbours, later], axis=2)

    def step(carry: Any, chunk: Any, real: Bool[Array, "B"]) -> tuple[Any, Regression]:
        rows, both = chunk
        own = jnp.broadcast_to(rows[:, None, None], (*both.shape[:2], 1))
        block = Block.of(rows, jnp.concatenate([both, own], axis=2))
        grams = grams_at(kernel, jnp.asarray(X)[jnp.moveaxis(block.rows, 1, 0)])
        there = jnp.moveaxis(block.there, 1, 0)
        scales = block.take(of_sites)

        def of_latent(grams: Array, there: Array, root: Array, scales: Array) -> Regression:
            first = root * there[:, :known]
            last = jnp.ones_like(scales[:, -1:])
            scales = jnp.concatenate([first, scales[:, known:-1], last], axis=1)
            weights, _, less = jax.vmap(given)(grams, scales, jnp.zeros_like(scales[:, :-1]))
            variance = jnp.maximum(grams[:, -1, -1] - less, 0.0) + 1 / root**2
            return Regression(weights[:, :known] * first, variance)

        found = vmap_latents(of_latent, grams, there, of_latents, scales)
        return carry, Regression(*(jnp.moveaxis(a, 0, 1) for a in found))

    columns = (both.shape[2] + 2) ** 2
    rows = jnp.arange(len(X)), both
    _, found = scan_rows(step, None, rows, columns=columns, in_cache=True)
    return Regression(*(jnp.moveaxis(a, 1, 0) for a in found))
