"""Simplified manifold Langevin moves of hyper-parameters."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from latentgp.extensions.chains.hyperparameters.base import HyperLaw, HyperMove, HyperMoved, Theta
from latentgp.extensions.chains.hyperparameters.random_walk import metropolis
from latentgp.numerics.cholesky import lower_cholesky
from latentgp.numerics.triangular import solve_lower
from latentgp.typing import Array, HyperMatrix, HyperVector, RandomKey, Scalar

_RIDGE = 1e-3  # of the precision seen: where the law tells nothing proposals stay within reason


class _Point(NamedTuple):
    """Hyper-parameters, and the law of what is proposed there."""

    at: Theta
    mean: HyperVector
    root: HyperMatrix  # lower factor of G


class HyperManifoldMALA(HyperMove):
    """Langevin steps whose metric is the Fisher information where they start.

    theta' ~ N(theta + s^2 G^-1 grad / 2, s^2 G^-1), G the information of the law that the coupling
    gives hyper-parameters and the negative second derivatives of the log prior (Girolami &
    Calderhead 2011, 5; Filippone, Zhong & Girolami 2013, Alg. 2). Hyper-parameters of the
    likelihood, about which that law tells nothing, have the precision that the warm-up saw.
    """

    target_acceptance: ClassVar[float | None] = 0.574
    differentiates: ClassVar[bool] = True

    def step(self, law: HyperLaw, here: Theta, scale: Scalar, key: RandomKey) -> HyperMoved:
        spread = 1 / jnp.sum(law.seen.root**2, axis=1)

        def at(vector: Array) -> _Point:
            (value, worked_out), slope = jax.value_and_grad(law.density, has_aux=True)(vector)
            matrix, known = jax.lax.stop_gradient(law.information(vector, worked_out))
            root = lower_cholesky(matrix + jnp.diag(jnp.where(known, _RIDGE, 1.0) * spread))
            drift = solve_lower(root, solve_lower(root, slope), transposed=True)
            theta = Theta(vector, value, worked_out)
            return _Point(theta, vector + 0.5 * scale**2 * drift, root)

        def log_density_of_step(start: _Point, end: Array) -> Scalar:
            off = start.root.T @ (end - start.mean) / scale
            return jnp.sum(jnp.log(jnp.diagonal(start.root))) - 0.5 * jnp.sum(off**2)

        key_noise, key_accept = jax.random.split(key)
        noise = jax.random.normal(key_noise, here.vector.shape, here.vector.dtype)
        start = at(here.vector)
        there = at(start.mean + scale * solve_lower(start.root, noise, transposed=True))
        log_ratio = there.at.value + log_density_of_step(there, start.at.vector)
        log_ratio = log_ratio - start.at.value - log_density_of_step(start, there.at.vector)
        moved = metropolis(start.at, there.at, log_ratio, key_accept)
        return moved._replace(evaluations=2.0 * moved.evaluations)
