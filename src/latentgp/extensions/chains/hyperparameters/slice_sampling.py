"""Slice moves of hyper-parameters."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from latentgp.extensions.chains.hyperparameters.base import (
    HyperLaw,
    HyperMove,
    HyperMoved,
    WarmupHistory,
)
from latentgp.extensions.chains.slice_sampling import slice_update
from latentgp.typing import Array, HyperVector, RandomKey, Scalar

_WIDTH = 3.0  # standard deviations


class HyperSlice(HyperMove):
    """Slice sampling along a random direction (Neal 2003): nothing is rejected."""

    def step(
        self,
        law: HyperLaw,
        vector: HyperVector,
        here: tuple[Any, Any],
        seen: WarmupHistory,
        scale: Scalar,
        key: RandomKey,
    ) -> HyperMoved:
        def along(noise: Array) -> Array:
            return law.density(vector + seen.root @ noise)[0]

        found = slice_update(along, jnp.zeros_like(vector), _WIDTH, key)
        there = vector + seen.root @ found.vector
        _, worked_out = law.density(there)
        acceptance = found.accepted.astype(vector.dtype)
        unknown = jnp.full((), jnp.nan, vector.dtype)
        return HyperMoved(there, worked_out, acceptance, unknown, (there, worked_out))
