"""Moves of hyper-parameters along gradients."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from latentgp.extensions.chains.hyperparameters.base import HyperLaw, HyperMove, HyperMoved, Theta
from latentgp.extensions.chains.hyperparameters.random_walk import metropolis
from latentgp.extensions.chains.latents.base import accepted
from latentgp.extensions.chains.riemannian import explicit_trajectory, implicit_trajectory
from latentgp.numerics.cholesky import lower_cholesky
from latentgp.numerics.triangular import solve_lower
from latentgp.typing import Array, HyperMatrix, HyperVector, RandomKey, Scalar

# where laws tell nothing: of the precision seen, and of the metric of trajectories
_RIDGE = 1e-3


class HyperHamiltonian(HyperMove):
    """Leapfrog trajectories in coordinates of the covariance that the warm-up saw, by BlackJAX."""

    target_acceptance: ClassVar[float | None] = 0.75
    differentiates: ClassVar[bool] = True

    steps: int = eqx.field(static=True, default=5)  # at most so many, drawn evenly from 1 on

    def step(self, law: HyperLaw, here: Theta, scale: Scalar, key: RandomKey) -> HyperMoved:
        import blackjax

        def along(noise: Array) -> Array:
            return law.at(here.vector + law.seen.root @ noise).value

        key_number, key_step = jax.random.split(key)
        number = jax.random.randint(key_number, (), 1, self.steps + 1)
        kernel: Any = blackjax.hmc.build_kernel()
        start = blackjax.hmc.init(jnp.zeros_like(here.vector), along)
        mass = jnp.ones_like(here.vector)
        state, info = kernel(key_step, start, along, scale, mass, number)
        there = law.at(here.vector + law.seen.root @ state.position)
        return HyperMoved(there, info.acceptance_rate, number + 2.0, there)


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
