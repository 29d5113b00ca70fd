"""Noise whose size is the latent function."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr

from latentgp.likelihoods.base import Likelihood, Marginals, SideInformation
from latentgp.typing import Latents, PerRow, RandomKey, RowMoments, Scalar

LOG_2_PI = 1.8378770664093453


class StochasticVolatility(Likelihood):
    """y ~ N(0, exp(f)^2) (Filippone, Zhong & Girolami 2013, App. B.3)."""

    is_log_concave: ClassVar[bool] = True

    def log_prob(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        # A y of zero stays without effect where exp(-f) overflows.
        return -0.5 * (LOG_2_PI + 2 * f[0] + jnp.exp(2 * (jnp.log(jnp.abs(y)) - f[0])))

    def conditional_moments(self, f: Latents, side: SideInformation) -> tuple[Scalar, Scalar]:
        return jnp.zeros_like(f[0]), jnp.exp(2 * f[0])

    def expected_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        mean, variance = marginals
        m, v = mean[:, 0], variance[:, 0]
        return -0.5 * (LOG_2_PI + 2 * m + jnp.exp(2 * (jnp.log(jnp.abs(y)) + v - m)))

    def predictive_moments(self, marginals: Marginals, side: SideInformation) -> RowMoments:
        mean, variance = marginals
        return jnp.zeros_like(mean[:, 0]), jnp.exp(2 * mean[:, 0] + 2 * variance[:, 0])

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Scalar:
        return jnp.exp(f[0]) * jax.random.normal(key, dtype=f.dtype)

    def cdf(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        return ndtr(y * jnp.exp(-f[0]))

    def latent_scale(self, spread: float) -> float:
        return 1.0

    def latent_centre(self, y: PerRow, weights: PerRow | None, side: SideInformation) -> float:
        tiny = float(np.finfo(np.float64).tiny)
        return float(0.5 * np.log(np.average(y**2, weights=weights) + tiny))
