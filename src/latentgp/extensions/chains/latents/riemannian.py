"""Hamiltonian moves of latent functions under a metric of curvature."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.extensions.chains.coordinates import Coordinates, DenseCoordinates
from latentgp.extensions.chains.latents.base import (
    Info,
    LatentMove,
    Residual,
    ResidualValue,
    accepted,
)
from latentgp.extensions.chains.riemannian import explicit_trajectory, implicit_trajectory
from latentgp.extensions.chains.target import WhiteTarget
from latentgp.models import LatentGP
from latentgp.numerics.cholesky import lower_cholesky
from latentgp.numerics.triangular import solve_lower
from latentgp.typing import Array, RandomKey, RowLatents, Scalar

_NEWTON_STEPS, _LONGEST_STEP, _RIDGE = 25, 2.0, 1e-6


class RiemannianHamiltonian(LatentMove):
    """Riemann manifold Hamiltonian trajectories of a random number of steps.

    Girolami & Calderhead (2011) with the metrics of Filippone et al. (2012, 5) for f given
    hyper-parameters, written in the coordinates eps: "fisher" is K^-1 + W(f), W the curvature of
    -log p(y | f) with what ties the latent functions of a row (for the softmax its Fisher
    information), by generalised leapfrog steps; "homogeneous" is K^-1 + W(f_0) at the most probable
    constant f_0 (for the softmax the log frequencies of the classes), "identity" is I for f at the
    places of the coefficients, both by explicit steps.
    """

    target_acceptance: ClassVar[float | None] = 0.8
    first_scale: ClassVar[float] = 0.3
    largest_scale: ClassVar[float] = 1.5

    metric: Literal["fisher", "homogeneous", "identity"] = eqx.field(static=True, default="fisher")
    steps: int = eqx.field(static=True, default=5)  # at most so many, drawn evenly from 1 on
    # hyper-parameters and coordinates at which a metric that depends on f is taken; set by `within`
    given: tuple[WhiteTarget, LatentGP, Coordinates] | None = None
    root: Float[Array, "size size"] | None = None  # of a constant metric; set by `within`

    def within(self, target: WhiteTarget, model: LatentGP, coordinates: Coordinates) -> LatentMove:
        assert isinstance(coordinates, DenseCoordinates)
        if self.metric == "fisher":
            return dataclasses.replace(self, given=(target, model, coordinates))
        if self.metric == "homogeneous":
            tensor = homogeneous_metric(target, model, coordinates)
        else:
            tensor = jax.scipy.linalg.block_diag(*(root.T @ root for root in coordinates.root))
        return dataclasses.replace(self, root=lower_cholesky(tensor))

    def step(
        self, residual: Residual, state: ResidualValue, scale: Scalar, key: RandomKey
    ) -> tuple[ResidualValue, Info]:
        key_number, key_momentum, key_accept = jax.random.split(key, 3)
        number = jax.random.randint(key_number, (), 1, self.steps + 1)
        shape, start = state.eps.shape, state.eps.ravel()

        def potential(q: Float[Array, "size"]) -> Scalar:
            return 0.5 * jnp.sum(q**2) - residual(q.reshape(shape))

        if self.root is not None:
            end = explicit_trajectory(potential, self.root, start, scale, number, key_momentum)
        else:
            assert self.given is not None
            target, model, coordinates = self.given

            def metric(q: Float[Array, "size"]) -> Float[Array, "size size"]:
                f = coordinates.centre + coordinates.shift(q.reshape(shape))
                return curvature_metric(target, model, coordinates, f)

            end = implicit_trajectory(potential, metric, start, scale, number, key_momentum)
        there = ResidualValue.at(residual, end.place.reshape(shape))
        return accepted(state, there, end.log_ratio, key_accept, end.evaluations, end.failed)


def curvature_metric(
    target: WhiteTarget, model: LatentGP, coordinates: Coordinates, f: RowLatents
) -> Float[Array, "size size"]:
    """K^-1 + W(f) in the coordinates: I + F'(W(f) - W) F with the precision W of their sites.

    With what ties the latent functions of a row: for the softmax W(f) is diag(pi) - Phi Phi'
    (Filippone et al. 2012, 3).
    """

    def slope(f: RowLatents) -> RowLatents:
        return jax.grad(lambda f: coordinates.log_likelihood(target, model, f))(f)

    # Rows do not depend on each other, so one direction a latent function gives all blocks.
    columns = [jnp.broadcast_to(one, f.shape) for one in jnp.eye(f.shape[1], dtype=f.dtype)]
    bends = jnp.stack([jax.jvp(slope, (f,), (column,))[1] for column in columns], axis=2)
    assert isinstance(coordinates, DenseCoordinates)
    more = -bends - jax.vmap(jnp.diag)(coordinates.precision)
    factor = coordinates.factor
    added = jnp.einsum("qnm,nqr,rnl->qmrl", factor, more, factor)
    size = factor.shape[0] * factor.shape[2]
    return jnp.eye(size, dtype=f.dtype) + added.reshape(size, size)


def homogeneous_metric(
    target: WhiteTarget, model: LatentGP, coordinates: Coordinates
) -> Float[Array, "size size"]:
    """K^-1 + W(f_0) in the coordinates, f_0 the most probable constant."""
    shape, dtype = coordinates.centre.shape, coordinates.centre.dtype

    def total(f: Float[Array, "Q"]) -> Scalar:
        value = coordinates.log_likelihood(target, model, jnp.broadcast_to(f, shape))
        return value - 0.5 * _RIDGE * jnp.sum(f**2)

    def newton(_: Any, f: Float[Array, "Q"]) -> Float[Array, "Q"]:
        root = lower_cholesky(-jax.hessian(total)(f))
        step = solve_lower(root, solve_lower(root, jax.grad(total)(f)), transposed=True)
        return f + jnp.clip(step, -_LONGEST_STEP, _LONGEST_STEP)

    # Any f is valid: where Newton's method has not come to the end, trajectories are but longer.
    f = jax.lax.fori_loop(0, _NEWTON_STEPS, newton, jnp.zeros(shape[1], dtype))
    return curvature_metric(target, model, coordinates, jnp.broadcast_to(f, shape))
