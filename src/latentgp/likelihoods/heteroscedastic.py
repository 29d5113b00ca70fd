"""Regression whose noise depends on the input, through a latent function."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp, ndtr
from jax.scipy.stats import norm
from jaxtyping import Float
from numpyro.distributions import constraints

from latentgp.hyperparameters.base import parameter, replace
from latentgp.likelihoods.base import (
    AnyMarginals,
    ClosedForms,
    ClosedMoments,
    JointMarginals,
    Likelihood,
    Marginals,
    SideInformation,
)
from latentgp.likelihoods.gaussian import LOG_2_PI, USUAL_NOISE_SHARE
from latentgp.likelihoods.joint import WhitenedLikelihood
from latentgp.likelihoods.noise_shapes import GaussianShape, NoiseShape, StudentShape
from latentgp.numerics.quadrature import Nodes, latent_at_nodes, prediction_nodes, training_nodes
from latentgp.typing import Array, Latents, PerRow, RandomKey, RowMoments, Scalar, Values

_USUAL_SHARE = 0.3  # of the spread of y: where a search for the noise starts


def covariance_of_two(marginals: AnyMarginals) -> PerRow:
    """Covariance of a row's two latents."""
    if isinstance(marginals, JointMarginals):
        return marginals.covariance[:, 0, 1]
    return jnp.zeros_like(marginals.mean[:, 0])


class NoiseNodes(NamedTuple):
    """f_2 at nodes, and the law of f_1 given it."""

    f: Float[Array, "N S"]  # at the nodes
    weights: Float[Array, "S"]  # of the nodes
    mean: Float[Array, "N S"]  # of f_1 there
    variance: Float[Array, "N 1"]  # of f_1, the same at all

    @classmethod
    def of(cls, marginals: AnyMarginals, nodes: Nodes | None = None) -> "NoiseNodes":
        """Law of a row's two latents, correlated or not; at nodes for predictions unless given."""
        mean, variance = marginals.mean, marginals.variance
        f, weights = latent_at_nodes(mean[:, 1], variance[:, 1], nodes or prediction_nodes(1))
        shared = covariance_of_two(marginals)[:, None]
        # Squares of its inverse are in derivatives.
        slope = shared / jnp.maximum(variance[:, 1:], float(jnp.finfo(f.dtype).tiny) ** 0.45)
        given = mean[:, :1] + slope * (f - mean[:, 1:])
        left = variance[:, :1] - slope * shared
        return cls(f, weights, given, jnp.where(left >= 0, left, 0.0))


class NoiseOfInput(NoiseShape, ClosedMoments):
    """y = f_1 + e / sqrt(precision), e of a shape, with a precision that f_2 gives."""

    is_location: ClassVar[bool] = True
    latent_size: ClassVar[int] = 2

    @abstractmethod
    def log_precision(self, f: Float[Array, "..."]) -> Float[Array, "..."]:
        """Log of the squared inverse of the noise's scale, units one over y squared, by f_2."""

    def precision(self, f: Float[Array, "*N Q"]) -> Values:
        """Squared inverse of the noise's scale."""
        return jnp.exp(self.log_precision(f[..., 1]))

    def log_prob(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        log_phi = self.log_phi(self.precision(f) * (y - f[0]) ** 2)
        return self.log_density_at_zero() + 0.5 * self.log_precision(f[1]) + log_phi

    def predictive_cdf(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        return self.cdf_under(y, marginals)

    def cdf_under(self, y: PerRow, marginals: AnyMarginals) -> PerRow:
        """The predictive one, of noise that is a mixture of normal laws."""
        nodes = NoiseNodes.of(marginals)
        precision, weights = cast(tuple[Array, Array], self.normal_mixture())
        noise = jnp.exp(-self.log_precision(nodes.f))[:, :, None] / precision
        spread = jnp.sqrt(nodes.variance[:, :, None] + noise)
        below = ndtr((y[:, None, None] - nodes.mean[:, :, None]) / spread)
        return (below @ weights) @ nodes.weights

    def turned(self) -> WhitenedLikelihood:
        return TurnedNoise(self)

    def cdf(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        return self.unit_cdf(jnp.sqrt(self.precision(f)) * (y - f[0]))

    def log_tails(self, y: Scalar, f: Latents, side: SideInformation) -> tuple[Scalar, Scalar]:
        return self.unit_log_tails(jnp.sqrt(self.precision(f)) * (y - f[0]))

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Scalar:
        return f[0] + self.unit_draw(key, f.dtype) / jnp.sqrt(self.precision(f))


class Heteroscedastic(NoiseOfInput):
    """That with the precision maximal_precision sigmoid(f_2)."""

    maximal_precision: Scalar = parameter(constraints.positive, role="noise_precision", default=1.0)

    def log_precision(self, f: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.log(self.maximal_precision) + jax.nn.log_sigmoid(f)

    def predictive_moments(self, marginals: Marginals, side: SideInformation) -> RowMoments:
        # 1 / sigmoid(f) = 1 + exp(-f), whose expectation is that of a log-normal.
        mean, variance = marginals
        inverse = 1 + jnp.exp(-mean[:, 1] + 0.5 * variance[:, 1])
        noise = self.unit_variance() * inverse / self.maximal_precision
        return mean[:, 0], variance[:, 0] + noise

    def latent_scale(self, spread: float) -> tuple[float, ...]:
        return spread, 2.0

    def scaled_to(self, spread: float, centre: float = 0.0) -> Likelihood:
        # At f_2 = 0 half of the precision is at work.
        return replace(self, {"maximal_precision": 2 / (USUAL_NOISE_SHARE * spread**2)})


class GaussianNoiseOfInput(GaussianShape, NoiseOfInput):
    """y ~ N(f_1, 1 / precision)."""

    def expected_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        return self.expected_under(y, marginals)

    @abstractmethod
    def expected_under(self, y: PerRow, marginals: AnyMarginals) -> PerRow:
        """E log p(y | f), the latents of a row correlated or not."""

    def predictive_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        return self.log_prob_under(y, marginals)

    def log_prob_under(self, y: PerRow, marginals: AnyMarginals) -> PerRow:
        """The predictive one: given f_2 the target is normal, f_1 integrated out."""
        nodes = NoiseNodes.of(marginals)
        total = nodes.variance + jnp.exp(-self.log_precision(nodes.f))
        log_density = norm.logpdf(y[:, None], nodes.mean, jnp.sqrt(total))
        return logsumexp(log_density, axis=1, b=nodes.weights)

    def turned(self) -> WhitenedLikelihood:
        return TurnedGaussianNoise(self)


class HeteroscedasticGaussian(GaussianNoiseOfInput, Heteroscedastic):
    """y ~ N(f_1, 1 / (maximal_precision sigmoid(f_2))) (Galy-Fajou 2022, eq. 7.1).

    Args:
        maximal_precision: lambda, learned, units one over y squared; the noise variance is
            nowhere below one over it.
    """

    def expected_under(self, y: PerRow, marginals: AnyMarginals) -> PerRow:
        # Given f_2 the squared distance has an expectation in closed form.
        nodes = NoiseNodes.of(marginals, training_nodes(1))
        log_precision = self.log_precision(nodes.f)
        distance = (y[:, None] - nodes.mean) ** 2 + nodes.variance
        log_prob = log_precision - LOG_2_PI - jnp.exp(log_precision) * distance
        return 0.5 * log_prob @ nodes.weights


class HeteroscedasticStudentT(StudentShape, Heteroscedastic):
    """y = f_1 + t / sqrt(maximal_precision sigmoid(f_2)), t of Student's law (2022, eq. 7.5).

    Args:
        maximal_precision: lambda, learned, units one over y squared.
        degrees_of_freedom: nu, learned unless frozen.
    """


class LogNoiseGaussian(GaussianNoiseOfInput):
    """y ~ N(f_1, (noise_scale exp(f_2))^2): noise of any size (Goldberg, Williams & Bishop 1998).

    Args:
        noise_scale: learned, units of y: the noise's standard deviation where f_2 is zero.
    """

    noise_scale: Scalar = parameter(constraints.positive, role="noise_scale", default=1.0)

    def log_precision(self, f: Float[Array, "..."]) -> Float[Array, "..."]:
        return -2 * (jnp.log(self.noise_scale) + f)

    def expected_under(self, y: PerRow, marginals: AnyMarginals) -> PerRow:
        # exp(-2 f_2) moves the law of f_1 by minus twice its covariance with f_2.
        mean, variance, shared = marginals.mean, marginals.variance, covariance_of_two(marginals)
        distance = (y - mean[:, 0] + 2 * shared) ** 2 + variance[:, 0]
        log_precision = self.log_precision(mean[:, 1])
        terms = log_precision - distance * jnp.exp(log_precision + 2 * variance[:, 1])
        return 0.5 * (terms - LOG_2_PI)

    def predictive_moments(self, marginals: Marginals, side: SideInformation) -> RowMoments:
        mean, variance = marginals
        noise = self.noise_scale**2 * jnp.exp(2 * mean[:, 1] + 2 * variance[:, 1])
        return mean[:, 0], variance[:, 0] + noise

    def latent_scale(self, spread: float) -> tuple[float, ...]:
        return spread, 1.0

    def scaled_to(self, spread: float, centre: float = 0.0) -> "LogNoiseGaussian":
        return LogNoiseGaussian(noise_scale=_USUAL_SHARE * spread)


class StochasticVolatility(ClosedForms):
    """y ~ N(0, exp(f)^2) (Filippone, Zhong & Girolami 2013, App. B.3)."""

    is_log_concave: ClassVar[bool] = True

    def expected_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        # A y of zero stays without effect where exp(-f) overflows.
        m, v = marginals.first
        return -0.5 * (LOG_2_PI + 2 * m + jnp.exp(2 * (jnp.log(jnp.abs(y)) + v - m)))

    def predictive_moments(self, marginals: Marginals, side: SideInformation) -> RowMoments:
        m, v = marginals.first
        return jnp.zeros_like(m), jnp.exp(2 * m + 2 * v)

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Scalar:
        return jnp.exp(f[0]) * jax.random.normal(key, dtype=f.dtype)

    def cdf(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        return ndtr(y * jnp.exp(-f[0]))

    def latent_scale(self, spread: float) -> float:
        return 1.0

    def latent_centre(self, y: PerRow, weights: PerRow | None, side: SideInformation) -> float:
        tiny = float(np.finfo(np.float64).tiny)
        return float(0.5 * np.log(np.average(y**2, weights=weights) + tiny))


class TurnedNoise(WhitenedLikelihood):
    """Noise that depends on the input, correlated with the function: f_1 is integrated out."""

    own: Any  # pyright: ignore[reportIncompatibleVariableOverride]

    def predictive_cdf(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        return self.own.cdf_under(y, self.of_f(side)[0])

    def predictive_moments(self, marginals: Marginals, side: SideInformation) -> RowMoments:
        joint, side = self.of_f(side)
        return self.own.predictive_moments(Marginals(joint.mean, joint.variance), side)


class TurnedGaussianNoise(TurnedNoise):
    """The same of Gaussian noise."""

    def expected_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        return self.own.expected_under(y, self.of_f(side)[0])

    def predictive_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        return self.own.log_prob_under(y, self.of_f(side)[0])
