"""Crank-Nicolson moves of hyper-parameters about the Student-t law that the warm-up saw."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp

from latentgp.extensions.chains.hyperparameters.base import HyperLaw, HyperMove, HyperMoved, Theta
from latentgp.extensions.chains.hyperparameters.random_walk import metropolis
from latentgp.typing import HyperVector, RandomKey, Scalar

_FREEDOM = 5.0  # degrees, of the law that proposals leave as it is


class HyperCrankNicolson(HyperMove):
    """Autoregressive proposals that leave a Student-t law as it is (Kamatani 2018).

    With mu the mean and S the covariance that the warm-up saw, r the distance from mu in units of
    S, and H hyper-parameters: theta' = mu + sqrt(1 - s^2) (theta - mu) + s z^(1/2) S^(1/2) xi with
    z ~ InverseGamma((nu + H) / 2, (nu + r^2) / 2). A posterior that is this law accepts all; for
    s = 1 draws hardly depend on each other, and heavy tails do not hold a chain.
    s = scale / sqrt(1 + scale^2).
    """

    target_acceptance: ClassVar[float | None] = 0.3
    largest_scale: ClassVar[float] = 2.0

    def step(self, law: HyperLaw, here: Theta, scale: Scalar, key: RandomKey) -> HyperMoved:
        key_step, key_accept = jax.random.split(key)
        start = law.seen.standardised(here.vector)
        end = proposed(start, scale, key_step)
        there = law.at(law.seen.mean + law.seen.root @ end)
        log_ratio = there.value - here.value + log_student(start) - log_student(end)
        return metropolis(here, there, log_ratio, key_accept)


def proposed(z: HyperVector, scale: Scalar, key: RandomKey) -> HyperVector:
    """A proposal of standardised hyper-parameters, reversible under `log_student`."""
    key_size, key_step = jax.random.split(key)
    shape = jnp.asarray(0.5 * (_FREEDOM + len(z)), z.dtype)
    spread = 0.5 * (_FREEDOM + jnp.sum(z**2)) / jax.random.gamma(key_size, shape, dtype=z.dtype)
    share = scale / jnp.sqrt(1 + scale**2)
    noise = jax.random.normal(key_step, z.shape, z.dtype)
    return jnp.sqrt(1 - share**2) * z + share * jnp.sqrt(spread) * noise


def log_student(z: HyperVector) -> Scalar:
    """Log density of the Student-t law, up to a constant."""
    return -0.5 * (_FREEDOM + len(z)) * jnp.log1p(jnp.sum(z**2) / _FREEDOM)
