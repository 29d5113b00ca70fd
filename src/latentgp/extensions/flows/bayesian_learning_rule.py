"""The improved Bayesian learning rule: natural gradients of mean and precision."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.errors import check_ranges
from latentgp.extensions.flows.base import Gaussian, LogDensity, Start, StepReport, Stepwise
from latentgp.extensions.flows.covariance import Covariance
from latentgp.extensions.flows.optimisers import falling_share
from latentgp.numerics.cholesky import cholesky
from latentgp.typing import Array, RandomKey


class BayesianLearningRule(Stepwise):
    """The improved Bayesian learning rule (Lin, Schmidt & Khan 2020; IBLR).

    With precision S, gradients g and Hessians H at draws, and G = S - E[H],

        m <- m - rate S^-1 E[g],    S <- S - rate G + rate^2 G S^-1 G / 2,

    whose last term keeps S positive definite.

    Args:
        hessian: whether H is the Hessian; else it is estimated from gradients by Stein's lemma,
            E[H] = E[S (x - m) g'], made symmetric.
        samples: drawn a step.
        rate: the step size, in (0, 1].
        final: the share of it at the end, which it falls to along half a cosine.
        steps: how many.

    Raises:
        InputError: settings outside their range.
    """

    hessian: bool = eqx.field(static=True, default=True)
    samples: int = eqx.field(static=True, default=10)
    rate: float = eqx.field(static=True, default=0.1)
    final: float = eqx.field(static=True, default=0.1)
    steps: int = eqx.field(static=True, default=1000)

    def __check_init__(self) -> None:
        check_ranges(self, samples="at least 1", steps="at least 1")
        check_ranges(self, rate="(0, 1]", final="(0, 1]")

    def gradients_a_step(self, dimension: int) -> int:
        return self.samples * (1 + self.hessian * dimension)

    def init(self, target: LogDensity, start: Start, key: RandomKey) -> "PrecisionState":
        return PrecisionState(start.mean, jnp.diag(start.scale**-2.0), jnp.zeros((), int))

    def step(
        self, target: LogDensity, state: "PrecisionState", key: RandomKey
    ) -> tuple["PrecisionState", StepReport]:
        mean, precision, number = state
        key_draws, key_batch = jax.random.split(key)
        factor = cholesky(precision)
        normal = jax.random.normal(key_draws, (self.samples, len(mean)), mean.dtype)
        deviations = normal @ factor.inverse
        points = mean + deviations
        energies, gradients = target.gradients(points, key_batch)
        slope = jnp.mean(gradients, axis=0)
        if self.hessian:
            curve = jax.hessian(lambda x: target.energy(x, key_batch))
            curvature = jnp.mean(jax.lax.map(curve, points), axis=0)
        else:
            estimate = precision @ deviations.T @ gradients / self.samples
            curvature = 0.5 * (estimate + estimate.T)
        rate = self.rate * falling_share(number.astype(mean.dtype), self.steps, self.final)
        excess = precision - curvature
        turned = factor.inverse @ excess
        after = precision - rate * excess + 0.5 * rate**2 * turned.T @ turned
        moved = mean - rate * factor.inverse.T @ (factor.inverse @ slope)
        energy = jnp.mean(energies) + factor.half_log_determinant
        after = PrecisionState(moved, 0.5 * (after + after.T), number + 1)
        return after, StepReport(energy, jnp.full_like(energy, jnp.nan))

    def gaussian(self, state: "PrecisionState") -> Gaussian:
        return Gaussian(state.mean, Covariance.of(cholesky(state.precision).inverse.T))


class PrecisionState(NamedTuple):
    """Mean and precision, and the number of steps made."""

    mean: Float[Array, "D"]
    precision: Float[Array, "D D"]
    number: Array
