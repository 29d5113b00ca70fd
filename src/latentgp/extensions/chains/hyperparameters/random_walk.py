"""Random-walk Metropolis moves of hyper-parameters."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from latentgp.extensions.chains.hyperparameters.base import (
    HyperLaw,
    HyperMove,
    HyperMoved,
    WarmupHistory,
)
from latentgp.extensions.chains.latents.base import accepted
from latentgp.typing import Array, HyperVector, RandomKey, Scalar


class HyperRandomWalk(HyperMove):
    """Gaussian random walk with the covariance that the warm-up saw (Haario et al. 2001)."""

    target_acceptance: ClassVar[float | None] = 0.25

    def step(
        self,
        law: HyperLaw,
        vector: HyperVector,
        here: tuple[Any, Any],
        seen: WarmupHistory,
        scale: Scalar,
        key: RandomKey,
    ) -> HyperMoved:
        key_step, key_accept = jax.random.split(key)
        noise = jax.random.normal(key_step, vector.shape, vector.dtype)
        there = vector + scale * (seen.root @ noise)
        value, worked_out = law.density(there)
        return metropolis((vector, here[1]), (there, worked_out), value - here[0], key_accept)


def metropolis(
    here: tuple[Array, Any], there: tuple[Array, Any], log_ratio: Array, key: RandomKey
) -> HyperMoved:
    """The proposal or the present hyper-parameters, each with what was worked out there."""
    (vector, worked_out), chance = accepted(here, there, log_ratio, key)
    return HyperMoved(vector, worked_out, chance, jnp.ones((), vector.dtype), there)
