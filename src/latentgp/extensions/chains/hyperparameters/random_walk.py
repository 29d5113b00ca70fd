"""Random-walk Metropolis moves of hyper-parameters."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp

from latentgp.extensions.chains.hyperparameters.base import HyperLaw, HyperMove, HyperMoved, Theta
from latentgp.extensions.chains.latents.base import accepted
from latentgp.typing import RandomKey, Scalar


class HyperRandomWalk(HyperMove):
    """Gaussian random walk with the covariance that the warm-up saw (Haario et al. 2001)."""

    target_acceptance: ClassVar[float | None] = 0.25

    def step(self, law: HyperLaw, here: Theta, scale: Scalar, key: RandomKey) -> HyperMoved:
        key_step, key_accept = jax.random.split(key)
        noise = jax.random.normal(key_step, here.vector.shape, here.vector.dtype)
        there = law.at(here.vector + scale * (law.seen.root @ noise))
        return metropolis(here, there, there.value - here.value, key_accept)


def metropolis(here: Theta, there: Theta, log_ratio: Scalar, key: RandomKey) -> HyperMoved:
    """The proposal or the present hyper-parameters."""
    at, info = accepted(here, there, log_ratio, key)
    return HyperMoved(at, info.acceptance, jnp.ones((), at.vector.dtype), there)
