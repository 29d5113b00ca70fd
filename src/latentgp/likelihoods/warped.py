"""Gaussian processes observed through a learned warp."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Float
from numpyro.distributions import constraints

from latentgp.hyperparameters.base import parameter, replace
from latentgp.likelihoods.base import ClosedForms, Likelihood, Marginals, SideInformation
from latentgp.likelihoods.gaussian import LOG_2_PI, USUAL_NOISE_SHARE
from latentgp.numerics.quadrature import trapezoidal_nodes
from latentgp.numerics.root_finding import invert_cdf
from latentgp.typing import Array, Latents, PerRow, RandomKey, RowMoments, Scalar, Values

_NODES = 101


class WarpedGaussian(ClosedForms):
    """t(y) = f + noise, t(y) = y + sum_i a_i tanh(b_i (y + c_i)) (Snelson et al. 2003, eq. 9).

    With all heights zero it is `Gaussian`. The density of y has the factor t'(y).

    Args:
        heights: a, learned, positive, shape (terms,), units of y.
        slopes: b, learned, positive, shape (terms,), one over the units of y.
        centres: c, learned, shape (terms,), units of y.
        noise_variance: learned, units of y squared.

    Example:
        >>> import jax.numpy as jnp
        >>> warp = WarpedGaussian(heights=[1.0], slopes=[2.0], centres=[0.0])
        >>> warp.warp(jnp.array(0.0))
        Array(0., dtype=float32)
    """

    is_log_concave: ClassVar[bool] = True
    is_jointly_gaussian: ClassVar[bool] = True

    heights: Float[Array, "terms"] = parameter(constraints.positive, default=(1.0, 1.0))
    slopes: Float[Array, "terms"] = parameter(constraints.positive, default=(1.0, 1.0))
    centres: Float[Array, "terms"] = parameter(default=(-1.0, 1.0))
    noise_variance: Scalar = parameter(constraints.positive, role="noise_variance", default=1.0)

    def warp(self, y: Values) -> Values:
        """t(y)."""
        inside = jnp.tanh(self.slopes * (y[..., None] + self.centres))
        return y + jnp.sum(self.heights * inside, axis=-1)

    def unwarp(self, t: PerRow) -> PerRow:
        """The y whose warp is t, to rounding."""
        # t is within the sum of heights of y.
        reach = jnp.full_like(t, 1.0) * jnp.sum(jnp.asarray(self.heights)) + 1e-6
        return invert_cdf(lambda y: self.warp(y) - t, jnp.zeros(1, t.dtype), t, reach)[:, 0]

    def expected_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        return self._log_density(y, *marginals.first, self.noise_variance)

    def predictive_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        m, v = marginals.first
        return self._log_density(y, m, jnp.zeros_like(m), v + self.noise_variance)

    def predictive_moments(self, marginals: Marginals, side: SideInformation) -> RowMoments:
        mean, variance = marginals
        nodes, weights = trapezoidal_nodes(1, _NODES)
        weights = jnp.asarray(weights, mean.dtype)
        spread = jnp.sqrt(variance[:, :1] + self.noise_variance)
        t = mean[:, :1] + spread * jnp.asarray(nodes[:, 0], mean.dtype)
        y = self.unwarp(t.ravel()).reshape(t.shape)
        first = y @ weights
        return first, (y - first[:, None]) ** 2 @ weights

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Scalar:
        noise = jnp.sqrt(self.noise_variance) * jax.random.normal(key, dtype=f.dtype)
        return self.unwarp((f[0] + noise)[None])[0]

    def cdf(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        return self.predictive_cdf(y[None], Marginals.known(f[None]), side)[0]

    def predictive_cdf(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        m, v = marginals.first
        return ndtr((self.warp(y) - m) / jnp.sqrt(v + self.noise_variance))

    def predictive_quantiles(
        self, probabilities: Float[Array, "levels"], marginals: Marginals, side: SideInformation
    ) -> Float[Array, "N levels"]:
        mean, variance = marginals
        spread = jnp.sqrt(variance[:, :1] + self.noise_variance)
        t = mean[:, :1] + spread * jax.scipy.special.ndtri(probabilities)
        return self.unwarp(t.ravel()).reshape(t.shape)

    def latent_centre(self, y: PerRow, weights: PerRow | None, side: SideInformation) -> float:
        return float(np.average(y, weights=weights))

    def latent_scale(self, spread: float) -> float:
        return spread

    def scaled_to(self, spread: float, centre: float = 0.0) -> Likelihood:
        return replace(
            self,
            {
                "heights": np.full(self.heights.shape, 0.3 * spread),
                "slopes": np.full(self.slopes.shape, 1 / spread),
                "centres": np.linspace(-spread, spread, len(self.centres)) - centre,
                "noise_variance": USUAL_NOISE_SHARE * spread**2,
            },
        )

    def _log_density(
        self, y: Values, mean: Values, extra: Values, variance: Float[Array, "*#N"]
    ) -> Values:
        """Log t'(y) N(t(y); mean, variance), less extra / (2 variance)."""
        inside = jnp.tanh(self.slopes * (y[..., None] + self.centres))
        slope = 1 + jnp.sum(self.heights * self.slopes * (1 - inside**2), axis=-1)
        distance = (self.warp(y) - mean) ** 2 + extra
        return jnp.log(slope) - 0.5 * (LOG_2_PI + jnp.log(variance) + distance / variance)
