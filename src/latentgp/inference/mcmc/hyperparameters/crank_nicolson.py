"""Crank-Nicolson moves of hyper-parameters about the Student-t law that the warm-up saw."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Float, Key

from latentgp.inference.mcmc.hyperparameters.base import Density, HyperMove, HyperMoved, Seen
from latentgp.inference.mcmc.hyperparameters.random_walk import metropolis
from latentgp.numerics.triangular import solve_lower
from latentgp.typing import Array

_FREEDOM = 5.0  # degrees, of the law that proposals leave as it is


class HyperCrankNicolson(HyperMove):
    """Autoregressive proposals that leave a Student-t law as it is (Kamatani 2018).

    With r the distance of theta from the mean mu in units of the covariance S, and P of them:
    theta' = mu + sqrt(1 - s^2) (theta - mu) + s z^(1/2) S^(1/2) xi, where
    z ~ InverseGamma((nu + P) / 2, (nu + r^2) / 2). A posterior that is the t law itself is accepted
    always: for s = 1 draws hardly depend on each other. Tails heavier than Gaussian ones
    do not hold the chain. s = scale / sqrt(1 + scale^2).
    """

    target_acceptance: ClassVar[float | None] = 0.4

    def step(
        self,
        density: Density,
        vector: Float[Array, "P"],
        here: tuple[Array, object],
        seen: Seen,
        scale: Float[Array, ""],
        key: Key[Array, ""],
    ) -> HyperMoved:
        key_size, key_step, key_accept = jax.random.split(key, 3)
        size = len(vector)

        def distance(at: Array) -> Array:
            return jnp.sum(solve_lower(seen.root, (at - seen.mean)[:, None]) ** 2)

        def log_student(squared: Array) -> Array:
            return -0.5 * (_FREEDOM + size) * jnp.log1p(squared / _FREEDOM)

        squared = distance(vector)
        shape = 0.5 * (_FREEDOM + size)
        spread = 0.5 * (_FREEDOM + squared) / jax.random.gamma(key_size, shape, dtype=vector.dtype)
        share = scale / jnp.sqrt(1 + scale**2)
        noise = jax.random.normal(key_step, vector.shape, vector.dtype)
        there = seen.mean + jnp.sqrt(1 - share**2) * (vector - seen.mean)
        there = there + share * jnp.sqrt(spread) * (seen.root @ noise)
        value, worked_out = density(there)
        log_ratio = value - here[0] + log_student(squared) - log_student(distance(there))
        return metropolis((vector, here[1]), (there, worked_out), log_ratio, key_accept)
