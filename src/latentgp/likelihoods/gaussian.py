"""Gaussian noise."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, ndtr, ndtri
from jaxtyping import Float
from numpyro.distributions import constraints

from latentgp.errors import InputError
from latentgp.hyperparameters.base import parameter
from latentgp.likelihoods.base import ClosedForms, Likelihood, Marginals, SideInformation
from latentgp.rows.arrays import check_values
from latentgp.typing import Array, Latents, PerRow, RandomKey, RowMoments, Scalar, Values

USUAL_NOISE_SHARE = 0.1  # of the variance of y: where a search for the noise variance starts
LOG_2_PI = float(np.log(2 * np.pi))


class NormalPredictions(Likelihood):
    """A likelihood under which y is normal, each output with its predictive moments."""

    def predictive_cdf(
        self, y: Float[Array, "N *P"], marginals: Marginals, side: SideInformation
    ) -> Float[Array, "N *P"]:
        mean, variance = self.predictive_moments(marginals, side)
        return ndtr((y - mean) / jnp.sqrt(variance))

    def predictive_quantiles(
        self, probabilities: Float[Array, "levels"], marginals: Marginals, side: SideInformation
    ) -> Float[Array, "N *P levels"]:
        mean, variance = self.predictive_moments(marginals, side)
        return mean[..., None] + jnp.sqrt(variance)[..., None] * ndtri(probabilities)


class Gaussian(NormalPredictions, ClosedForms):
    """y = f + noise, noise ~ N(0, noise_variance + the row's own known noise variance).

    Args:
        noise_variance: learned, units of y squared. Per-row side information of the same name
            is known and is added to it.

    Example:
        >>> Gaussian(noise_variance=0.1).noise_variance
        array(0.1)
    """

    is_location: ClassVar[bool] = True
    is_log_concave: ClassVar[bool] = True
    is_jointly_gaussian: ClassVar[bool] = True
    side_information: ClassVar[tuple[str, ...]] = ("noise_variance",)

    noise_variance: Scalar = parameter(constraints.positive, role="noise_variance", default=1.0)

    def __check_init__(self) -> None:
        value = self.noise_variance
        if isinstance(value, np.ndarray) and np.any(value == 0):
            raise InputError(
                "Gaussian.noise_variance must satisfy positive, got 0.0; for targets without noise "
                "give a small one, such as a millionth of the variance of y."
            )

    def latent_scale(self, spread: float) -> float:
        return spread

    def scaled_to(self, spread: float, centre: float = 0.0) -> "Gaussian":
        return Gaussian(noise_variance=USUAL_NOISE_SHARE * spread**2)

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Scalar:
        noise = jax.random.normal(key, dtype=f.dtype)
        return f[0] + jnp.sqrt(self.total_noise_variance(side)) * noise

    def check_side_information(self, side: SideInformation) -> None:
        known = np.asarray(side.get("noise_variance", 0.0))
        advice = "give each row's known noise variance, or zero"
        check_values("noise_variance", known, known >= 0, "at least 0", advice)

    def cdf(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        return self.predictive_cdf(y[None], Marginals.known(f[None]), side)[0]

    def log_tails(self, y: Scalar, f: Latents, side: SideInformation) -> tuple[Scalar, Scalar]:
        z = (y - f[0]) / jnp.sqrt(self.total_noise_variance(side))
        return log_ndtr(z), log_ndtr(-z)

    def expected_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        (mean, variance), noise = marginals.first, self.total_noise_variance(side)
        return _log_density(y, mean, noise) - 0.5 * variance / noise

    def predictive_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        mean, variance = marginals.first
        return _log_density(y, mean, variance + self.total_noise_variance(side))

    def predictive_moments(self, marginals: Marginals, side: SideInformation) -> RowMoments:
        mean, variance = marginals.first
        return mean, variance + self.total_noise_variance(side)

    def total_noise_variance(self, side: SideInformation) -> Values:
        """Learned noise variance plus the known one of the rows."""
        return self.noise_variance + side.get("noise_variance", 0.0)


def _log_density(
    y: Float[Array, "*#N"], mean: Float[Array, "*#N"], variance: Float[Array, "*#N"]
) -> Float[Array, "*#N"]:
    return -0.5 * (jnp.log(2 * jnp.pi * variance) + (y - mean) ** 2 / variance)
