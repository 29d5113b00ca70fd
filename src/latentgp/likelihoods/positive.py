"""Positive and bounded targets: gamma, Weibull with right censoring, beta."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc, betaln, gammainc, gammaln
from jaxtyping import Float, Key
from numpyro.distributions import constraints

from latentgp.errors import InputError
from latentgp.likelihoods.base import Likelihood, Marginals, SideInformation
from latentgp.parameters.base import parameter
from latentgp.typing import Array


class PositiveLikelihood(Likelihood):
    """A law of y > 0 whose scale is exp(f)."""

    is_log_concave: ClassVar[bool] = True

    shape: Float[Array, ""] = parameter(constraints.positive, default=1.0)

    def check_targets(self, y: Float[Array, "N"]) -> None:
        rows = np.flatnonzero(~(y > 0))
        if rows.size:
            raise InputError(
                f"{type(self).__name__} targets must be positive, but are not in {rows.size} "
                f"row(s), counted from 0: {rows[:5].tolist()}; shift them, or use a likelihood of "
                "real numbers."
            )

    def latent_scale(self, spread: float) -> float:
        return 1.0

    def latent_centre(
        self, y: Float[Array, "N"], weights: Float[Array, "N"] | None, side: SideInformation
    ) -> float:
        return float(np.log(np.average(y, weights=weights)))


class Gamma(PositiveLikelihood):
    """y > 0 of mean exp(f): y ~ Ga(shape, rate shape exp(-f)).

    Args:
        shape: learned; one over the squared coefficient of variation.
    """

    def log_prob(
        self, y: Float[Array, ""], f: Float[Array, "Q"], side: SideInformation
    ) -> Float[Array, ""]:
        return self._log_density(y, f[0], jnp.exp(-f[0]))

    def expected_log_prob(
        self, y: Float[Array, "N"], marginals: Marginals, side: SideInformation
    ) -> Float[Array, "N"]:
        mean, variance = marginals
        m, v = mean[:, 0], variance[:, 0]
        return self._log_density(y, m, jnp.exp(0.5 * v - m))

    def conditional_moments(
        self, f: Float[Array, "Q"], side: SideInformation
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        mean = jnp.exp(f[0])
        return mean, mean**2 / self.shape

    def predictive_moments(
        self, marginals: Marginals, side: SideInformation
    ) -> tuple[Float[Array, "N"], Float[Array, "N"]]:
        mean, variance = marginals
        m, v = mean[:, 0], variance[:, 0]
        first = jnp.exp(m + 0.5 * v)
        return first, first**2 * (jnp.expm1(v) + jnp.exp(v) / self.shape)

    def sample(
        self, key: Key[Array, ""], f: Float[Array, "Q"], side: SideInformation
    ) -> Float[Array, ""]:
        shape = jnp.asarray(self.shape, f.dtype)
        return jax.random.gamma(key, shape, dtype=f.dtype) * jnp.exp(f[0]) / shape

    def cdf(
        self, y: Float[Array, ""], f: Float[Array, "Q"], side: SideInformation
    ) -> Float[Array, ""]:
        shape = jnp.asarray(self.shape, f.dtype)
        return gammainc(shape, shape * jnp.maximum(y, 0.0) * jnp.exp(-f[0]))

    def _log_density(
        self, y: Float[Array, "*N"], f: Float[Array, "*N"], inverse: Float[Array, "*N"]
    ) -> Float[Array, "*N"]:
        a = self.shape
        constant = a * jnp.log(a) - gammaln(a)
        return constant + (a - 1) * jnp.log(y) - a * (f + y * inverse)


class Weibull(PositiveLikelihood):
    """Survival times: P(y > t) = exp(-(t exp(-f))^shape).

    The rows carry `censored`, 1 where y is only the time until which there was no event (right
    censoring) and 0 otherwise, as without it.

    Args:
        shape: learned; above one the hazard rises with time.
    """

    side_information: ClassVar[tuple[str, ...]] = ("censored",)

    def log_prob(
        self, y: Float[Array, ""], f: Float[Array, "Q"], side: SideInformation
    ) -> Float[Array, ""]:
        return self._log_density(y, f[0], -self.shape * f[0], side)

    def expected_log_prob(
        self, y: Float[Array, "N"], marginals: Marginals, side: SideInformation
    ) -> Float[Array, "N"]:
        mean, variance = marginals
        k, m, v = self.shape, mean[:, 0], variance[:, 0]
        return self._log_density(y, m, 0.5 * k**2 * v - k * m, side)

    def conditional_moments(
        self, f: Float[Array, "Q"], side: SideInformation
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        return self._moments(f[0], jnp.zeros_like(f[0]))

    def predictive_moments(
        self, marginals: Marginals, side: SideInformation
    ) -> tuple[Float[Array, "N"], Float[Array, "N"]]:
        mean, variance = marginals
        return self._moments(mean[:, 0], variance[:, 0])

    def sample(
        self, key: Key[Array, ""], f: Float[Array, "Q"], side: SideInformation
    ) -> Float[Array, ""]:
        return jnp.exp(f[0]) * jax.random.exponential(key, dtype=f.dtype) ** (1 / self.shape)

    def cdf(
        self, y: Float[Array, ""], f: Float[Array, "Q"], side: SideInformation
    ) -> Float[Array, ""]:
        time = jnp.maximum(y, 0.0) * jnp.exp(-f[0])
        return -jnp.expm1(-(time**self.shape))

    def check_side_information(self, side: SideInformation) -> None:
        outside = np.setdiff1d(np.asarray(side.get("censored", 0.0)), [0.0, 1.0])
        if outside.size:
            raise InputError(
                "censored must be 0 (an event at y) or 1 (none until y) in every row, got "
                f"{outside[:5].tolist()}."
            )

    def _log_density(
        self,
        y: Float[Array, "*N"],
        f: Float[Array, "*N"],
        log_inverse: Float[Array, "*N"],
        side: SideInformation,
    ) -> Float[Array, "*N"]:
        """Given f and the logarithm of (the expectation of) exp(-shape f)."""
        k, event = self.shape, 1 - jnp.asarray(side.get("censored", 0.0))
        hazard = jnp.log(k) - k * f + (k - 1) * jnp.log(y)
        return event * hazard - jnp.exp(k * jnp.log(y) + log_inverse)

    def _moments(
        self, m: Float[Array, "*N"], v: Float[Array, "*N"]
    ) -> tuple[Float[Array, "*N"], Float[Array, "*N"]]:
        """Mean and variance of y under f ~ N(m, v); squares may overflow, their ratio may not."""
        log_first = gammaln(1 + 1 / self.shape) + m + 0.5 * v
        log_second = gammaln(1 + 2 / self.shape) + 2 * m + 2 * v
        return jnp.exp(log_first), -jnp.exp(log_second) * jnp.expm1(2 * log_first - log_second)


class Beta(Likelihood):
    """Shares 0 < y < 1 of mean sigmoid(f): y ~ Beta(s mean, s (1 - mean)).

    Args:
        precision: s, learned; the variance is mean (1 - mean) / (1 + s).
    """

    precision: Float[Array, ""] = parameter(constraints.positive, default=5.0)

    def log_prob(
        self, y: Float[Array, ""], f: Float[Array, "Q"], side: SideInformation
    ) -> Float[Array, ""]:
        a, b = self._shapes(f)
        return (a - 1) * jnp.log(y) + (b - 1) * jnp.log1p(-y) - betaln(a, b)

    def conditional_moments(
        self, f: Float[Array, "Q"], side: SideInformation
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        mean = jax.nn.sigmoid(f[0])
        return mean, mean * jax.nn.sigmoid(-f[0]) / (1 + self.precision)

    def sample(
        self, key: Key[Array, ""], f: Float[Array, "Q"], side: SideInformation
    ) -> Float[Array, ""]:
        return jax.random.beta(key, *self._shapes(f), dtype=f.dtype)

    def cdf(
        self, y: Float[Array, ""], f: Float[Array, "Q"], side: SideInformation
    ) -> Float[Array, ""]:
        return betainc(*self._shapes(f), jnp.clip(y, 0.0, 1.0))

    def check_targets(self, y: Float[Array, "N"]) -> None:
        rows = np.flatnonzero(~((y > 0) & (y < 1)))
        if rows.size:
            raise InputError(
                f"Beta targets must be strictly between 0 and 1, but are not in {rows.size} "
                f"row(s), counted from 0: {rows[:5].tolist()}; divide by their range, and move "
                "what is at its ends inside."
            )

    def latent_centre(
        self, y: Float[Array, "N"], weights: Float[Array, "N"] | None, side: SideInformation
    ) -> float:
        mean = np.average(y, weights=weights)
        return float(np.log(mean / (1 - mean)))

    def latent_start(self, y: Float[Array, "N"], side: SideInformation) -> Float[Array, "N"]:
        return jnp.log(y) - jnp.log1p(-y)

    def _shapes(self, f: Float[Array, "Q"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        # Their squares are in second derivatives.
        least = float(jnp.finfo(f.dtype).tiny) ** 0.45
        s = jnp.asarray(self.precision, f.dtype)
        return jnp.maximum(s * jax.nn.sigmoid(f[0]), least), jnp.maximum(
            s * jax.nn.sigmoid(-f[0]), least
        )
