"""Regression whose noise depends on the input, through a second latent function."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr
from jax.scipy.stats import norm
from jaxtyping import Float, Key
from numpyro.distributions import constraints

from latentgp.likelihoods.base import Likelihood, Marginals, SideInformation
from latentgp.likelihoods.gaussian import USUAL_NOISE_SHARE
from latentgp.likelihoods.joint import Turned
from latentgp.likelihoods.noise_shapes import GaussianShape, NoiseShape, StudentShape
from latentgp.likelihoods.volatility import LOG_2_PI
from latentgp.numerics.quadrature import latent_at_nodes
from latentgp.parameters.base import parameter, replace
from latentgp.typing import Array

_USUAL_SHARE = 0.3  # of the spread of y: where a search for the noise starts


class Heteroscedastic(NoiseShape):
    """y = f_1 + e / sqrt(maximal_precision sigmoid(f_2)), e of a shape."""

    is_location: ClassVar[bool] = True

    latent_size: ClassVar[int] = 2

    maximal_precision: Float[Array, ""] = parameter(
        constraints.positive, role="noise_precision", default=1.0
    )

    def precision(self, f: Float[Array, "*N Q"]) -> Float[Array, "*N"]:
        """Squared inverse of the noise's scale, units one over y squared."""
        return self.maximal_precision * jax.nn.sigmoid(f[..., 1])

    def log_prob(
        self, y: Float[Array, ""], f: Float[Array, "Q"], side: SideInformation
    ) -> Float[Array, ""]:
        log_precision = jnp.log(self.maximal_precision) + jax.nn.log_sigmoid(f[1])
        log_phi = self.log_phi(self.precision(f) * (y - f[0]) ** 2)
        return self.log_density_at_zero() + 0.5 * log_precision + log_phi

    def conditional_moments(
        self, f: Float[Array, "Q"], side: SideInformation
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        return f[0], self.unit_variance() / self.precision(f)

    def predictive_moments(
        self, marginals: Marginals, side: SideInformation
    ) -> tuple[Float[Array, "N"], Float[Array, "N"]]:
        # 1 / sigmoid(f) = 1 + exp(-f), whose expectation is that of a log-normal.
        mean, variance = marginals
        inverse = 1 + jnp.exp(-mean[:, 1] + 0.5 * variance[:, 1])
        noise = self.unit_variance() * inverse / self.maximal_precision
        return mean[:, 0], variance[:, 0] + noise

    def predictive_cdf(
        self, y: Float[Array, "N"], marginals: Marginals, side: SideInformation
    ) -> Float[Array, "N"]:
        mean, variance = marginals
        mixture = self.normal_mixture()
        if mixture is None:
            return super().predictive_cdf(y, marginals, side)
        precision, weights = mixture
        g, node_weights = latent_at_nodes(mean[:, 1], variance[:, 1])
        scale = self.maximal_precision * jax.nn.sigmoid(g)
        spread = jnp.sqrt(variance[:, :1, None] + 1 / (scale[:, :, None] * precision))
        below = ndtr((y[:, None, None] - mean[:, :1, None]) / spread)
        return (below @ weights) @ node_weights

    def cdf(
        self, y: Float[Array, ""], f: Float[Array, "Q"], side: SideInformation
    ) -> Float[Array, ""]:
        return self.unit_cdf(jnp.sqrt(self.precision(f)) * (y - f[0]))

    def sample(
        self, key: Key[Array, ""], f: Float[Array, "Q"], side: SideInformation
    ) -> Float[Array, ""]:
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

    def predictive_log_prob(
        self, y: Float[Array, "N"], marginals: Marginals, side: SideInformation
    ) -> Float[Array, "N"]:
        # Given f_2 the target is normal, f_1 integrated out.
        mean, variance = marginals
        g, weights = latent_at_nodes(mean[:, 1], variance[:, 1])
        total = variance[:, :1] + (1 + jnp.exp(-g)) / self.maximal_precision
        log_density = norm.logpdf(y[:, None], mean[:, :1], jnp.sqrt(total))
        return jax.nn.logsumexp(log_density, axis=1, b=weights)


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

    noise_scale: Float[Array, ""] = parameter(constraints.positive, role="noise_scale", default=1.0)

    def log_prob(
        self, y: Float[Array, ""], f: Float[Array, "Q"], side: SideInformation
    ) -> Float[Array, ""]:
        log_scale = jnp.log(self.noise_scale) + f[1]
        return -0.5 * (LOG_2_PI + 2 * log_scale + (y - f[0]) ** 2 * jnp.exp(-2 * log_scale))

    def conditional_moments(
        self, f: Float[Array, "Q"], side: SideInformation
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        return f[0], (self.noise_scale * jnp.exp(f[1])) ** 2

    def expected_log_prob(
        self, y: Float[Array, "N"], marginals: Marginals, side: SideInformation
    ) -> Float[Array, "N"]:
        mean, variance = marginals
        log_scale, spread = jnp.log(self.noise_scale) + mean[:, 1], variance[:, 1]
        distance = (y - mean[:, 0]) ** 2 + variance[:, 0]
        return -0.5 * (LOG_2_PI + 2 * log_scale + distance * jnp.exp(2 * spread - 2 * log_scale))

    def turned(self) -> "TurnedLogNoise":
        return TurnedLogNoise(self)

    def predictive_log_prob(
        self, y: Float[Array, "N"], marginals: Marginals, side: SideInformation
    ) -> Float[Array, "N"]:
        total, weights = self._total_variances(marginals)
        distance = (y - marginals.mean[:, 0])[:, None] ** 2
        log_density = -0.5 * (LOG_2_PI + jnp.log(total) + distance / total)
        return jax.nn.logsumexp(log_density, axis=1, b=weights)

    def predictive_cdf(
        self, y: Float[Array, "N"], marginals: Marginals, side: SideInformation
    ) -> Float[Array, "N"]:
        total, weights = self._total_variances(marginals)
        return ndtr((y - marginals.mean[:, 0])[:, None] / jnp.sqrt(total)) @ weights

    def predictive_moments(
        self, marginals: Marginals, side: SideInformation
    ) -> tuple[Float[Array, "N"], Float[Array, "N"]]:
        mean, variance = marginals
        noise = self.noise_scale**2 * jnp.exp(2 * mean[:, 1] + 2 * variance[:, 1])
        return mean[:, 0], variance[:, 0] + noise

    def sample(
        self, key: Key[Array, ""], f: Float[Array, "Q"], side: SideInformation
    ) -> Float[Array, ""]:
        return f[0] + self.noise_scale * jnp.exp(f[1]) * jax.random.normal(key, dtype=f.dtype)

    def cdf(
        self, y: Float[Array, ""], f: Float[Array, "Q"], side: SideInformation
    ) -> Float[Array, ""]:
        return ndtr((y - f[0]) / (self.noise_scale * jnp.exp(f[1])))

    def latent_scale(self, spread: float) -> tuple[float, ...]:
        return spread, 1.0

    def scaled_to(self, spread: float, centre: float = 0.0) -> "LogNoiseGaussian":
        return LogNoiseGaussian(noise_scale=_USUAL_SHARE * spread)

    def _total_variances(
        self, marginals: Marginals
    ) -> tuple[Float[Array, "N S"], Float[Array, "S"]]:
        """Variances of y at nodes of f_2 with f_1 integrated out; the nodes' weights."""
        mean, variance = marginals
        g, weights = latent_at_nodes(mean[:, 1], variance[:, 1])
        return variance[:, :1] + (self.noise_scale * jnp.exp(g)) ** 2, weights


class TurnedLogNoise(Turned):
    """Gaussian noise of any size, correlated with the function: expectations in closed form."""

    own: LogNoiseGaussian  # pyright: ignore[reportIncompatibleVariableOverride]

    def expected_log_prob(
        self, y: Float[Array, "N"], marginals: Marginals, side: SideInformation
    ) -> Float[Array, "N"]:
        # exp(-2 f_2) moves the law of f_1 by minus twice its covariance with f_2.
        (mean, covariance), _ = self.of_f(side)
        log_scale, spread = jnp.log(self.own.noise_scale) + mean[:, 1], covariance[:, 1, 1]
        moved = mean[:, 0] - 2 * covariance[:, 0, 1]
        distance = (y - moved) ** 2 + covariance[:, 0, 0]
        return -0.5 * (LOG_2_PI + 2 * log_scale + distance * jnp.exp(2 * spread - 2 * log_scale))

    def predictive_moments(
        self, marginals: Marginals, side: SideInformation
    ) -> tuple[Float[Array, "N"], Float[Array, "N"]]:
        joint, side = self.of_f(side)
        return self.own.predictive_moments(Marginals(joint.mean, joint.variance), side)
