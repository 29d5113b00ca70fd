"""Hamiltonian moves of hyper-parameters under the Fisher information of the prior of f."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Key

from latentgp.inference.mcmc.hyperparameters.base import Density, HyperMove, HyperMoved, Seen
from latentgp.inference.mcmc.latents.base import accepted
from latentgp.inference.mcmc.riemannian import explicit_trajectory, implicit_trajectory
from latentgp.inference.mcmc.target import WhiteTarget
from latentgp.inference.sites.algorithm import prior_mean
from latentgp.numerics.triangular import solve_lower
from latentgp.representations.latent_axis import latent_grams
from latentgp.typing import Array

_RIDGE = 1e-3  # of what neither the prior of f nor that of hyper-parameters says anything about


class HyperRiemannian(HyperMove):
    """Riemann manifold Hamiltonian trajectories of hyper-parameters given f.

    "fisher" is the metric of Filippone et al. (2012, 3): `fisher_metric`, by generalised leapfrog
    steps (Girolami & Calderhead 2011); "identity" is I for the unconstrained hyper-parameters, by
    explicit steps.

    Args:
        metric: "fisher" or "identity".
        steps: at most so many, drawn evenly from 1 on.
        target: whose hyper-parameters move; set by `within`.
    """

    target_acceptance: ClassVar[float | None] = 0.8
    largest_scale: ClassVar[float] = 1.5
    differentiates: ClassVar[bool] = True

    metric: Literal["fisher", "identity"] = eqx.field(static=True, default="fisher")
    steps: int = eqx.field(static=True, default=5)
    target: WhiteTarget | None = None

    def within(self, target: WhiteTarget) -> HyperMove:
        return dataclasses.replace(self, target=target) if self.metric == "fisher" else self

    def step(
        self,
        density: Density,
        vector: Float[Array, "P"],
        here: tuple[Any, Any],
        seen: Seen,
        scale: Float[Array, ""],
        key: Key[Array, ""],
    ) -> HyperMoved:
        key_number, key_momentum, key_accept = jax.random.split(key, 3)
        number = jax.random.randint(key_number, (), 1, self.steps + 1)

        def potential(vector: Float[Array, "P"]) -> Float[Array, ""]:
            return -density(vector)[0]

        if self.target is None:
            root = jnp.eye(len(vector), dtype=vector.dtype)
            end = explicit_trajectory(potential, root, vector, scale, number, key_momentum)
        else:
            target = self.target

            def metric(vector: Float[Array, "P"]) -> Float[Array, "P P"]:
                return fisher_metric(target, vector)

            end = implicit_trajectory(potential, metric, vector, scale, number, key_momentum)
        there = end.place, density(end.place)[1]
        (vector, worked_out), chance = accepted((vector, here[1]), there, end.log_ratio, key_accept)
        return HyperMoved(vector, worked_out, chance, end.evaluations, there, end.failed)


def fisher_metric(target: WhiteTarget, vector: Float[Array, "P"]) -> Float[Array, "P P"]:
    """Fisher information of f ~ N(m, K) about unconstrained hyper-parameters, and their prior's.

    sum_q Tr(K_q^-1 d_i K_q K_q^-1 d_j K_q) / 2 + d_i m_q' K_q^-1 d_j m_q, which for the logarithms
    of weights is that of Filippone et al. (2012, 3), plus the curvature of -log of the prior along
    each (where that is positive) and a little.
    """

    def moments(vector: Array) -> Any:
        model = target.space.to_model(vector)
        grams, mean = latent_grams(model.kernel, target.data.X), prior_mean(model, target.data).T
        return (grams, mean), target.whitening(model).lower

    (in_grams, in_means), lowers = jax.jacfwd(moments, has_aux=True)(vector)
    size, latents = len(vector), len(in_means)
    total = jnp.zeros((size, size), vector.dtype)
    for q in range(latents):
        lower, slopes = lowers[q % len(lowers)], in_grams[q % len(in_grams)]
        rows = len(lower)
        half = solve_lower(lower, slopes.reshape(rows, -1)).reshape(rows, rows, size)
        half = jnp.swapaxes(half, 0, 1).reshape(rows, -1)
        whole = solve_lower(lower, half).reshape(-1, size)  # L^-1 d_i K L^-T, entries first
        shift = solve_lower(lower, in_means[q])
        total = total + 0.5 * whole.T @ whole + shift.T @ shift
    bend = -jnp.diagonal(jax.hessian(target.space.log_prior)(vector))
    return total + jnp.diag(jnp.maximum(bend, 0.0) + _RIDGE)
