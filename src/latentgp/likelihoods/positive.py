"""Positive and bounded targets: gamma, log-normal, Weibull, generalised Pareto, beta."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc, gammainc, gammaln
from jaxtyping import Float
from numpyro.distributions import constraints

from latentgp.hyperparameters.base import parameter
from latentgp.likelihoods.base import (
    ClosedForms,
    ClosedMoments,
    Likelihood,
    Marginals,
    SideInformation,
)
from latentgp.likelihoods.gaussian import Gaussian
from latentgp.numerics.log_space import log_beta, log_complement
from latentgp.rows.arrays import check_values
from latentgp.typing import Array, Latents, PerRow, RandomKey, RowMoments, Scalar, Values

_SERIES = 1e-3  # of log(1 + x): below, five terms are exact to rounding
_NO_SHAPE = 1e-12
_LEFT = 1e-3  # of 1 + shape z, below which the logarithm goes on as its tangent


class PositiveLikelihood(ClosedMoments):
    """A law of y > 0 whose scale is exp(f)."""

    is_log_concave: ClassVar[bool] = True

    def check_targets(self, y: PerRow) -> None:
        advice = "shift them, or use a likelihood of real numbers"
        check_values(f"{type(self).__name__} targets", y, y > 0, "positive", advice)

    def latent_scale(self, spread: float) -> float:
        return 1.0

    def latent_centre(self, y: PerRow, weights: PerRow | None, side: SideInformation) -> float:
        # Where times are censored, the time that rows were observed over their number of events.
        events = np.broadcast_to(np.asarray(side.get("censored", 0.0)) != 1, y.shape)
        total = np.average(y - side.get("entry", 0.0), weights=weights)
        return float(np.log(total / max(np.average(events, weights=weights), 0.5 / len(y))))


class Gamma(PositiveLikelihood, ClosedForms):
    """y > 0 of mean exp(f): y ~ Ga(shape, rate shape exp(-f)).

    Args:
        shape: learned; one over the squared coefficient of variation.
    """

    shape: Scalar = parameter(constraints.positive, default=1.0)

    def expected_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        (m, v), a = marginals.first, self.shape
        constant = a * jnp.log(a) - gammaln(a)
        return constant + (a - 1) * jnp.log(y) - a * (m + y * jnp.exp(0.5 * v - m))

    def predictive_moments(self, marginals: Marginals, side: SideInformation) -> RowMoments:
        m, v = marginals.first
        first = jnp.exp(m + 0.5 * v)
        return first, first**2 * (jnp.expm1(v) + jnp.exp(v) / self.shape)

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Scalar:
        shape = jnp.asarray(self.shape, f.dtype)
        return jax.random.gamma(key, shape, dtype=f.dtype) * jnp.exp(f[0]) / shape

    def cdf(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        shape = jnp.asarray(self.shape, f.dtype)
        return gammainc(shape, shape * jnp.maximum(y, 0.0) * jnp.exp(-f[0]))


class Weibull(PositiveLikelihood, ClosedForms):
    """Survival times: P(y > t) = exp(-(t exp(-f))^shape).

    The rows carry `censored`, 1 where y is only the time until which there was no event (right
    censoring) and 0 otherwise, as without it.

    Args:
        shape: learned; above one the hazard rises with time.
    """

    shape: Scalar = parameter(constraints.positive, default=1.0)

    side_information: ClassVar[tuple[str, ...]] = ("censored",)

    def expected_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        k, (m, v) = self.shape, marginals.first
        event = 1 - jnp.asarray(side.get("censored", 0.0))
        hazard = jnp.log(k) - k * m + (k - 1) * jnp.log(y)
        return event * hazard - jnp.exp(k * jnp.log(y) + (0.5 * k**2 * v - k * m))

    def predictive_moments(self, marginals: Marginals, side: SideInformation) -> RowMoments:
        # Squares may overflow, their ratio may not.
        m, v = marginals.first
        log_first = gammaln(1 + 1 / self.shape) + m + 0.5 * v
        log_second = gammaln(1 + 2 / self.shape) + 2 * m + 2 * v
        return jnp.exp(log_first), jnp.exp(log_second + log_complement(2 * log_first - log_second))

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Scalar:
        return jnp.exp(f[0]) * jax.random.exponential(key, dtype=f.dtype) ** (1 / self.shape)

    def cdf(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        time = jnp.maximum(y, 0.0) * jnp.exp(-f[0])
        return -jnp.expm1(-(time**self.shape))

    def log_tails(self, y: Scalar, f: Latents, side: SideInformation) -> tuple[Scalar, Scalar]:
        above = -jnp.exp(self.shape * (jnp.log(y) - f[0]))
        return log_complement(above), above

    def check_side_information(self, side: SideInformation) -> None:
        censored, kind = side.get("censored", 0.0), "0 (an event at y) or 1 (none until y)"
        advice = "give one of these in every row, or take Censored(Weibull()) for other bounds"
        check_values("censored", censored, np.isin(censored, [0.0, 1.0]), kind, advice)


class LogNormal(PositiveLikelihood, ClosedForms):
    """y > 0 of median exp(f): log y ~ N(f, noise_variance).

    Args:
        noise_variance: learned, of log y.

    Example:
        >>> round(float(LogNormal(1.0).cdf(jnp.array(2.0), jnp.log(jnp.array([2.0])), {})), 4)
        0.5
    """

    is_jointly_gaussian: ClassVar[bool] = True

    noise_variance: Scalar = parameter(constraints.positive, role="noise_variance", default=1.0)

    def expected_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        return self.of_log().expected_log_prob(jnp.log(y), marginals, {}) - jnp.log(y)

    def predictive_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        return self.of_log().predictive_log_prob(jnp.log(y), marginals, {}) - jnp.log(y)

    def predictive_moments(self, marginals: Marginals, side: SideInformation) -> RowMoments:
        m, v = self.of_log().predictive_moments(marginals, {})
        first = jnp.exp(m + 0.5 * v)
        return first, first**2 * jnp.expm1(v)

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Scalar:
        return jnp.exp(self.of_log().sample(key, f, {}))

    def cdf(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        return self.predictive_cdf(y[None], Marginals.known(f[None]), {})[0]

    def log_tails(self, y: Scalar, f: Latents, side: SideInformation) -> tuple[Scalar, Scalar]:
        return self.of_log().log_tails(jnp.log(y), f, {})

    def predictive_cdf(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        return self.of_log().predictive_cdf(jnp.log(jnp.maximum(y, 0.0)), marginals, {})

    def predictive_quantiles(
        self, probabilities: Float[Array, "levels"], marginals: Marginals, side: SideInformation
    ) -> Float[Array, "N levels"]:
        return jnp.exp(self.of_log().predictive_quantiles(probabilities, marginals, {}))

    def of_log(self) -> Gaussian:
        """The law of log y."""
        return Gaussian(noise_variance=self.noise_variance)

    def latent_start(self, y: PerRow, side: SideInformation) -> PerRow:
        return jnp.log(y)


class GeneralisedPareto(PositiveLikelihood):
    """Excesses over a threshold: P(y > t) = (1 + shape t exp(-f))^(-1 / shape).

    An exponential law at shape zero, one with an end at exp(f) / -shape below it, with tails like
    y^(-1 / shape) above it (Coles 2001, section 4.2). Near that end and beyond it log_prob goes on
    as a steep slope in place of minus infinity, with 1e-6 of probability at most.

    Args:
        shape: learned, in (-1/2, 1): where a mean exists, and where estimates are regular.

    Example:
        >>> row = jnp.array(2.0), jnp.array([0.0]), {}
        >>> round(float(GeneralisedPareto(shape=0.5).cdf(*row)), 4)
        0.75
    """

    shape: Scalar = parameter(constraints.interval(-0.5, 1.0), default=0.1)

    def log_prob(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        return -f[0] - (1 + self.shape) * self._hazard(y * jnp.exp(-f[0]))

    def predictive_moments(self, marginals: Marginals, side: SideInformation) -> RowMoments:
        (m, v), k = marginals.first, self.shape
        first = jnp.exp(m + 0.5 * v) / (1 - k)
        # The variance is infinite from shape 1/2 on.
        within = jnp.where(k < 0.5, 1 / jnp.where(k < 0.5, 1 - 2 * k, 1.0), jnp.inf)
        return first, first**2 * (jnp.exp(v) * within + jnp.expm1(v))

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Scalar:
        size, k = jax.random.exponential(key, dtype=f.dtype), jnp.asarray(self.shape, f.dtype)
        exponential = jnp.abs(k) < _NO_SHAPE
        size = jnp.where(exponential, size, jnp.expm1(k * size) / jnp.where(exponential, 1.0, k))
        return jnp.exp(f[0]) * size

    def cdf(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        return -jnp.expm1(-self._hazard(jnp.maximum(y, 0.0) * jnp.exp(-f[0])))

    def log_tails(self, y: Scalar, f: Latents, side: SideInformation) -> tuple[Scalar, Scalar]:
        above = -self._hazard(y * jnp.exp(-f[0]))
        return log_complement(above), above

    def _hazard(self, z: Values) -> Values:
        """log(1 + shape z) / shape, the cumulative hazard."""
        x = self.shape * z
        # A quotient of two small numbers has few digits; five terms of the series have all.
        series = jnp.abs(x) < _SERIES
        near, far = jnp.where(series, x, 0.0), jnp.where(series, 1.0, x)
        log_left = jnp.log1p(jnp.maximum(far, _LEFT - 1))
        log_left += (jnp.minimum(1 + far, _LEFT) - _LEFT) / _LEFT
        by_series = z * (1 + near * (-1 / 2 + near * (1 / 3 - near * (1 / 4 - near / 5))))
        return jnp.where(series, by_series, log_left / jnp.where(series, 1.0, self.shape))


class Beta(Likelihood):
    """Shares 0 < y < 1 of mean sigmoid(f): y ~ Beta(s mean, s (1 - mean)).

    Args:
        precision: s, learned; the variance is mean (1 - mean) / (1 + s).
    """

    precision: Scalar = parameter(constraints.positive, default=5.0)

    def log_prob(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        a, b = shapes_of_mean(f[0], self.precision)
        return (a - 1) * jnp.log(y) + (b - 1) * jnp.log1p(-y) - log_beta(a, b)

    def conditional_moments(self, f: Latents, side: SideInformation) -> tuple[Scalar, Scalar]:
        mean = jax.nn.sigmoid(f[0])
        return mean, mean * jax.nn.sigmoid(-f[0]) / (1 + self.precision)

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Scalar:
        return jax.random.beta(key, *shapes_of_mean(f[0], self.precision), dtype=f.dtype)

    def cdf(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        return betainc(*shapes_of_mean(f[0], self.precision), jnp.clip(y, 0.0, 1.0))

    def check_targets(self, y: PerRow) -> None:
        kind = "strictly between 0 and 1"
        advice = "divide by their range, and move values at the ends inside"
        check_values("Beta targets", y, (y > 0) & (y < 1), kind, advice)

    def latent_centre(self, y: PerRow, weights: PerRow | None, side: SideInformation) -> float:
        mean = np.average(y, weights=weights)
        return float(np.log(mean / (1 - mean)))

    def latent_start(self, y: PerRow, side: SideInformation) -> PerRow:
        return jnp.log(y) - jnp.log1p(-y)


def shapes_of_mean(logit: Values, precision: Scalar) -> tuple[Values, Values]:
    """Shapes a, b of the beta law of mean sigmoid(logit), whose sum is the precision."""
    # Their squares are in second derivatives.
    least = float(jnp.finfo(logit.dtype).tiny) ** 0.45
    s = jnp.asarray(precision, logit.dtype)
    a, b = s * jax.nn.sigmoid(logit), s * jax.nn.sigmoid(-logit)
    return jnp.maximum(a, least), jnp.maximum(b, least)
