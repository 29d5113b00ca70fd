"""Regression with noise whose tails are heavier than a Gaussian's."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
from jax.scipy.special import log_ndtr, ndtr
from jaxtyping import Float, Key
from numpyro.distributions import constraints

from latentgp.likelihoods.base import Likelihood, Marginals, SideInformation
from latentgp.likelihoods.noise_shapes import LaplaceShape, MaternShape, NoiseShape, StudentShape
from latentgp.likelihoods.scale_mixture import Form, ScaleMixture
from latentgp.numerics.quadrature import expectation, expected_excess, prediction_nodes
from latentgp.parameters.base import parameter, replace
from latentgp.typing import Array

_USUAL_SHARE = 0.3  # of the spread of y: where a search for the scale starts


class SymmetricNoise(NoiseShape, ScaleMixture):
    """y = f + scale e, e of a shape."""

    is_location: ClassVar[bool] = True

    scale: Float[Array, ""] = parameter(constraints.positive, role="noise_scale", default=1.0)

    def form(self, y: Float[Array, ""], side: SideInformation) -> Form:
        precision = 1 / self.scale**2
        return Form(
            self.log_density_at_zero() - jnp.log(self.scale),
            jnp.zeros_like(y),
            precision * y**2,
            2 * precision * y,
            jnp.broadcast_to(precision, y.shape),
        )

    def conditional_moments(
        self, f: Float[Array, "Q"], side: SideInformation
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        return f[0], jnp.asarray(self.scale**2 * self.unit_variance(), f.dtype)

    def predictive_moments(
        self, marginals: Marginals, side: SideInformation
    ) -> tuple[Float[Array, "N"], Float[Array, "N"]]:
        mean, variance = marginals
        return mean[:, 0], variance[:, 0] + self.scale**2 * self.unit_variance()

    def predictive_cdf(
        self, y: Float[Array, "N"], marginals: Marginals, side: SideInformation
    ) -> Float[Array, "N"]:
        mean, variance = marginals
        mixture = self.normal_mixture()
        if mixture is None:
            return super().predictive_cdf(y, marginals, side)
        precision, weights = mixture
        spread = jnp.sqrt(variance + self.scale**2 / precision)
        return ndtr((y[:, None] - mean) / spread) @ weights

    def cdf(
        self, y: Float[Array, ""], f: Float[Array, "Q"], side: SideInformation
    ) -> Float[Array, ""]:
        return self.unit_cdf((y - f[0]) / self.scale)

    def sample(
        self, key: Key[Array, ""], f: Float[Array, "Q"], side: SideInformation
    ) -> Float[Array, ""]:
        return f[0] + self.scale * self.unit_draw(key, f.dtype)

    def latent_scale(self, spread: float) -> float:
        return spread

    def scaled_to(self, spread: float, centre: float = 0.0) -> Likelihood:
        return replace(self, {"scale": _USUAL_SHARE * spread})


class StudentT(StudentShape, SymmetricNoise):
    """y = f + scale t, t of Student's law: for outliers.

    Args:
        scale: learned, units of y.
        degrees_of_freedom: learned unless frozen; small is heavy-tailed.

    Example:
        >>> StudentT(scale=0.3, degrees_of_freedom=3.0).degrees_of_freedom
        array(3.)
    """


class LaplaceNoise(LaplaceShape, SymmetricNoise):
    """y = f + scale e, e of Laplace's law exp(-|e|) / 2: a median rather than a mean.

    Args:
        scale: learned, units of y; the mean of |y - f|.
    """

    is_log_concave: ClassVar[bool] = True
    is_smooth: ClassVar[bool] = False

    def expected_log_prob(
        self, y: Float[Array, "N"], marginals: Marginals, side: SideInformation
    ) -> Float[Array, "N"]:
        mean, variance = marginals
        distance = y - mean[:, 0]
        absolute = 2 * expected_excess(distance, variance[:, 0]) - distance
        return -jnp.log(2 * self.scale) - absolute / self.scale

    def predictive_log_prob(
        self, y: Float[Array, "N"], marginals: Marginals, side: SideInformation
    ) -> Float[Array, "N"]:
        mean, variance = marginals
        spread = jnp.sqrt(variance[:, 0] + float(jnp.finfo(variance.dtype).tiny))
        z, shift = (y - mean[:, 0]) / spread, spread / self.scale
        halves = jnp.logaddexp(-z * shift + log_ndtr(z - shift), z * shift + log_ndtr(-z - shift))
        return 0.5 * shift**2 + halves - jnp.log(2 * self.scale)


class MaternNoise(MaternShape, SymmetricNoise):
    """y = f + scale e, with the Matérn-3/2 kernel as the density of e.

    Its tails are those of Laplace's law, its peak is round (Galy-Fajou et al. 2020, A.6).

    Args:
        scale: learned, units of y.
    """

    is_log_concave: ClassVar[bool] = True

    def expected_log_prob(
        self, y: Float[Array, "N"], marginals: Marginals, side: SideInformation
    ) -> Float[Array, "N"]:
        # Its kink, seen from afar, needs more nodes than a smooth likelihood does.
        nodes = prediction_nodes(self.latent_size)
        return expectation(self._along_nodes(self.log_prob, y, side), *marginals, nodes)
