"""Hamiltonian moves of hyper-parameters under the Fisher information of the prior of f."""

from __future__ import annotations

from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from latentgp.extensions.chains.hyperparameters.base import HyperLaw, HyperMove, HyperMoved, Theta
from latentgp.extensions.chains.latents.base import accepted
from latentgp.extensions.chains.riemannian import explicit_trajectory, implicit_trajectory
from latentgp.typing import HyperMatrix, HyperVector, RandomKey, Scalar

_RIDGE = 1e-3  # of what neither the prior of f nor that of hyper-parameters says anything about


class HyperRiemannian(HyperMove):
    """Riemann manifold Hamiltonian trajectories of hyper-parameters given f.

    "fisher" is the metric of Filippone et al. (2012, 3), the information of f about them and the
    curvature of their prior, by generalised leapfrog steps (Girolami & Calderhead 2011);
    "identity" is I for the unconstrained hyper-parameters, by explicit steps.
    """

    target_acceptance: ClassVar[float | None] = 0.8
    largest_scale: ClassVar[float] = 1.5
    differentiates: ClassVar[bool] = True

    metric: Literal["fisher", "identity"] = eqx.field(static=True, default="fisher")
    steps: int = eqx.field(static=True, default=5)  # at most so many, drawn evenly from 1 on

    def step(self, law: HyperLaw, here: Theta, scale: Scalar, key: RandomKey) -> HyperMoved:
        key_number, key_momentum, key_accept = jax.random.split(key, 3)
        number = jax.random.randint(key_number, (), 1, self.steps + 1)

        def potential(vector: HyperVector) -> Scalar:
            return -law.at(vector).value

        def metric(vector: HyperVector) -> HyperMatrix:
            matrix, _ = law.information(vector, law.at(vector).worked_out)
            return matrix + _RIDGE * jnp.eye(len(vector), dtype=vector.dtype)

        if self.metric == "fisher":
            end = implicit_trajectory(potential, metric, here.vector, scale, number, key_momentum)
        else:
            root = jnp.eye(len(here.vector), dtype=here.vector.dtype)
            end = explicit_trajectory(potential, root, here.vector, scale, number, key_momentum)
        there = law.at(end.place)
        at, info = accepted(here, there, end.log_ratio, key_accept)
        return HyperMoved(at, info.acceptance, end.evaluations, there, end.failed)
