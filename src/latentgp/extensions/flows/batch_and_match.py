"""Batch and match: closed-form steps to the Gaussian whose scores are those of the density."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from latentgp.errors import check_ranges
from latentgp.extensions.flows.base import Gaussian, LogDensity, Start, StepReport, Stepwise
from latentgp.extensions.flows.covariance import Covariance
from latentgp.numerics.cholesky import lower_cholesky
from latentgp.typing import Array, Point, RandomKey, Samples, Scalar


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
        >>> found = lgp.flows.gaussian_approximation(
        ...     lambda x: -0.5 * ((x[0] - 1) ** 2 + (x[1] - 2) ** 2 / 9),
        ...     2,
        ...     BatchAndMatch(),
        ...     key=jax.random.key(0),
        ... )
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
