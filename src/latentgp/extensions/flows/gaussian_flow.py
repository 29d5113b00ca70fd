"""The Gaussian flow: mean and a square root of the covariance, by fresh draws in every step."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.errors import check_choices, check_ranges, refuse
from latentgp.extensions.flows.base import Gaussian, LogDensity, Start, StepReport, Stepwise
from latentgp.extensions.flows.covariance import Covariance, check_rank
from latentgp.extensions.flows.optimisers import Optimiser, RMSProp
from latentgp.numerics.cholesky import lower_cholesky
from latentgp.typing import Array, Point, RandomKey


class GaussianFlow(Stepwise):
    """The flow of a Gaussian's mean and of a square root of its covariance, from fresh draws.

    x = m + W e of standard normal e, and dm/dt = -E[g], dW/dt = W - E[g e'] W'W, g the gradient of
    phi = -log p (Galy-Fajou 2022, 6.11 and algorithm 6.1, whose printed W W' and missing -I are
    misprints). Low ranks cost D times the rank a step, and its square once.

    Args:
        rank: columns of W; None for D.
        samples: drawn a step.
        optimiser: step sizes.
        structure: "full", or "mean-field" for a diagonal W.
        steps: how many.

    Raises:
        InputError: settings outside their range.
    """

    rank: int | None = eqx.field(static=True, default=None)
    samples: int = eqx.field(static=True, default=10)
    optimiser: Optimiser = RMSProp()
    structure: str = eqx.field(static=True, default="full")
    steps: int = eqx.field(static=True, default=5000)

    def __check_init__(self) -> None:
        check_choices(self, structure=("full", "mean-field"))
        check_ranges(self, rank="at least 1", samples="at least 1", steps="at least 1")
        no_rank = 'GaussianFlow(structure="mean-field") has a diagonal and no rank, got '
        refuse({f"{no_rank}{self.rank}.": self.structure == "mean-field" and self.rank is not None})

    def check(self, dimension: int, stochastic: bool) -> None:
        super().check(dimension, stochastic)
        check_rank(self, dimension)

    def gradients_a_step(self, dimension: int) -> int:
        return self.samples

    def init(self, target: LogDensity, start: Start, key: RandomKey) -> RootState:
        mean, scale = start
        if self.structure == "mean-field":
            root = scale
        elif self.rank in (None, len(mean)):
            root = jnp.diag(scale)
        else:
            draws = jax.random.normal(key, (len(mean), self.rank), mean.dtype)
            root = scale[:, None] * jnp.linalg.qr(draws)[0]
        memory = self.optimiser.transformation(self.steps).init((mean, root))
        return RootState(mean, root, memory)

    def step(
        self, target: LogDensity, state: RootState, key: RandomKey
    ) -> tuple[RootState, StepReport]:
        mean, root, memory = state
        key_draws, key_batch = jax.random.split(key)
        shape = self.samples, *root.shape[-1:]
        normal = jax.random.normal(key_draws, shape, mean.dtype)
        diagonal = self.structure == "mean-field"
        deviations = normal * root if diagonal else normal @ root.T
        energies, gradients = target.gradients(mean + deviations, key_batch)
        if diagonal:
            flow = root * (jnp.mean(gradients * deviations, axis=0) - 1)
            half = jnp.sum(jnp.log(jnp.abs(root)))
        else:
            inner = root.T @ root
            flow = gradients.T @ normal @ inner / self.samples - root
            half = jnp.sum(jnp.log(jnp.diagonal(lower_cholesky(inner))))
        slopes = jnp.mean(gradients, axis=0), flow
        (along, turn), memory = self.optimiser.transformation(self.steps).update(slopes, memory)
        told = StepReport(jnp.mean(energies) - half, jnp.full((), jnp.nan, mean.dtype))
        return RootState(mean + along, root + turn, memory), told

    def gaussian(self, state: RootState) -> Gaussian:
        if self.structure == "mean-field":
            return Gaussian(state.mean, Covariance.of_variances(state.root**2))
        return Gaussian(state.mean, Covariance.of(state.root))


class RootState(NamedTuple):
    """Mean, square root of the covariance, and what step sizes need."""

    mean: Point
    root: Float[Array, "D *R"]
    memory: Any
