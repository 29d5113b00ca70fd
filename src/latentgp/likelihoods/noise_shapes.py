"""Shapes of symmetric noise: laws of unit scale with a density C phi(e^2), phi completely monotone.

A regression likelihood is a shape and a way to scale it: one scale for all rows (`robust`), or
one that depends on the input (`heteroscedastic`).
"""

from __future__ import annotations

from abc import abstractmethod

import jax
import jax.numpy as jnp
from jax.scipy.special import betainc, gammaln, log_ndtr, logsumexp, ndtr
from jaxtyping import Float
from numpyro.distributions import Delta, Distribution, constraints

from latentgp.distributions import Gamma, GeneralisedInverseGaussian, InverseGaussian
from latentgp.hyperparameters.base import parameter
from latentgp.likelihoods.scale_mixture import CompletelyMonotone
from latentgp.numerics.log_space import log_complement
from latentgp.typing import Array, RandomKey, Scalar, Values

_MIXTURE_NODES = 240
_NEAR = 0.03
_SERIES = [(-1) ** k / (k + 3) for k in range(8)][::-1]


class NoiseShape(CompletelyMonotone):
    """Law of noise e of unit scale."""

    @abstractmethod
    def log_density_at_zero(self) -> Scalar:
        """Log C, the log density of e at zero."""

    @abstractmethod
    def log_upper_tail(self, e: Values) -> Values:
        """Log probability that the noise exceeds e >= 0, with its derivatives."""

    def upper_tail(self, e: Values) -> Values:
        """Probability that the noise exceeds e >= 0; a subclass may know a faster way."""
        return jnp.exp(self.log_upper_tail(e))

    @abstractmethod
    def unit_variance(self) -> Scalar:
        """Variance of e."""

    @abstractmethod
    def unit_draw(self, key: RandomKey, dtype: jnp.dtype) -> Scalar:
        """A draw of e."""

    def normal_mixture(self) -> tuple[Float[Array, "K"], Float[Array, "K"]] | None:
        """Precisions p and weights with which e is sum_j weight_j N(0, 1 / p_j), to rounding.

        Then a predictive law is a mixture of normals too. None where the tails suffice.
        """
        return None

    def unit_cdf(self, e: Values) -> Values:
        """Probability that the noise is at most e."""
        upper = self.upper_tail(jnp.abs(e))
        return jnp.where(e > 0, 1 - upper, upper)

    def unit_log_tails(self, e: Values) -> tuple[Values, Values]:
        """Log probabilities that the noise is at most e, and that it exceeds e."""
        # Not by abs, whose derivative at zero is zero.
        tail = self.log_upper_tail(jnp.where(e > 0, e, -e))
        rest = log_complement(tail)
        return jnp.where(e > 0, rest, tail), jnp.where(e > 0, tail, rest)


class GaussianShape(NoiseShape):
    """e ~ N(0, 1): phi(r) = exp(-r / 2), whose auxiliary variable is 1/2 always."""

    def log_phi(self, r: Array) -> Array:
        return -0.5 * r

    def log_density_at_zero(self) -> Scalar:
        return -0.5 * jnp.log(2 * jnp.pi)

    def log_upper_tail(self, e: Values) -> Values:
        return log_ndtr(-e)

    def upper_tail(self, e: Values) -> Values:
        return ndtr(-e)

    def unit_variance(self) -> Scalar:
        return jnp.asarray(1.0)

    def unit_draw(self, key: RandomKey, dtype: jnp.dtype) -> Scalar:
        return jax.random.normal(key, dtype=dtype)

    def normal_mixture(self) -> tuple[Float[Array, "K"], Float[Array, "K"]] | None:
        return jnp.ones(1), jnp.ones(1)

    def auxiliary_law(self, r: Values) -> Distribution:
        return Delta(jnp.full_like(r, 0.5))


class StudentShape(NoiseShape):
    """e of Student's law: phi(r) = (1 + r / nu)^(-(nu + 1) / 2)."""

    degrees_of_freedom: Scalar = parameter(
        constraints.positive, role="degrees_of_freedom", default=4.0
    )

    def log_phi(self, r: Array) -> Array:
        nu = self.degrees_of_freedom
        return -0.5 * (nu + 1) * jnp.log1p(r / nu)

    def log_density_at_zero(self) -> Scalar:
        nu = self.degrees_of_freedom
        return gammaln(0.5 * (nu + 1)) - gammaln(0.5 * nu) - 0.5 * jnp.log(jnp.pi * nu)

    def log_upper_tail(self, e: Values) -> Values:
        # The incomplete beta function has no derivative in the degrees of freedom.
        precision, weights = self.normal_mixture()
        each = log_ndtr(-e[..., None] * jnp.sqrt(precision).astype(e.dtype))
        return logsumexp(each, axis=-1, b=weights.astype(e.dtype))

    def upper_tail(self, e: Values) -> Values:
        nu = jnp.asarray(self.degrees_of_freedom, e.dtype)
        return 0.5 * betainc(0.5 * nu, jnp.asarray(0.5, e.dtype), nu / (nu + e**2))

    def unit_variance(self) -> Scalar:
        nu = self.degrees_of_freedom
        return jnp.where(nu > 2, nu / jnp.where(nu > 2, nu - 2, 1.0), jnp.inf)

    def unit_draw(self, key: RandomKey, dtype: jnp.dtype) -> Scalar:
        return jax.random.t(key, jnp.asarray(self.degrees_of_freedom, dtype), dtype=dtype)

    def normal_mixture(self) -> tuple[Float[Array, "K"], Float[Array, "K"]]:
        """The precision is Ga(nu / 2, nu / 2): the trapezoidal rule over its logarithm."""
        half = 0.5 * jnp.asarray(self.degrees_of_freedom)
        # The log density, half (t - exp(t) + 1) below its peak at t = 0, falls by 36 and more.
        narrow = jnp.sqrt(72 / half)
        low, high = -36 / half - narrow, jnp.minimum(narrow, jnp.log1p(36 / half) + 1)
        log_precision = low + (high - low) * jnp.linspace(0, 1, _MIXTURE_NODES, dtype=half.dtype)
        log_density = half * (log_precision - jnp.exp(log_precision))
        return jnp.exp(log_precision), jax.nn.softmax(log_density)

    def auxiliary_law(self, r: Values) -> Distribution:
        nu = self.degrees_of_freedom
        return Gamma(jnp.broadcast_to(0.5 * (nu + 1), jnp.shape(r)), nu + r)


class ExponentialOfRoot(CompletelyMonotone):
    """phi(r) = exp(-sqrt(r)), whose auxiliary variable is inverse Gaussian."""

    def log_phi(self, r: Array) -> Array:
        return -root(r)

    def auxiliary_law(self, r: Values) -> Distribution:
        return InverseGaussian(0.5 / root(r), jnp.full_like(r, 0.5))


class LaplaceShape(ExponentialOfRoot, NoiseShape):
    """e of Laplace's law exp(-|e|) / 2."""

    def log_density_at_zero(self) -> Scalar:
        return -jnp.log(2.0)

    def log_upper_tail(self, e: Values) -> Values:
        return -jnp.log(2.0) - e

    def unit_variance(self) -> Scalar:
        return jnp.asarray(2.0)

    def unit_draw(self, key: RandomKey, dtype: jnp.dtype) -> Scalar:
        return jax.random.laplace(key, dtype=dtype)


class MaternShape(NoiseShape):
    """e with the Matérn-3/2 kernel as its density: phi(r) = (1 + sqrt(3 r)) exp(-sqrt(3 r)).

    Galy-Fajou, Wenzel & Opper (2020, A.6), with the roots and the constant sqrt(3) / 4 put right.
    """

    def log_phi(self, r: Array) -> Array:
        distance = root(3 * r)
        near = distance < _NEAR
        far = jnp.where(near, 1.0, distance)
        # log(1 + d) - d as a series without its first term, d^2 = 3 r: no digits cancel.
        terms = jnp.polyval(jnp.asarray(_SERIES, distance.dtype), distance)
        return jnp.where(near, -1.5 * r + distance**3 * terms, jnp.log1p(far) - far)

    def log_density_at_zero(self) -> Scalar:
        return jnp.log(jnp.sqrt(3.0) / 4)

    def log_upper_tail(self, e: Values) -> Values:
        distance = jnp.sqrt(3.0) * e
        return jnp.log1p(0.5 * distance) - distance - jnp.log(2.0)

    def unit_variance(self) -> Scalar:
        return jnp.asarray(4 / 3)

    def unit_draw(self, key: RandomKey, dtype: jnp.dtype) -> Scalar:
        # sqrt(3) |e| has density (1 + t) exp(-t) / 2: half the time Ga(1, 1), else Ga(2, 1).
        key_sign, key_shape, key_size = jax.random.split(key, 3)
        parts = jax.random.exponential(key_size, (2,), dtype)
        size = parts[0] + jax.random.bernoulli(key_shape) * parts[1]
        return jax.random.rademacher(key_sign, (), dtype) * size / jnp.sqrt(3.0).astype(dtype)

    def auxiliary_law(self, r: Values) -> Distribution:
        order, b = jnp.full_like(r, -1.5), jnp.full_like(r, 1.5)
        return GeneralisedInverseGaussian(order, 2 * r, b)


def root(r: Array) -> Array:
    """Square root with a derivative at zero, elementwise; exact to 1e-15."""
    return jnp.sqrt(r + 1e-30)
