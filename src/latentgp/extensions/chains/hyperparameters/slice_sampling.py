"""Slice moves of hyper-parameters."""

from __future__ import annotations

import jax.numpy as jnp

from latentgp.extensions.chains.hyperparameters.base import HyperLaw, HyperMove, HyperMoved, Theta
from latentgp.extensions.chains.slice_sampling import slice_update
from latentgp.typing import Array, RandomKey, Scalar

_WIDTH = 3.0  # standard deviations


class HyperSlice(HyperMove):
    """Slice sampling along a random direction (Neal 2003): nothing is rejected."""

    def step(self, law: HyperLaw, here: Theta, scale: Scalar, key: RandomKey) -> HyperMoved:
        def along(noise: Array) -> Array:
            return law.at(here.vector + law.seen.root @ noise).value

        found = slice_update(along, jnp.zeros_like(here.vector), _WIDTH, key)
        there = law.at(here.vector + law.seen.root @ found.vector)
        acceptance = found.accepted.astype(here.vector.dtype)
        return HyperMoved(there, acceptance, jnp.full_like(acceptance, jnp.nan), there)
