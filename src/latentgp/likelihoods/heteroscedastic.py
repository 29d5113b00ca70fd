"""Regression whose noise depends on the input, through a second latent function."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr
from jax.scipy.stats import norm
from jaxtyping import Float
from numpyro.distributions import constraints

from latentgp.hyperparameters.base import parameter, replace
from latentgp.likelihoods.base import (
    AnyMarginals,
    JointMarginals,
    Likelihood,
    Marginals,
    SideInformation,
)
from latentgp.likelihoods.gaussian import USUAL_NOISE_SHARE
from latentgp.likelihoods.joint import WhitenedLikelihood
from latentgp.likelihoods.noise_shapes import GaussianShape, NoiseShape, StudentShape
from latentgp.likelihoods.volatility import LOG_2_PI
from latentgp.numerics.quadrature import Nodes, latent_at_nodes, prediction_nodes, training_nodes
from latentgp.typing import Array, Latents, PerRow, RandomKey, RowMoments, Scalar, Values

_USUAL_SHARE = 0.3  # of the spread of y: where a search for the noise starts


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
        if not isinstance(marginals, JointMarginals):
            return cls(f, weights, jnp.broadcast_to(mean[:, :1], f.shape), variance[:, :1])
        shared = marginals.covariance[:, 0, 1:]
        slope = shared / jnp.maximum(variance[:, 1:], float(jnp.finfo(f.dtype).tiny))
        given = mean[:, :1] + slope * (f - mean[:, 1:])
        return cls(f, weights, given, jnp.maximum(variance[:, :1] - slope * shared, 0.0))


class Heteroscedastic(NoiseShape):
    """y = f_1 + e / sqrt(maximal_precision sigmoid(f_2)), e of a shape."""

    is_location: ClassVar[bool] = True

    latent_size: ClassVar[int] = 2

    maximal_precision: Scalar = parameter(constraints.positive, role="noise_precision", default=1.0)

    def precision(self, f: Float[Array, "*N Q"]) -> Values:
        """Squared inverse of the noise's scale, units one over y squared."""
        return self.maximal_precision * jax.nn.sigmoid(f[..., 1])

    def log_prob(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        log_precision = jnp.log(self.maximal_precision) + jax.nn.log_sigmoid(f[1])
        log_phi = self.log_phi(self.precision(f) * (y - f[0]) ** 2)
        return self.log_density_at_zero() + 0.5 * log_precision + log_phi

    def conditional_moments(self, f: Latents, side: SideInformation) -> tuple[Scalar, Scalar]:
        return f[0], self.unit_variance() / self.precision(f)

    def predictive_moments(self, marginals: Marginals, side: SideInformation) -> RowMoments:
        # 1 / sigmoid(f) = 1 + exp(-f), whose expectation is that of a log-normal.
        mean, variance = marginals
        inverse = 1 + jnp.exp(-mean[:, 1] + 0.5 * variance[:, 1])
        noise = self.unit_variance() * inverse / self.maximal_precision
        return mean[:, 0], variance[:, 0] + noise

    def predictive_cdf(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        if self.normal_mixture() is None:
            return super().predictive_cdf(y, marginals, side)
        return self.cdf_at(y, NoiseNodes.of(marginals))

    def cdf_at(self, y: PerRow, nodes: NoiseNodes) -> PerRow:
        """The predictive one, of noise that is a mixture of normal laws."""
        precision, weights = cast(tuple[Array, Array], self.normal_mixture())
        scale = self.maximal_precision * jax.nn.sigmoid(nodes.f)
        spread = jnp.sqrt(nodes.variance[:, :, None] + 1 / (scale[:, :, None] * precision))
        below = ndtr((y[:, None, None] - nodes.mean[:, :, None]) / spread)
        return (below @ weights) @ nodes.weights

    def turned(self) -> WhitenedLikelihood:
        return WhitenedLikelihood(self) if self.normal_mixture() is None else TurnedNoise(self)

    def cdf(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        return self.unit_cdf(jnp.sqrt(self.precision(f)) * (y - f[0]))

    def log_tails(self, y: Scalar, f: Latents, side: SideInformation) -> tuple[Scalar, Scalar]:
        return self.unit_log_tails(jnp.sqrt(self.precision(f)) * (y - f[0]))

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Scalar:
        return f[0] + self.unit_draw(key, f.dtype) / jnp.sqrt(self.precision(f))

    def latent_scale(self, spread: float) -> tuple[float, ...]:
        return spread, 2.0

    def scaled_to(self, spread: float, centre: float = 0.0) -> Likelihood:
        # At f_2 = 0 half of the precision is at work.
        return replace(self, {"maximal_precision": 2 / (USUAL_NOISE_SHARE * spread**2)})


class HeteroscedasticGaussian(GaussianShape, Heteroscedastic):
    """y ~ N(f_1, 1 / (maximal_precision sigmoid(f_2))) (Galy-Fajou 2022, eq. 7.1).

    Args:
        maximal_precision: lambda, learned, units one over y squared; the noise variance is
            nowhere below one over it.
    """

    def expected_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        return self.expected_at(y, NoiseNodes.of(marginals, training_nodes(1)))

    def expected_at(self, y: PerRow, nodes: NoiseNodes) -> PerRow:
        """E log p(y | f): given f_2 the squared distance has an expectation in closed form."""
        log_precision = jnp.log(self.maximal_precision) + jax.nn.log_sigmoid(nodes.f)
        distance = (y[:, None] - nodes.mean) ** 2 + nodes.variance
        log_prob = log_precision - LOG_2_PI - jnp.exp(log_precision) * distance
        return 0.5 * log_prob @ nodes.weights

    def predictive_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        return self.log_prob_at(y, NoiseNodes.of(marginals))

    def turned(self) -> WhitenedLikelihood:
        return TurnedGaussianNoise(self)

    def log_prob_at(self, y: PerRow, nodes: NoiseNodes) -> PerRow:
        """The predictive one: given f_2 the target is normal, f_1 integrated out."""
        total = nodes.variance + (1 + jnp.exp(-nodes.f)) / self.maximal_precision
        log_density = norm.logpdf(y[:, None], nodes.mean, jnp.sqrt(total))
        return jax.nn.logsumexp(log_density, axis=1, b=nodes.weights)


class HeteroscedasticStudentT(StudentShape, Heteroscedastic):
    """y = f_1 + t / sqrt(maximal_precision sigmoid(f_2)), t of Student's law (2022, eq. 7.5).

    Args:
        maximal_precision: lambda, learned, units one over y squared.
        degrees_of_freedom: nu, learned unless frozen.
    """


class LogNoiseGaussian(Likelihood):
    """y ~ N(f_1, (noise_scale exp(f_2))^2): noise of any size (Goldberg, Williams & Bishop 1998).

    Args:
        noise_scale: learned, units of y: the noise's standard deviation where f_2 is zero.
    """

    is_location: ClassVar[bool] = True

    latent_size: ClassVar[int] = 2

    noise_scale: Scalar = parameter(constraints.positive, role="noise_scale", default=1.0)

    def log_prob(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        log_scale = jnp.log(self.noise_scale) + f[1]
        return -0.5 * (LOG_2_PI + 2 * log_scale + (y - f[0]) ** 2 * jnp.exp(-2 * log_scale))

    def conditional_moments(self, f: Latents, side: SideInformation) -> tuple[Scalar, Scalar]:
        return f[0], (self.noise_scale * jnp.exp(f[1])) ** 2

    def expected_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        mean, variance = marginals
        log_scale, spread = jnp.log(self.noise_scale) + mean[:, 1], variance[:, 1]
        distance = (y - mean[:, 0]) ** 2 + variance[:, 0]
        return -0.5 * (LOG_2_PI + 2 * log_scale + distance * jnp.exp(2 * spread - 2 * log_scale))

    def turned(self) -> "TurnedLogNoise":
        return TurnedLogNoise(self)

    def predictive_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        return self.log_prob_at(y, NoiseNodes.of(marginals))

    def log_prob_at(self, y: PerRow, nodes: NoiseNodes) -> PerRow:
        """The predictive one: given f_2 the target is normal, f_1 integrated out."""
        log_density = norm.logpdf(y[:, None], nodes.mean, self._spread(nodes))
        return jax.nn.logsumexp(log_density, axis=1, b=nodes.weights)

    def predictive_cdf(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        return self.cdf_at(y, NoiseNodes.of(marginals))

    def cdf_at(self, y: PerRow, nodes: NoiseNodes) -> PerRow:
        """The predictive one."""
        return ndtr((y[:, None] - nodes.mean) / self._spread(nodes)) @ nodes.weights

    def predictive_moments(self, marginals: Marginals, side: SideInformation) -> RowMoments:
        mean, variance = marginals
        noise = self.noise_scale**2 * jnp.exp(2 * mean[:, 1] + 2 * variance[:, 1])
        return mean[:, 0], variance[:, 0] + noise

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Scalar:
        return f[0] + self.noise_scale * jnp.exp(f[1]) * jax.random.normal(key, dtype=f.dtype)

    def cdf(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        return ndtr((y - f[0]) / (self.noise_scale * jnp.exp(f[1])))

    def latent_scale(self, spread: float) -> tuple[float, ...]:
        return spread, 1.0

    def scaled_to(self, spread: float, centre: float = 0.0) -> "LogNoiseGaussian":
        return LogNoiseGaussian(noise_scale=_USUAL_SHARE * spread)

    def _spread(self, nodes: NoiseNodes) -> Float[Array, "N S"]:
        """Standard deviations of y at the nodes with f_1 integrated out."""
        return jnp.sqrt(nodes.variance + (self.noise_scale * jnp.exp(nodes.f)) ** 2)


class TurnedNoise(WhitenedLikelihood):
    """Noise that depends on the input, correlated with the function: f_1 is integrated out."""

    own: Any  # pyright: ignore[reportIncompatibleVariableOverride]

    def predictive_cdf(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        return self.own.cdf_at(y, NoiseNodes.of(self.of_f(side)[0]))

    def predictive_moments(self, marginals: Marginals, side: SideInformation) -> RowMoments:
        joint, side = self.of_f(side)
        return self.own.predictive_moments(Marginals(joint.mean, joint.variance), side)


class TurnedGaussianNoise(TurnedNoise):
    """The same of Gaussian noise."""

    def expected_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        return self.own.expected_at(y, NoiseNodes.of(self.of_f(side)[0], training_nodes(1)))

    def predictive_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        return self.own.log_prob_at(y, NoiseNodes.of(self.of_f(side)[0]))


class TurnedLogNoise(TurnedGaussianNoise):
    """Gaussian noise of any size, correlated with the function: expectations in closed form."""

    own: LogNoiseGaussian  # pyright: ignore[reportIncompatibleVariableOverride]

    def expected_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        # exp(-2 f_2) moves the law of f_1 by minus twice its covariance with f_2.
        (mean, covariance), _ = self.of_f(side)
        log_scale, spread = jnp.log(self.own.noise_scale) + mean[:, 1], covariance[:, 1, 1]
        moved = mean[:, 0] - 2 * covariance[:, 0, 1]
        distance = (y - moved) ** 2 + covariance[:, 0, 0]
        return -0.5 * (LOG_2_PI + 2 * log_scale + distance * jnp.exp(2 * spread - 2 * log_scale))
