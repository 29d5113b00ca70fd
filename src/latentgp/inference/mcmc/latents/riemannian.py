"""Hamiltonian moves of latent functions under a metric of curvature."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Key

from latentgp.inference.mcmc.coordinates import Coordinates
from latentgp.inference.mcmc.latents.base import Info, LatentMove, Residual, Valued, accepted
from latentgp.inference.mcmc.riemannian import explicit_trajectory, implicit_trajectory
from latentgp.inference.mcmc.target import WhiteTarget
from latentgp.models import LatentGP
from latentgp.numerics.cholesky import lower_cholesky
from latentgp.numerics.triangular import solve_lower
from latentgp.typing import Array

_NEWTON_STEPS, _LONGEST_STEP, _RIDGE = 25, 2.0, 1e-6


class RiemannianHamiltonian(LatentMove):
    """Riemann manifold Hamiltonian trajectories of a random number of steps.

    Girolami & Calderhead (2011) with the metrics of Filippone et al. (2012, 5) for f given
    hyper-parameters, written in the coordinates eps: "fisher" is K^-1 + W(f), W the curvature of
    -log p(y | f) with what ties the latent functions of a row (for the softmax its Fisher
    information), by generalised leapfrog steps; "homogeneous" is K^-1 + W(f_0) at the most probable
    constant f_0 (for the softmax the log frequencies of the classes), "identity" is I for f at the
    places of the coefficients, both by explicit steps.

    Args:
        metric: "fisher", "homogeneous" or "identity".
        steps: at most so many, drawn evenly from 1 on.
        root: lower factor of the metric where it is constant, shape (Q M, Q M); set by `within`.
    """

    target_acceptance: ClassVar[float | None] = 0.8
    first_scale: ClassVar[float] = 0.3
    largest_scale: ClassVar[float] = 1.5

    metric: Literal["fisher", "homogeneous", "identity"] = eqx.field(static=True, default="fisher")
    steps: int = eqx.field(static=True, default=5)
    root: Float[Array, "P P"] | None = None

    def within(self, target: WhiteTarget, model: LatentGP, coordinates: Coordinates) -> LatentMove:
        if self.metric == "fisher":
            return self
        if self.metric == "homogeneous":
            tensor = homogeneous_metric(target, model, coordinates)
        else:
            tensor = jax.scipy.linalg.block_diag(*(root.T @ root for root in coordinates.root))
        return dataclasses.replace(self, root=lower_cholesky(tensor))

    def init(self, residual: Residual, eps: Float[Array, "Q M"]) -> Valued:
        return Valued.at(residual, eps)

    def step(
        self, residual: Residual, state: Valued, scale: Float[Array, ""], key: Key[Array, ""]
    ) -> tuple[Valued, Info]:
        key_number, key_momentum, key_accept = jax.random.split(key, 3)
        number = jax.random.randint(key_number, (), 1, self.steps + 1)
        shape, start = state.eps.shape, state.eps.ravel()

        def potential(q: Float[Array, "P"]) -> Float[Array, ""]:
            return 0.5 * jnp.sum(q**2) - residual(q.reshape(shape))

        if self.root is None:
            metric = jax.hessian(potential)
            end = implicit_trajectory(potential, metric, start, scale, number, key_momentum)
        else:
            end = explicit_trajectory(potential, self.root, start, scale, number, key_momentum)
        there = Valued.at(residual, end.place.reshape(shape))
        state, chance = accepted(state, there, end.log_ratio, key_accept)
        return state, Info(chance, end.evaluations, end.failed)


def homogeneous_metric(
    target: WhiteTarget, model: LatentGP, coordinates: Coordinates
) -> Float[Array, "P P"]:
    """K^-1 + W(f_0) in the coordinates: I + F'(W(f_0) - W) F with the precision W of their sites.

    For the softmax W(f_0) = diag(pi) - Phi Phi' at the frequencies pi of the classes (Filippone et
    al. 2012, 5).
    """
    y, side, weights = target.data.y, dict(target.data.side_information), target.data.weights
    weights = jnp.ones(len(y), coordinates.factor.dtype) if weights is None else weights

    def of_row(f: Float[Array, "Q"], y: Array, side: dict[str, Array]) -> Float[Array, ""]:
        return model.likelihood.log_prob(y, f, side)

    def total(f: Float[Array, "Q"]) -> Float[Array, ""]:
        rows = jax.vmap(of_row, (None, 0, 0))(f, y, side)
        return rows @ weights - 0.5 * _RIDGE * jnp.sum(f**2)

    def newton(_: Any, f: Float[Array, "Q"]) -> Float[Array, "Q"]:
        root = lower_cholesky(-jax.hessian(total)(f))
        step = solve_lower(root, solve_lower(root, jax.grad(total)(f)), transposed=True)
        return f + jnp.clip(step, -_LONGEST_STEP, _LONGEST_STEP)

    # Any f is valid: where Newton's method has not come to the end, trajectories are but longer.
    latents, _, size = coordinates.factor.shape
    start = jnp.zeros(latents, coordinates.factor.dtype)
    f = jax.lax.fori_loop(0, _NEWTON_STEPS, newton, start)
    bends = jax.vmap(jax.hessian(of_row), (None, 0, 0))(f, y, side) * weights[:, None, None]
    more = -bends - jax.vmap(jnp.diag)(coordinates.precision)
    factor = coordinates.factor
    added = jnp.einsum("qnm,nqr,rnl->qmrl", factor, more, factor)
    return jnp.eye(latents * size, dtype=added.dtype) + added.reshape(latents * size, -1)
