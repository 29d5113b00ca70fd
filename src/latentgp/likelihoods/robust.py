"""Regression with noise whose tails are heavier than a Gaussian's."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr, ndtr
from numpyro.distributions import constraints

from latentgp.errors import check_ranges
from latentgp.hyperparameters.base import parameter, replace
from latentgp.likelihoods.base import ClosedMoments, Likelihood, Marginals, SideInformation
from latentgp.likelihoods.noise_shapes import (
    ExponentialOfRoot,
    LaplaceShape,
    MaternShape,
    NoiseShape,
    StudentShape,
)
from latentgp.likelihoods.scale_mixture import Form, ScaleMixture, form_of_distance
from latentgp.numerics.log_space import log_complement
from latentgp.numerics.quadrature import expectation, expected_excess, prediction_nodes
from latentgp.typing import Latents, PerRow, RandomKey, RowMoments, Scalar

_USUAL_SHARE = 0.3  # of the spread of y: where a search for the scale starts


class SymmetricNoise(NoiseShape, ScaleMixture, ClosedMoments):
    """y = f + scale e, e of a shape."""

    is_location: ClassVar[bool] = True

    scale: Scalar = parameter(constraints.positive, role="noise_scale", default=1.0)

    def form(self, y: Scalar, side: SideInformation) -> Form:
        log_constant = self.log_density_at_zero() - jnp.log(self.scale)
        return form_of_distance(y, 1 / self.scale**2, log_constant, jnp.zeros_like(y))

    def predictive_moments(self, marginals: Marginals, side: SideInformation) -> RowMoments:
        mean, variance = marginals.first
        return mean, variance + self.scale**2 * self.unit_variance()

    def predictive_cdf(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        mean, variance = marginals
        mixture = self.normal_mixture()
        if mixture is None:
            return super().predictive_cdf(y, marginals, side)
        precision, weights = mixture
        spread = jnp.sqrt(variance + self.scale**2 / precision)
        return ndtr((y[:, None] - mean) / spread) @ weights

    def cdf(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        return self.unit_cdf((y - f[0]) / self.scale)

    def log_tails(self, y: Scalar, f: Latents, side: SideInformation) -> tuple[Scalar, Scalar]:
        return self.unit_log_tails((y - f[0]) / self.scale)

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Scalar:
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

    def expected_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        mean, variance = marginals.first
        absolute = 2 * expected_excess(y - mean, variance) - (y - mean)
        return -jnp.log(2 * self.scale) - absolute / self.scale

    def predictive_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        rate = 1 / self.scale
        return jnp.log(0.5 * rate) + _log_expected_exponentials(y, marginals, rate, rate)


class MaternNoise(MaternShape, SymmetricNoise):
    """y = f + scale e, with the Matérn-3/2 kernel as the density of e.

    Its tails are those of Laplace's law, its peak is round (Galy-Fajou et al. 2020, A.6).

    Args:
        scale: learned, units of y.
    """

    is_log_concave: ClassVar[bool] = True

    def expected_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        # Its kink, seen from afar, needs more nodes than a smooth likelihood does.
        nodes = prediction_nodes(self.latent_size)
        return expectation(self._along_nodes(self.log_prob, y, side), *marginals, nodes)


class AsymmetricLaplace(ExponentialOfRoot, ScaleMixture, ClosedMoments):
    """y = f + scale e, e of density q (1 - q) exp(-e (q - 1[e < 0])): f is the quantile at q.

    Quantile regression (Yu & Moyeed 2001): maximising it minimises the check loss. Its Gaussian
    scale mixture is that of Kozumi & Kobayashi (2011). What is predicted of y is of this law; the
    quantile itself is the posterior of f.

    Args:
        scale: learned, units of y; the mean check loss of y - f.
        level: q, in (0, 1), held fixed.

    Raises:
        InputError: a level that is not between 0 and 1.

    Example:
        >>> upper = AsymmetricLaplace(level=0.9)
        >>> round(float(upper.cdf(jnp.array(2.0), jnp.array([2.0]), {})), 4)
        0.9
    """

    is_location: ClassVar[bool] = True
    is_log_concave: ClassVar[bool] = True
    is_smooth: ClassVar[bool] = False

    scale: Scalar = parameter(constraints.positive, role="noise_scale", default=1.0)
    level: float = eqx.field(static=True, default=0.5)

    def __check_init__(self) -> None:
        check_ranges(self, level="(0, 1)")

    def form(self, y: Scalar, side: SideInformation) -> Form:
        # The check loss of u is |u| / 2 + (q - 1/2) u.
        tilt, precision = (self.level - 0.5) / self.scale, 0.25 / self.scale**2
        return form_of_distance(y, precision, self._log_height() - tilt * y, tilt)

    def predictive_moments(self, marginals: Marginals, side: SideInformation) -> RowMoments:
        mean, variance = marginals.first
        q, product = self.level, self.level * (1 - self.level)
        noise = self.scale**2 * (1 - 2 * product) / product**2
        return mean + self.scale * (1 - 2 * q) / product, variance + noise

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Scalar:
        above, below = jax.random.exponential(key, (2,), f.dtype)
        return f[0] + self.scale * (above / self.level - below / (1 - self.level))

    def cdf(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        return jnp.exp(self.log_tails(y, f, side)[0])

    def log_tails(self, y: Scalar, f: Latents, side: SideInformation) -> tuple[Scalar, Scalar]:
        e, q = (y - f[0]) / self.scale, self.level
        below = jnp.log(q) + (1 - q) * jnp.minimum(e, 0.0)
        above = jnp.log1p(-q) - q * jnp.maximum(e, 0.0)
        below_or_rest = jnp.where(e > 0, log_complement(above), below)
        return below_or_rest, jnp.where(e > 0, above, log_complement(below))

    def expected_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        mean, variance = marginals.first
        loss = expected_excess(y - mean, variance) - (1 - self.level) * (y - mean)
        return self._log_height() - loss / self.scale

    def predictive_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        below, above = (1 - self.level) / self.scale, self.level / self.scale
        return self._log_height() + _log_expected_exponentials(y, marginals, below, above)

    def latent_scale(self, spread: float) -> float:
        return spread

    def scaled_to(self, spread: float, centre: float = 0.0) -> Likelihood:
        return replace(self, {"scale": _USUAL_SHARE * spread * self.level * (1 - self.level)})

    def _log_height(self) -> Scalar:
        return jnp.log(self.level * (1 - self.level)) - jnp.log(self.scale)


def _log_expected_exponentials(
    y: PerRow, marginals: Marginals, below: Scalar, above: Scalar
) -> PerRow:
    """Log E of exp(-above (y - f)) where y > f, and exp(below (y - f)) elsewhere."""
    mean, variance = marginals.first
    spread = jnp.sqrt(variance + float(jnp.finfo(variance.dtype).tiny))
    z, falls, rises = (y - mean) / spread, above * spread, below * spread
    return jnp.logaddexp(
        0.5 * falls**2 - z * falls + log_ndtr(z - falls),
        0.5 * rises**2 + z * rises + log_ndtr(-z - rises),
    )
