"""Amounts that are sums of a random number of gamma variables, or zero: claims, rain."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, logsumexp, ndtr
from jaxtyping import Complex, Float
from numpyro.distributions import constraints

from latentgp.hyperparameters.base import parameter
from latentgp.likelihoods.base import ClosedForms, Marginals, SideInformation
from latentgp.numerics.laplace_inversion import invert
from latentgp.rows.arrays import check_values
from latentgp.typing import Array, Latents, PerRow, RandomKey, RowMoments, Scalar, Values

_TERMS = 161
_WIDTHS = 10.0  # of the largest terms of the series that are summed, on either side
_STIRLING = 12.0  # from where the series of log gamma's remainder is exact to rounding
_NARROW = 0.05  # relative spread of y below which a saddlepoint gives its distribution function
_NEAR_MEAN = 1e-3  # in standard deviations


class Tweedie(ClosedForms):
    """y >= 0 of mean exp(f) and variance dispersion mean^power: a compound Poisson-gamma law.

    Zero has the probability exp(-rate), rate = mean^(2 - power) / (dispersion (2 - power)), and a
    positive y is the sum of a Poisson number of gamma variables (Jorgensen 1987). The density is
    the series of Dunn & Smyth (2005).

    Args:
        power: learned, in (1, 2): near 1 many small amounts, near 2 few large ones.
        dispersion: learned, units of y^(2 - power).

    Example:
        >>> law = Tweedie(power=1.5, dispersion=1.0)
        >>> law.log_prob(jnp.array(0.0), jnp.array([0.0]), {}).round(4)
        Array(-2., dtype=float32)
    """

    atoms: ClassVar[tuple[float, ...]] = (0.0,)
    is_log_concave: ClassVar[bool] = True

    power: Scalar = parameter(constraints.interval(1.01, 1.99), default=1.5)
    dispersion: Scalar = parameter(constraints.positive, default=1.0)

    def expected_log_prob(self, y: PerRow, marginals: Marginals, side: SideInformation) -> PerRow:
        """From the expectations of exp((1 - power) f) and exp((2 - power) f)."""
        m, v = marginals.first
        p, dispersion = (jnp.asarray(value, m.dtype) for value in (self.power, self.dispersion))
        at_zero = -jnp.exp((2 - p) * m + 0.5 * (2 - p) ** 2 * v) / (dispersion * (2 - p))
        positive = jnp.where(y > 0, y, 1.0)
        log_y = jnp.log(positive)
        # Half the deviance in units of y^(2 - power), which is zero at a mean of y.
        falls = jnp.expm1((p - 1) * (log_y - m) + 0.5 * (p - 1) ** 2 * v) / (p - 1)
        rises = jnp.expm1((2 - p) * (m - log_y) + 0.5 * (2 - p) ** 2 * v) / (2 - p)
        log_size = (2 - p) * log_y - jnp.log(dispersion)
        value = self._log_saturated(log_y, log_size) - jnp.exp(log_size) * (falls + rises)
        return jnp.where(y > 0, value, at_zero)

    def predictive_moments(self, marginals: Marginals, side: SideInformation) -> RowMoments:
        (m, v), p = marginals.first, self.power
        first = jnp.exp(m + 0.5 * v)
        within = self.dispersion * jnp.exp(p * m + 0.5 * p**2 * v)
        return first, within + first * jnp.expm1(v) * first

    def sample(self, key: RandomKey, f: Latents, side: SideInformation) -> Scalar:
        key_count, key_size = jax.random.split(key)
        rate, shape, scale = self._compound(f[0])
        count = jax.random.poisson(key_count, rate).astype(f.dtype)
        size = jax.random.gamma(key_size, jnp.maximum(count, 1.0) * shape, dtype=f.dtype)
        return jnp.where(count > 0, size * scale, 0.0)

    def cdf(self, y: Scalar, f: Latents, side: SideInformation) -> Scalar:
        rate, shape, scale = self._compound(f[0])
        positive = jnp.where(y > 0, y, 1.0)

        def log_transform(s: Complex[Array, "nodes"]) -> Complex[Array, "nodes"]:
            return rate * (jnp.exp(-shape * jnp.log1p(scale * s)) - 1)

        spread = jnp.sqrt(self.dispersion) * jnp.exp((0.5 * self.power - 1) * f[0])
        by_series = invert(log_transform, positive).distribution
        below = jnp.where(spread < _NARROW, self._by_saddlepoint(positive, f[0], spread), by_series)
        # Not below the probability of zero, whatever the rounding.
        at_zero = jnp.exp(-rate)
        return jnp.where(y > 0, jnp.clip(below, at_zero, 1.0), jnp.where(y == 0, at_zero, 0.0))

    def check_targets(self, y: PerRow) -> None:
        advice = "leave these rows out, or use a likelihood of real numbers"
        check_values("Tweedie targets", y, y >= 0, "at least 0", advice)

    def latent_scale(self, spread: float) -> float:
        return 1.0

    def latent_centre(
        self, y: PerRow, weights: PerRow | None, side: SideInformation
    ) -> float | None:
        mean = float(np.average(y, weights=weights))
        return float(np.log(mean)) if mean > 0 else None

    def _compound(self, f: Values) -> tuple[Values, Scalar, Values]:
        """Rate of the Poisson number, and shape and scale of the gamma variables."""
        p, dispersion = (jnp.asarray(value, f.dtype) for value in (self.power, self.dispersion))
        rate = jnp.exp((2 - p) * f) / (dispersion * (2 - p))
        return rate, (2 - p) / (p - 1), dispersion * (p - 1) * jnp.exp((p - 1) * f)

    def _log_saturated(self, log_y: Values, log_size: Values) -> Values:
        """Log density of y > 0 at a mean of y, by a sum over the Poisson number j.

        The terms are (1 + a) j (1 + log(c / j)) in logarithm, less Stirling's remainders, with
        their largest one at about c = y^(2 - power) / (dispersion (2 - power)). Where they are many
        the sum is an integral, by the trapezoidal rule.
        """
        p = jnp.asarray(self.power, log_y.dtype)
        a = (2 - p) / (p - 1)
        log_c = (log_size - jnp.log(2 - p))[..., None]
        # Squares of its inverse are in derivatives.
        c = jnp.maximum(jnp.exp(log_c), float(jnp.finfo(log_y.dtype).tiny) ** 0.45)
        j, step = jax.lax.stop_gradient(_numbers(c[..., 0], a))
        away = (j - c) / c
        near = jnp.minimum(away, 1.0)
        fall = jnp.where(
            away < 1, c * ((1 + near) * jnp.log1p(near) - near), j * (jnp.log(j) - log_c - 1) + c
        )
        terms = -(1 + a) * fall - _stirling_remainder(j) - _stirling_remainder(a * j)
        total = logsumexp(terms, axis=-1) + jnp.log(step)
        return total + 0.5 * jnp.log(a) - float(np.log(2 * np.pi)) - log_y

    def _by_saddlepoint(self, y: Scalar, f: Scalar, spread: Scalar) -> Scalar:
        """Distribution function of a narrow law (Barndorff-Nielsen 1990)."""
        p, log_ratio = jnp.asarray(self.power, f.dtype), jnp.log(y) - f
        near = jnp.abs(log_ratio) < _NEAR_MEAN * spread
        away = jnp.where(near, spread, log_ratio)
        falls = jnp.expm1((p - 1) * away) / (p - 1)
        deviance = falls + jnp.expm1((p - 2) * away) / (2 - p)
        scale = jnp.exp((1 - 0.5 * p) * away) / spread
        root = jnp.sign(away) * jnp.sqrt(2 * deviance) * scale
        corrected = root + jnp.log(falls * scale / root) / root
        return ndtr(jnp.where(near, log_ratio / spread + p * spread / 6, corrected))


def _numbers(c: Values, a: Scalar) -> tuple[Float[Array, "*N nodes"], Values]:
    """Evenly spaced j around the largest terms, whole where these are not many, and their step."""
    half = _TERMS // 2
    step = jnp.maximum(_WIDTHS / half * jnp.sqrt(c / (1 + a)), 1.0)
    centre = jnp.where(step > 1, c, jnp.round(c))
    start = jnp.maximum(centre - half * step, step)
    return start[..., None] + step[..., None] * jnp.arange(_TERMS, dtype=c.dtype), step


def _stirling_remainder(x: Values) -> Values:
    """Log of x Gamma(x) or Gamma(x + 1), less (x + 1/2) log x - x + log(2 pi) / 2."""
    few = x < _STIRLING
    small, large = jnp.where(few, x, 1.0), jnp.where(few, _STIRLING, x)
    direct = gammaln(small + 1) - (small + 0.5) * jnp.log(small) + small
    inverse = 1 / large**2
    series = 1 / 30 - inverse * (1 / 105 - inverse * (1 / 140 - inverse / 99))
    series = (1 - inverse * series) / (12 * large)
    return jnp.where(few, direct - 0.5 * float(np.log(2 * np.pi)), series)
