"""Noise whose size is the latent function."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Float, Key
from numpyro.distributions import constraints

from latentgp.likelihoods.base import Likelihood, Marginals, SideInformation
from latentgp.numerics.quadrature import latent_at_nodes
from latentgp.parameters.base import parameter
from latentgp.typing import Array

_LOG_2_PI = 1.8378770664093453
_USUAL_SHARE = 0.3  # of the spread of y: where a search for the noise starts


class StochasticVolatility(Likelihood):
    """y ~ N(0, exp(f)^2) (Filippone, Zhong & Girolami 2013, App. B.3)."""

    is_log_concave: ClassVar[bool] = True

    def log_prob(
        self, y: Float[Array, ""], f: Float[Array, "Q"], side: SideInformation
    ) -> Float[Array, ""]:
        # A y of zero stays without effect where exp(-f) overflows.
        return -0.5 * (_LOG_2_PI + 2 * f[0] + jnp.exp(2 * (jnp.log(jnp.abs(y)) - f[0])))

    def conditional_moments(
        self, f: Float[Array, "Q"], side: SideInformation
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        return jnp.zeros_like(f[0]), jnp.exp(2 * f[0])

    def expected_log_prob(
        self, y: Float[Array, "N"], marginals: Marginals, side: SideInformation
    ) -> Float[Array, "N"]:
        mean, variance = marginals
        m, v = mean[:, 0], variance[:, 0]
        return -0.5 * (_LOG_2_PI + 2 * m + jnp.exp(2 * (jnp.log(jnp.abs(y)) + v - m)))

    def predictive_moments(
        self, marginals: Marginals, side: SideInformation
    ) -> tuple[Float[Array, "N"], Float[Array, "N"]]:
        mean, variance = marginals
        return jnp.zeros_like(mean[:, 0]), jnp.exp(2 * mean[:, 0] + 2 * variance[:, 0])

    def sample(
        self, key: Key[Array, ""], f: Float[Array, "Q"], side: SideInformation
    ) -> Float[Array, ""]:
        return jnp.exp(f[0]) * jax.random.normal(key, dtype=f.dtype)

    def cdf(
        self, y: Float[Array, ""], f: Float[Array, "Q"], side: SideInformation
    ) -> Float[Array, ""]:
        return ndtr(y * jnp.exp(-f[0]))

    def latent_scale(self, spread: float) -> float:
        return 1.0

    def latent_centre(
        self, y: Float[Array, "N"], weights: Float[Array, "N"] | None, side: SideInformation
    ) -> float:
        tiny = float(np.finfo(np.float64).tiny)
        return float(0.5 * np.log(np.average(y**2, weights=weights) + tiny))


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
        return -0.5 * (_LOG_2_PI + 2 * log_scale + (y - f[0]) ** 2 * jnp.exp(-2 * log_scale))

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
        return -0.5 * (_LOG_2_PI + 2 * log_scale + distance * jnp.exp(2 * spread - 2 * log_scale))

    def predictive_log_prob(
        self, y: Float[Array, "N"], marginals: Marginals, side: SideInformation
    ) -> Float[Array, "N"]:
        total, weights = self._total_variances(marginals)
        distance = (y - marginals.mean[:, 0])[:, None] ** 2
        log_density = -0.5 * (_LOG_2_PI + jnp.log(total) + distance / total)
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
