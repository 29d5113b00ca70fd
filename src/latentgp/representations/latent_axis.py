"""Arithmetic over the axis of latent functions, which may share one kernel.

What follows from the kernel alone (its blocks, the factor of K_mm) has a first axis of size Q where
every latent function has its own kernel, and of size 1 where they share it (#Q).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Float, PyTree

from latentgp.kernels import Kernel, LatentKernel, OwnKernels
from latentgp.numerics.sums import sum_over_first
from latentgp.typing import Array, Coefs, Inputs, Points, RowLatents, Values


def vmap_latents(function: Callable[..., Any], *arguments: PyTree) -> Any:
    """Map a function over the leading axis Q of its arguments, where that is not 1.

    Arguments (or parts of them) with a leading axis of size 1 are the same for every latent
    function; nothing is batched where all are. So work on what is shared is done once.
    """
    leaves, structure = jax.tree.flatten(arguments)
    axes = [None if leaf.shape[0] == 1 else 0 for leaf in leaves]
    leaves = [leaf[0] if axis is None else leaf for leaf, axis in zip(leaves, axes, strict=True)]
    if all(axis is None for axis in axes):
        result = function(*jax.tree.unflatten(structure, leaves))
        return jax.tree.map(lambda a: jnp.asarray(a)[None], result)
    return jax.vmap(lambda *leaves: function(*jax.tree.unflatten(structure, leaves)), axes)(*leaves)


def split_linear(linear: Values, root: Values, diagonal: Values) -> tuple[Values, Values]:
    """Split l = W^1/2 r + l_0: r of rows more precise than the prior, l_0 of the others.

    Sites of great precision have great l, which cancels wherever it is multiplied by K. The root is
    W^1/2, and the diagonal that of B = I + W^1/2 K W^1/2.
    """
    strong = diagonal > 2
    ratio = jnp.where(strong, linear / jnp.where(strong, root, 1.0), 0.0)
    return ratio, jnp.where(strong, 0.0, linear)


def block_means(blocks: Float[Array, "#Q M N"], weights: Coefs) -> RowLatents:
    """Functions sum_m w_m k(centre_m, x) at N points whose kernel blocks are known."""
    return vmap_latents(lambda block, w: w @ block, blocks, weights).T


def outer_sums(weights: Coefs, like: Float[Array, "#Q *S"]) -> Float[Array, "#Q M M"]:
    """Outer products of each latent's weights, summed over those that share a block."""
    return (weights.T @ weights)[None] if len(like) == 1 else jax.vmap(jnp.outer)(weights, weights)


def over_sharing(
    values: Float[Array, "Q *S"], like: Float[Array, "#Q *S"]
) -> Float[Array, "#Q *S"]:
    """Derivatives in kernel blocks: summed over the latent functions that share a block."""
    return sum_over_first(values)[None] if len(like) == 1 else values


def distinct_kernels(kernel: LatentKernel) -> tuple[Kernel, ...]:
    """The kernel that all latent functions share, or that of each of them."""
    return kernel.each if isinstance(kernel, OwnKernels) else (kernel,)


def latent_grams(
    kernel: LatentKernel, X: Inputs, Z: Points | None = None
) -> Float[Array, "#Q N M"]:
    """Covariances between all rows of X and all rows of Z.

    Without Z, between all rows of X, the diagonal free of rounding.
    """
    return _leading(kernel, kernel.symmetric_gram(X) if Z is None else kernel.gram(X, Z))


def latent_diagonals(kernel: LatentKernel, X: Inputs) -> Float[Array, "#Q N"]:
    """Prior variances at every row of X."""
    return _leading(kernel, kernel.diagonal(X))


def _leading(kernel: LatentKernel, block: Array) -> Array:
    return block if isinstance(kernel, OwnKernels) else block[None]
