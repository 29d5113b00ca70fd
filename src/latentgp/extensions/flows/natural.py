"""Steps in closed form: natural gradients of mean and precision, batch and match."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from latentgp.errors import check_ranges
from latentgp.extensions.flows.base import Gaussian, LogDensity, Start, StepReport, Stepwise
from latentgp.extensions.flows.covariance import Covariance
from latentgp.extensions.flows.optimisers import falling_share
from latentgp.numerics.cholesky import cholesky, lower_cholesky
from latentgp.typing import Array, Point, RandomKey, Samples, Scalar


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
        >>> def log_density(x):
        ...     return -0.5 * ((x[0] - 1) ** 2 + (x[1] - 2) ** 2 / 9)
        >>> method, key = VariationalOnlineNewton(), jax.random.key(0)
        >>> found = lgp.flows.gaussian_approximation(log_density, 2, method, key=key)
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


class BatchAndMatch(Stepwise):
    """Batch and match (Cai et al. 2024; BaM): scores of draws are matched in closed form.

    Of draws with mean z, covariance C and scores g = grad log p with mean h and covariance G, the
    next Gaussian N(m', S') is nearest to the present N(m, S) and to these scores:

        U = l G + l / (1 + l) h h',   V = S + l C + l / (1 + l) (m - z)(m - z)',
        S' U S' + S' = V,             m' = m / (1 + l) + l / (1 + l) (S' h + z).

    Of a Gaussian density every step draws nearer, and the end is exact whatever the draws. The
    matrix equation is solved by the eigenvalues of L'U L, V = L L' (its solution is symmetric).

    Args:
        samples: drawn a step, at least two.
        rate: l, of the first step where it falls; None is samples times the dimension.
        falling: the rate of step t is that of the first over t, for densities that are not
            Gaussian; else it is held.
        steps: at most.
        tolerance: relative change of mean and variances in a step at which it has settled, which is
            reached where the density is Gaussian.

    Raises:
        InputError: settings outside their range.

    Example:
        >>> import jax, latentgp as lgp
        >>> from latentgp.extensions.flows import BatchAndMatch
        >>> def log_density(x):
        ...     return -0.5 * ((x[0] - 1) ** 2 + (x[1] - 2) ** 2 / 9)
        >>> method, key = BatchAndMatch(), jax.random.key(0)
        >>> found = lgp.flows.gaussian_approximation(log_density, 2, method, key=key)
        >>> found.mean.round().tolist(), found.covariance.variances.round().tolist()
        ([1.0, 2.0], [1.0, 9.0])
    """

    needs_exact: ClassVar[bool] = True

    samples: int = eqx.field(static=True, default=20)
    rate: float | None = eqx.field(static=True, default=None)
    falling: bool = eqx.field(static=True, default=True)
    steps: int = eqx.field(static=True, default=1000)
    tolerance: float = eqx.field(static=True, default=1e-9)

    def __check_init__(self) -> None:
        check_ranges(self, samples="at least 2", steps="at least 1", rate="above 0")

    def gradients_a_step(self, dimension: int) -> int:
        return self.samples

    def init(self, target: LogDensity, start: Start, key: RandomKey) -> MatchState:
        half = jnp.sum(jnp.log(start.scale))
        return MatchState(start.mean, jnp.diag(start.scale), half, jnp.zeros((), int))

    def step(
        self, target: LogDensity, state: MatchState, key: RandomKey
    ) -> tuple[MatchState, StepReport]:
        mean, root, half, number = state
        normal = jax.random.normal(key, (self.samples, len(mean)), mean.dtype)
        points = mean + normal @ root.T
        energies, gradients = target.gradients(points, key)
        rate = (self.rate or self.samples * len(mean)) / (1.0 + self.falling * number)
        after = self.matched(state, points, -gradients, jnp.asarray(rate, mean.dtype))
        variances = jnp.sum(root**2, axis=1)
        along = jnp.mean((after.mean - mean) ** 2 / variances)
        grown = jnp.mean((jnp.sum(after.root**2, axis=1) / variances - 1) ** 2)
        change = jnp.sqrt(along + grown)
        # Larger changes may be noise of the draws.
        change = jnp.where(change < self.tolerance, change, jnp.nan)
        return after, StepReport(jnp.mean(energies) - half, change)

    def matched(
        self, state: MatchState, points: Samples, scores: Samples, rate: Scalar
    ) -> MatchState:
        """The next Gaussian, given the scores of some draws."""
        share, number = rate / (1 + rate), len(points)
        centre, score = jnp.mean(points, axis=0), jnp.mean(scores, axis=0)
        moved, turned = points - centre, scores - score
        away = state.mean - centre
        V = state.root @ state.root.T + rate / number * moved.T @ moved
        lower = lower_cholesky(V + share * jnp.outer(away, away))
        across, along = turned @ lower, score @ lower
        inner = rate / number * across.T @ across + share * jnp.outer(along, along)
        values, vectors = jnp.linalg.eigh(inner)
        # x l x + x = 1
        shrunk = 2 / (1 + jnp.sqrt(1 + 4 * jnp.maximum(values, 0)))
        root = lower @ (vectors * jnp.sqrt(shrunk))
        half = jnp.sum(jnp.log(jnp.diagonal(lower))) + 0.5 * jnp.sum(jnp.log(shrunk))
        mean = (1 - share) * state.mean + share * (root @ (root.T @ score) + centre)
        return MatchState(mean, root, half, state.number + 1)

    def has_settled(self, change: Scalar) -> Any:
        return change < self.tolerance

    def gaussian(self, state: MatchState) -> Gaussian:
        return Gaussian(state.mean, Covariance.of(state.root))


class MatchState(NamedTuple):
    """Mean, a square root of the covariance, half its log-determinant, steps made."""

    mean: Point
    root: Float[Array, "D D"]
    half_log_determinant: Scalar
    number: Int[Array, ""]
