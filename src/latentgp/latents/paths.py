"""Draws of the prior as functions, by random features."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Key

from latentgp.arrays import Array
from latentgp.kernels import Kernel
from latentgp.kernels.features import Features, random_features
from latentgp.kernels.per_latent import (
    KernelGroup,
    LatentKernel,
    in_latent_order,
    kernel_groups,
)
from latentgp.latents.base import over_latents


class PriorPath(eqx.Module):
    """A draw of Q latent functions, phi(x)'w with w ~ N(0, I), that can be evaluated anywhere.

    Attributes:
        features: for each group of latent functions, with a leading axis of size 1 (shared) or
            of the size of the group.
        weights: for each group, one row a latent function.
        latents: which latent functions each group has.
    """

    features: tuple[Features, ...]
    weights: tuple[Float[Array, "_ _"], ...]
    latents: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N Q"]:
        """Values at every row of X."""
        values = [
            over_latents(lambda phi, w: phi(X) @ w, *group)
            for group in zip(self.features, self.weights, strict=True)
        ]
        return in_latent_order(self.latents, values).T


def prior_path(
    kernel: LatentKernel, key: Key[Array, ""], *, inputs: int, latents: int, number: int
) -> PriorPath:
    """A draw from the prior of the latent functions.

    Args:
        kernel: one that has random features.
        key: random key.
        inputs: number of input columns D.
        latents: number of latent functions Q.
        number: of features for each stationary part.

    Raises:
        InputError: a kernel has no random features.
    """
    groups = kernel_groups(kernel, latents)
    drawn = [
        _draw(group, group_key, inputs, number)
        for group, group_key in zip(groups, jax.random.split(key, len(groups)), strict=True)
    ]
    return PriorPath(
        tuple(features for features, _ in drawn),
        tuple(weights for _, weights in drawn),
        tuple(group.latents for group in groups),
    )


def _draw(
    group: KernelGroup, key: Key[Array, ""], inputs: int, number: int
) -> tuple[Features, Float[Array, "G R"]]:
    def features(kernel: Kernel, key: Key[Array, ""]) -> Features:
        return random_features(kernel, key, inputs, number)

    key_features, key_weights = jax.random.split(key)
    kernels = max((len(leaf) for leaf in jax.tree.leaves(group.kernels)), default=1)
    drawn = over_latents(features, group.kernels, jax.random.split(key_features, kernels))
    evaluate = partial(over_latents, lambda phi: phi(jnp.zeros((1, inputs))))
    size = jax.eval_shape(evaluate, drawn).shape[-1]
    return drawn, jax.random.normal(key_weights, (len(group.latents), size))
