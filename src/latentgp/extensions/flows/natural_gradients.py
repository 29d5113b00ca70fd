"""Natural gradients of mean and precision, full or diagonal."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from latentgp.errors import check_ranges
from latentgp.extensions.flows.base import Gaussian, LogDensity, Start, StepReport, Stepwise
from latentgp.extensions.flows.covariance import Covariance
from latentgp.extensions.flows.optimisers import falling_share
from latentgp.numerics.cholesky import cholesky
from latentgp.typing import Array, Point, RandomKey


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

    def init(self, target: LogDensity, start: Start, key: RandomKey) -> PrecisionState:
        return PrecisionState(start.mean, jnp.diag(start.scale**-2.0), jnp.zeros((), int))

    def step(
        self, target: LogDensity, state: PrecisionState, key: RandomKey
    ) -> tuple[PrecisionState, StepReport]:
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

    def gaussian(self, state: PrecisionState) -> Gaussian:
        return Gaussian(state.mean, Covariance.of(cholesky(state.precision).inverse.T))


class PrecisionState(NamedTuple):
    """Mean and precision, and the number of steps made."""

    mean: Point
    precision: Float[Array, "D D"]
    number: Array


class VariationalOnlineNewton(Stepwise):
    """The improved variational online Newton method (Shen et al. 2024; IVON), at the cost of Adam.

    With gradients g at draws x of N(m, diag(1 / h)), and averages over these,

        a <- b a + (1 - b) E[g],               k = h E[(x - m) g],
        h <- h + r (k - h) + r^2 (k - h)^2 / (2 h),
        m <- m - rate a / ((1 - b^t) h),

    whose last term keeps precisions positive. It is the diagonal `BayesianLearningRule` with
    curvatures from gradients, and momentum; the prior is a part of the log density (the source's
    weight decay is zero, its weight of the data one).

    Args:
        samples: drawn a step.
        rate: the step size of the mean, in (0, 1].
        momentum: b, in [0, 1).
        curvature_rate: r, in (0, 1].
        final: the share of both step sizes at the end, which they fall to along half a cosine.
        steps: how many.

    Raises:
        InputError: settings outside their range.

    Example:
        >>> import jax, latentgp as lgp
        >>> from latentgp.extensions.flows import VariationalOnlineNewton
        >>> found = lgp.flows.gaussian_approximation(
        ...     lambda x: -0.5 * ((x[0] - 1) ** 2 + (x[1] - 2) ** 2 / 9),
        ...     2,
        ...     VariationalOnlineNewton(),
        ...     key=jax.random.key(0),
        ... )
        >>> found.mean.round().tolist(), found.covariance.variances.round().tolist()
        ([1.0, 2.0], [1.0, 9.0])
    """

    samples: int = eqx.field(static=True, default=10)
    rate: float = eqx.field(static=True, default=0.1)
    momentum: float = eqx.field(static=True, default=0.9)
    curvature_rate: float = eqx.field(static=True, default=0.05)
    final: float = eqx.field(static=True, default=0.01)
    steps: int = eqx.field(static=True, default=3000)

    def __check_init__(self) -> None:
        check_ranges(self, samples="at least 1", steps="at least 1")
        shares = dict.fromkeys(("rate", "curvature_rate", "final"), "(0, 1]")
        check_ranges(self, **shares, momentum="[0, 1)")

    def gradients_a_step(self, dimension: int) -> int:
        return self.samples

    def init(self, target: LogDensity, start: Start, key: RandomKey) -> NewtonState:
        nothing = jnp.zeros_like(start.mean)
        return NewtonState(start.mean, start.scale**-2.0, nothing, jnp.zeros((), int))

    def step(
        self, target: LogDensity, state: NewtonState, key: RandomKey
    ) -> tuple[NewtonState, StepReport]:
        mean, precision, slope, number = state
        key_draws, key_batch = jax.random.split(key)
        normal = jax.random.normal(key_draws, (self.samples, len(mean)), mean.dtype)
        deviations = normal / jnp.sqrt(precision)
        energies, gradients = target.gradients(mean + deviations, key_batch)
        share = falling_share(number.astype(mean.dtype), self.steps, self.final)
        slope = self.momentum * slope + (1 - self.momentum) * jnp.mean(gradients, axis=0)
        excess = precision * (jnp.mean(deviations * gradients, axis=0) - 1)
        turn = self.curvature_rate * share * excess
        after = precision + turn + 0.5 * turn**2 / precision
        unbiased = slope / (1 - self.momentum ** (number + 1).astype(mean.dtype))
        moved = mean - self.rate * share * unbiased / after
        energy = jnp.mean(energies) + 0.5 * jnp.sum(jnp.log(precision))
        told = StepReport(energy, jnp.full_like(energy, jnp.nan))
        return NewtonState(moved, after, slope, number + 1), told

    def gaussian(self, state: NewtonState) -> Gaussian:
        return Gaussian(state.mean, Covariance.of_variances(1 / state.precision))


class NewtonState(NamedTuple):
    """Mean, precisions, running mean of the gradients, steps made."""

    mean: Point
    precision: Point
    slope: Point
    number: Int[Array, ""]
