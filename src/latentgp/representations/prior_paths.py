"""Draws of latent functions as functions: the prior's by random features, updated by the data."""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.kernels import Kernel
from latentgp.kernels.features import Features, random_features
from latentgp.kernels.per_latent import KernelGroup, LatentKernel, in_latent_order, kernel_groups
from latentgp.representations.base import LatentPosterior
from latentgp.representations.latent_axis import block_means, vmap_latents
from latentgp.representations.variables import Centres, InducingVariables, cross_covariance
from latentgp.typing import Array, Inputs, RandomKey

_FEATURE_SETS = 16


class PriorPaths(eqx.Module):
    """S draws of Q latent functions, phi(x)'w with w ~ N(0, I), that share their features."""

    # for each group of latent functions, with a leading axis of size 1 (shared) or of the size of
    # the group
    features: tuple[Features, ...]
    # for each group, one row a latent function, S columns
    weights: tuple[Float[Array, "_ _ S"], ...]
    # which latent functions each group has
    latents: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    def __call__(self, X: Inputs) -> Float[Array, "S N Q"]:
        """Values at every row of X."""
        values = [
            vmap_latents(lambda phi, w: phi(X) @ w, *group)
            for group in zip(self.features, self.weights, strict=True)
        ]
        return in_latent_order(self.latents, values).transpose(2, 1, 0)


def prior_paths(
    kernel: LatentKernel, key: RandomKey, *, inputs: int, latents: int, features: int, number: int
) -> PriorPaths:
    """Draws from the prior of the latent functions; each stationary part has as many features.

    Raises:
        InputError: a kernel has no random features.
    """
    groups = kernel_groups(kernel, latents)
    drawn = [
        _draw(group, group_key, inputs, features, number)
        for group, group_key in zip(groups, jax.random.split(key, len(groups)), strict=True)
    ]
    return PriorPaths(
        tuple(features for features, _ in drawn),
        tuple(weights for _, weights in drawn),
        tuple(group.latents for group in groups),
    )


def _draw(
    group: KernelGroup, key: RandomKey, inputs: int, features: int, number: int
) -> tuple[Features, Float[Array, "groups R S"]]:
    def random(kernel: Kernel, key: RandomKey) -> Features:
        return random_features(kernel, key, inputs, features)

    key_features, key_weights = jax.random.split(key)
    kernels = max((len(leaf) for leaf in jax.tree.leaves(group.kernels)), default=1)
    drawn = vmap_latents(random, group.kernels, jax.random.split(key_features, kernels))
    evaluate = partial(vmap_latents, lambda phi: phi(jnp.zeros((1, inputs))))
    size = jax.eval_shape(evaluate, drawn).shape[-1]
    return drawn, jax.random.normal(key_weights, (len(group.latents), size, number))


class PosteriorPaths(eqx.Module):
    """Draws of the zero-mean part of the posterior as functions (Wilson et al. 2020, eq. 13)."""

    # sets first in every leaf; draws of a set share features; None where centres span the prior
    prior: PriorPaths | None
    updates: Float[Array, "sets S Q M"]  # weights of the kernel functions at the centres

    def __call__(
        self, kernel: LatentKernel, centres: Centres, X: Inputs
    ) -> Float[Array, "draws N Q"]:
        """Values of all draws of all sets at every row of X, a set at a time."""
        blocks = cross_covariance(kernel, centres, X)

        def of_set(part: tuple[PriorPaths | None, Array]) -> Float[Array, "S N Q"]:
            prior, updates = part
            of_data = jax.vmap(lambda w: block_means(blocks, w))(updates)
            return of_data if prior is None else prior(X) + of_data

        values = jax.lax.map(of_set, (self.prior, self.updates))
        return values.reshape(-1, *values.shape[2:])


def posterior_paths(
    posterior: LatentPosterior,
    kernel: LatentKernel,
    key: RandomKey,
    *,
    latents: int,
    features: int,
    number: int,
) -> PosteriorPaths:
    """Sample paths of a posterior, at least so many.

    Up to sixteen sets of draws have features of their own, so that the errors of these average out
    over many draws, and none is evaluated for every draw anew. Each stationary part has as many.

    Raises:
        InputError: a kernel has no random features; inter-domain inducing variables.
    """
    centres = posterior.centres
    sets = min(number, _FEATURE_SETS)
    own = -(-number // sets)

    def draw(key: RandomKey) -> tuple[PriorPaths | None, Array]:
        key_prior, key_update = jax.random.split(key)
        keys = jax.random.split(key_update, own)
        sizes = {"latents": latents, "features": features, "number": own}
        if isinstance(centres, InducingVariables):
            prior, values = centres.prior_paths(kernel, key_prior, **sizes)
        else:
            prior = prior_paths(kernel, key_prior, inputs=centres.shape[1], **sizes)
            values = prior(centres)
        updates = jax.vmap(lambda key, at: posterior.pathwise_update(key, lambda _: at))
        return prior, updates(keys, values)

    return PosteriorPaths(*jax.lax.map(draw, jax.random.split(key, sets)))
