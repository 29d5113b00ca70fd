"""Counts: through the logistic function, conjugate given Pólya-Gamma variables, or a log link."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc, gammaln
from numpyro.distributions import constraints

from latentgp.errors import InputError
from latentgp.hyperparameters.base import parameter
from latentgp.likelihoods.base import (
    ClosedForms,
    ClosedMoments,
    Likelihood,
    Marginals,
    SideInformation,
    Targets,
)
from latentgp.numerics.log_space import log_factorial
from latentgp.numerics.poisson_cdf import poisson_cdf
from latentgp.rows.arrays import check_values
from latentgp.typing import Latents, PerRow, RandomKey, RowMoments, Scalar, Values


class CountLikelihood(Likelihood):
    """A law of y in {0, 1, 2, ...} given one latent."""

    targets: ClassVar[Targets] = "count"

    def check_targets(self, y: PerRow) -> None:
        accepted = (y >= 0) & (y == np.floor(y))
        advice = "leave these rows out" if np.any(y < 0) else "round them"
        advice += ", or use a likelihood of real numbers"
        name = f"{type(self).__name__} targets"
        check_values(name, y, accepted, "counts 0, 1, 2, ...", advice)


class TrialsLikelihood(CountLikelihood):
    """A law of successes in a known number of trials, whose mean share is sigmoid(f).

    The rows carry `trials`, at least y; without them there is one.
    """

    side_information: ClassVar[tuple[str, ...]] = ("trials",)

    def latent_centre(self, y: PerRow, weights: PerRow | None, side: SideInformation) -> float:
        # Half a success and half a failure more, lest there be none.
        trials = np.broadcast_to(side.get("trials", 1.0), y.shape)
        share = (np.average(y, weights=weights) + 0.5 / len(y)) / (
            np.average(trials, weights=weights) + 1 / len(y)
        )
        return float(np.log(share / (1 - share)))

    def latent_start(self, y: PerRow, side: SideInformation) -> PerRow:
        return jnp.log(y + 0.5) - jnp.log(self.trials(side) - y + 0.5)

    def check_side_information(self, side: SideInformation) -> None:
        trials = np.asarray(side.get("trials", 1.0))
        accepted = (trials >= 1) & (trials == np.floor(trials))
        kind = "whole numbers of at least 1"
        check_values("trials", trials, accepted, kind, "drop rows without any")

    def check_rows(self, y: PerRow, side: SideInformation) -> None:
        trials = np.broadcast_to(side.get("trials", 1.0), y.shape)
        rows = np.flatnonzero(y > trials)
        if rows.size:
            raise InputError(
                f"{type(self).__name__} targets must be at most the trials of their row, but row "
                f"{rows[0]} has {y[rows[0]]:g} successes in {trials[rows[0]]:g} trial(s) "
                f"({rows.size} such row(s)); give Data(..., trials=...)."
            )

    def trials(self, side: SideInformation) -> Values:
        """Number of trials of the rows, one unless given."""
        return jnp.asarray(side.get("trials", 1.0))


class Binomial(TrialsLikelihood):
    """Successes in a known number of trials: y ~ Binomial(trials, sigmoid(f)).

    The rows carry `trials`, at least y; without them there is one.

    Example:
        >>> import jax.numpy as jnp
        >>> row = {"trials": jnp.array(3.0)}
        >>> Binomial().log_prob(jnp.array(1.0), jnp.array([0.0]), row).round(4)
        Array(-0.9808, dtype=float32)
    """

    is_log_concave: ClassVar[bool] = True

    def log_prob(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        n = self.trials(side)
        successes, failures = y * jax.nn.log_sigmoid(f[0]), (n - y) * jax.nn.log_sigmoid(-f[0])
        # More successes than trials cannot be; log_choices is finite there.
        return jnp.where(y <= n, log_choices(n, y) + successes + failures, -jnp.inf)

    def conditional_moments(self, f: Latents, side: SideInformation) -> tuple[Scalar, Scalar]:
        n, p = self.trials(side), jax.nn.sigmoid(f[0])
        return n * p, n * p * (1 - p)

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Scalar:
        n = jnp.asarray(self.trials(side), f.dtype)
        return jax.random.binomial(key, n, jax.nn.sigmoid(f[0]), dtype=f.dtype)

    def cdf(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        n, count = self.trials(side), jnp.floor(y)
        inside = (count >= 0) & (count < n)
        k = jnp.where(inside, count, 0.0)
        below = betainc(jnp.maximum(n - k, 0.5), k + 1, jax.nn.sigmoid(-f[0]))
        return jnp.where(inside, below, (count >= n).astype(f.dtype))


class NegativeBinomialLaw(CountLikelihood, ClosedMoments):
    """Negative binomial counts, by the logit of their success chance."""

    is_log_concave: ClassVar[bool] = True

    dispersion: Scalar = parameter(constraints.positive, default=1.0)

    @abstractmethod
    def _logit(self, f: Latents, side: SideInformation) -> Scalar:
        """Logit of the success chance, mean / (mean + dispersion)."""

    def log_prob(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        r, logit = self.dispersion, self._logit(f, side)
        # As good as sure zeros must not round to a probability above one.
        ways = jnp.where(y > 0, gammaln(y + r) - log_factorial(y) - gammaln(r), 0.0)
        return ways + y * jax.nn.log_sigmoid(logit) + r * jax.nn.log_sigmoid(-logit)

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Scalar:
        key_rate, key_count = jax.random.split(key)
        shape = jnp.asarray(self.dispersion, f.dtype)
        rate = jax.random.gamma(key_rate, shape, dtype=f.dtype) * jnp.exp(self._logit(f, side))
        return jax.random.poisson(key_count, rate).astype(f.dtype)

    def cdf(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        count = jnp.maximum(jnp.floor(y), 0.0)
        r = jnp.asarray(self.dispersion, f.dtype)
        return jnp.where(y >= 0, betainc(r, count + 1, jax.nn.sigmoid(-self._logit(f, side))), 0.0)


class NegativeBinomial(NegativeBinomialLaw):
    """Counts with more variance than a Poisson's: y ~ NB(dispersion r, success chance sigmoid(f)).

    p(y | f) = Gamma(y + r) / (y! Gamma(r)) sigmoid(f)^y sigmoid(-f)^r, so the mean is r exp(f)
    and the variance mean + mean^2 / r: the log link, f shifted by log r.

    Args:
        dispersion: r, learned; a Poisson law as it grows.
    """

    def predictive_moments(self, marginals: Marginals, side: SideInformation) -> RowMoments:
        # exp(f) is log-normal.
        (m, v), r = marginals.first, self.dispersion
        first = r * jnp.exp(m + 0.5 * v)
        within = first + r * jnp.exp(2 * m + 2 * v)
        return first, within + first * jnp.expm1(v) * first

    def latent_centre(self, y: PerRow, weights: PerRow | None, side: SideInformation) -> float:
        counts = np.average(y, weights=weights) + 0.5 / len(y)
        return float(np.log(counts / self.dispersion))

    def latent_start(self, y: PerRow, side: SideInformation) -> PerRow:
        return jnp.log(y + 0.5) - jnp.log(self.dispersion)

    def _logit(self, f: Latents, side: SideInformation) -> Scalar:
        return f[0]


class ScaledLogisticPoisson(CountLikelihood):
    """Counts with a bounded rate: y ~ Poisson(maximal_rate sigmoid(f)).

    Args:
        maximal_rate: learned, counts a row.
    """

    maximal_rate: Scalar = parameter(constraints.positive, default=1.0)

    def log_prob(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        log_rate = jnp.log(self.maximal_rate) + jax.nn.log_sigmoid(f[0])
        return y * log_rate - self._rate(f) - log_factorial(y)

    def conditional_moments(self, f: Latents, side: SideInformation) -> tuple[Scalar, Scalar]:
        return self._rate(f), self._rate(f)

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Scalar:
        return jax.random.poisson(key, self._rate(f)).astype(f.dtype)

    def cdf(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        count = jnp.maximum(jnp.floor(y), 0.0)
        return jnp.where(y >= 0, poisson_cdf(count, self._rate(f)), 0.0)

    def latent_centre(self, y: PerRow, weights: PerRow | None, side: SideInformation) -> float:
        share = (np.average(y, weights=weights) + 0.5 / len(y)) / self.maximal_rate
        share = float(np.clip(share, 0.01, 0.99))
        return float(np.log(share / (1 - share)))

    def scaled_to(self, spread: float, centre: float = 0.0) -> "ScaledLogisticPoisson":
        # Counts spread like a Poisson's have their variance as their rate.
        return ScaledLogisticPoisson(maximal_rate=2 * max(spread, 1.0) ** 2)

    def _rate(self, f: Latents) -> Scalar:
        return self.maximal_rate * jax.nn.sigmoid(f[0])


class LogRateLikelihood(CountLikelihood):
    """A law of counts whose mean is exposure exp(f).

    The rows carry `exposure`, positive: the time, area or population in which y was counted;
    without it, it is one.
    """

    side_information: ClassVar[tuple[str, ...]] = ("exposure",)
    is_log_concave: ClassVar[bool] = True

    def check_side_information(self, side: SideInformation) -> None:
        exposure = np.asarray(side.get("exposure", 1.0))
        advice = "leave out rows in which nothing could be counted"
        check_values("exposure", exposure, exposure > 0, "positive", advice)

    def latent_centre(self, y: PerRow, weights: PerRow | None, side: SideInformation) -> float:
        exposure = np.broadcast_to(side.get("exposure", 1.0), y.shape)
        # Half a count more, lest there be none.
        counts = np.average(y, weights=weights) + 0.5 / len(y)
        return float(np.log(counts / np.average(exposure, weights=weights)))

    def latent_start(self, y: PerRow, side: SideInformation) -> PerRow:
        return jnp.log(y + 0.5) - self.log_exposure(side)

    def log_exposure(self, side: SideInformation) -> Values:
        """Log of the rows' exposure, zero unless given."""
        return jnp.log(jnp.asarray(side.get("exposure", 1.0)))

    def _log_normal_mean(self, marginals: Marginals, side: SideInformation) -> PerRow:
        """E exposure exp(f)."""
        m, v = marginals.first
        return jnp.exp(self.log_exposure(side) + m + 0.5 * v)


class Poisson(LogRateLikelihood, ClosedForms):
    """y ~ Poisson(exposure exp(f)); a log-Gaussian Cox process on the cells of a grid.

    Example:
        >>> import jax.numpy as jnp
        >>> row = {"exposure": jnp.array(2.0)}
        >>> round(float(Poisson().log_prob(jnp.array(0.0), jnp.array([0.0]), row)), 4)
        -2.0
    """

    def expected_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        log_rate = self.log_exposure(side) + marginals.mean[:, 0]
        return y * log_rate - self._log_normal_mean(marginals, side) - log_factorial(y)

    def predictive_moments(self, marginals: Marginals, side: SideInformation) -> RowMoments:
        first = self._log_normal_mean(marginals, side)
        return first, first + first * jnp.expm1(marginals.variance[:, 0]) * first

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Scalar:
        return jax.random.poisson(key, jnp.exp(self.log_exposure(side) + f[0])).astype(f.dtype)

    def cdf(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        count = jnp.maximum(jnp.floor(y), 0.0)
        rate = jnp.exp(self.log_exposure(side) + f[0])
        return jnp.where(y >= 0, poisson_cdf(count, rate), 0.0)


class LogNegativeBinomial(LogRateLikelihood, NegativeBinomialLaw):
    """Counts with mean m = exposure exp(f) and variance m + m^2 / dispersion ("NB2").

    `NegativeBinomial` is the same law with the logit of the success chance as its latent.

    Args:
        dispersion: r, learned; a Poisson law as it grows.
    """

    def predictive_moments(self, marginals: Marginals, side: SideInformation) -> RowMoments:
        first, (_, v) = self._log_normal_mean(marginals, side), marginals.first
        within = first + first**2 * jnp.exp(v) / self.dispersion
        return first, within + first * jnp.expm1(v) * first

    def _logit(self, f: Latents, side: SideInformation) -> Scalar:
        return self.log_exposure(side) + f[0] - jnp.log(self.dispersion)


def log_choices(trials: Values, successes: Values) -> Values:
    """Log of the number of ways to choose; of no use where there are more successes than trials."""
    failures = jnp.maximum(trials - successes, 0.0)
    return log_factorial(trials) - log_factorial(successes) - log_factorial(failures)
