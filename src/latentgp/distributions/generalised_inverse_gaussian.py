"""The generalised inverse Gaussian distribution, of any real order."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Float
from numpyro.distributions import constraints

from latentgp.distributions.base import Law, as_floats
from latentgp.distributions.rejection import repeat_until_done
from latentgp.typing import Array, Draws, PerRow, RandomKey, Values

_NODES = 128


class GeneralisedInverseGaussian(Law):
    """Density proportional to w^(p - 1) exp(-(a w + b / w) / 2).

    Args:
        p: order, any real number, without a unit.
        a: rate, in 1 / units of w; zero (the inverse gamma law) is allowed where p < 0.
        b: in units of w; zero (the gamma law) is allowed where p > 0.

    Example:
        >>> law = GeneralisedInverseGaussian(-0.5, 1.0, 4.0)  # inverse Gaussian
        >>> law.mean.round(4), law.variance.round(4)
        (Array(2., dtype=float32), Array(2., dtype=float32))
    """

    arg_constraints: dict[str, Any] = {  # noqa: RUF012
        "p": constraints.real,
        "a": constraints.nonnegative,
        "b": constraints.nonnegative,
    }
    _support = constraints.positive

    def __init__(
        self, p: ArrayLike, a: ArrayLike, b: ArrayLike, *, validate_args: bool | None = None
    ) -> None:
        self.p, self.a, self.b = as_floats(p, a, b)
        super().__init__(self.p.shape, validate_args=validate_args)

    def sample(self, key: RandomKey | None, sample_shape: tuple[int, ...] = ()) -> Draws:
        p = jnp.broadcast_to(self.p, self.shape(sample_shape))
        return sample_generalised_inverse_gaussian(key, p, self.a, self.b)

    def log_density(self, value: Float[Array, "*S"]) -> Float[Array, "*S"]:
        energy = 0.5 * (self.a * value + self.b / value)
        return (self.p - 1) * jnp.log(value) - energy - log_normaliser(self.p, self.a, self.b)

    def log_laplace_transform(self, t: Float[Array, "*#S"]) -> Float[Array, "*S"]:
        p, a, b, t = as_floats(self.p, self.a, self.b, t)
        return log_normaliser(p, a + 2 * t, b) - log_normaliser(p, a, b)

    @property
    def mean(self) -> Float[Array, "*S"]:
        """Infinite where the right tail is too heavy."""
        p, a, b = self.p, self.a, self.b
        return jnp.exp(log_normaliser(p + 1, a, b) - log_normaliser(p, a, b))

    @property
    def variance(self) -> Float[Array, "*S"]:
        none, one, two = (log_normaliser(self.p + order, self.a, self.b) for order in range(3))
        bent = jnp.where(jnp.isinf(two), jnp.inf, two - 2 * one + none)
        return jnp.exp(2 * (one - none)) * jnp.expm1(bent)


class _Exponent(NamedTuple):
    """w = (mode e^t)^sign, t of density exp(psi(t)) / Z with a maximum psi(0) = 0 (Devroye 2014).

    psi(t) = -alpha (cosh t - 1) - order (e^t - t - 1).
    """

    alpha: Array
    order: Array

    def value(self, t: Array) -> Array:
        return -2 * self.alpha * jnp.sinh(_finite(t) / 2) ** 2 - self.order * (jnp.expm1(t) - t)

    def slope(self, t: Array) -> Array:
        return -self.alpha * jnp.sinh(_finite(t)) - self.order * jnp.expm1(t)


def _finite(t: Array) -> Array:
    """Far on the left as far as sinh is finite: alpha may be zero."""
    return jnp.maximum(t, 1 - float(np.log(np.finfo(t.dtype).max)))


def _standardised(p: Array, a: Array, b: Array) -> tuple[Array, Array, Array, _Exponent]:
    """The sign, the mode of log w up to it, sqrt(p^2 + a b), and psi.

    Where p < 0, 1 / w has order -p, and a and b change places.
    """
    order = jnp.abs(p)
    rate, product = jnp.where(p < 0, b, a), a * b
    root = jnp.sqrt(order**2 + product)
    log_mode = jnp.log(order + root) - jnp.log(rate)
    alpha = product / jnp.where(order + root > 0, order + root, 1.0)
    return jnp.where(p < 0, -1.0, 1.0), log_mode, root, _Exponent(alpha, order)


@jax.jit
def log_normaliser(p: Values, a: Values, b: Values) -> Values:
    """Log of the integral of w^(p - 1) exp(-(a w + b / w) / 2) over w > 0.

    It is log(2 K_p(sqrt(a b)) (b / a)^(p / 2)), K the modified Bessel function, but without the
    overflow of K, finite at a = 0 or b = 0 where the integral is, infinite where it is not. By
    128 nodes of the trapezoidal rule; where the left tail is exponential in t for long, after the
    substitution t = v - exp(-v), which makes it doubly exponential. The relative error is below
    1e-11 for sqrt(a b) zero or at least 1e-8.
    """
    _, log_mode, root, psi = _standardised(p, a, b)
    # Where psi has fallen by 40: cosh t - 1 and e^-t + t - 1 >= t^2 / (2 + t) bound it.
    fall = 40.0
    right = jnp.arccosh(1 + fall / jnp.maximum(root, 1e-30))
    safe = jnp.where(psi.order > 0, psi.order, 1.0)
    by_order = fall / (2 * safe) + jnp.sqrt((fall / (2 * safe)) ** 2 + 2 * fall / safe)
    by_order = jnp.where(psi.order > 0, by_order, jnp.inf)
    by_alpha = jnp.arccosh(1 + fall / jnp.where(psi.alpha > 0, psi.alpha, 1.0))
    by_alpha = jnp.where(psi.alpha > 0, by_alpha, jnp.inf)
    left = jnp.minimum(by_order, by_alpha)
    is_exponential = by_order <= by_alpha
    centre = jnp.where(is_exponential, 0.5671432904097838, 0.0)  # where t = 0
    start = centre - left
    start = jnp.where(is_exponential & (left > 1), jnp.maximum(start, -jnp.log(left)), start)
    step = (centre + right - start) / (_NODES - 1)
    v = start[..., None] + step[..., None] * jnp.arange(_NODES, dtype=start.dtype)
    falling = jnp.where(is_exponential[..., None], jnp.exp(-v), 0.0)
    wide = _Exponent(psi.alpha[..., None], psi.order[..., None])
    integral = step * jnp.sum(jnp.exp(wide.value(v - falling)) * (1 + falling), -1)
    proper = jnp.isfinite(log_mode) & jnp.isfinite(left)
    return jnp.where(proper, psi.order * log_mode - root + jnp.log(integral), jnp.inf)


@jax.jit
def sample_generalised_inverse_gaussian(
    key: RandomKey, p: Float[Array, "*#S"], a: Float[Array, "*#S"], b: Float[Array, "*#S"]
) -> Float[Array, "*S"]:
    """Draws from the law by rejection on the log scale, exact and uniformly efficient.

    Devroye (2014), "Random variate generation for the generalized inverse Gaussian
    distribution": log w has a log-concave density, under a hat that is flat in the middle and
    exponential outside, by tangents where psi is about -1. NaN where no such law exists.

    Example:
        >>> ones = jnp.ones(3)
        >>> key = jax.random.key(0)
        >>> sample_generalised_inverse_gaussian(key, -1.5 * ones, 0 * ones, ones).shape
        (3,)
    """
    p, a, b = as_floats(p, a, b)
    sign, log_mode, _, psi = _standardised(p.ravel(), a.ravel(), b.ravel())
    possible = jnp.isfinite(log_mode) & ((psi.order > 0) | (psi.alpha > 0))
    hat = _hat(jax.tree.map(lambda value: jnp.where(possible, value, 1.0), psi))
    possible &= jnp.all(jnp.isfinite(jnp.stack(jax.tree.leaves(hat))), axis=0)
    start = jnp.where(possible, 0.0, jnp.nan).astype(p.dtype)
    t = repeat_until_done(_propose_log, key, hat, start, ~possible)
    return jnp.exp(sign * (log_mode + t)).reshape(p.shape)


class _Hat(NamedTuple):
    """One between -flat_left and flat_right, exp(value + slope (t - at)) outside."""

    psi: _Exponent
    flat_left: Array
    flat_right: Array
    slope_left: Array
    slope_right: Array


def _hat(psi: _Exponent) -> _Hat:
    """The points of tangency of Devroye (2014), and where the tangents meet one."""
    alpha, order = psi
    one = jnp.ones_like(alpha)

    def at_about_minus_one(at_one: Array, near: Array, far: Array) -> Array:
        return jnp.where(at_one > 2, near, jnp.where(at_one < 0.5, far, 1.0))

    positive = jnp.where(alpha > 0, alpha, 1.0)
    growth = 1 / positive + jnp.sqrt(1 / positive**2 + 2 / positive)
    by_alpha = jnp.where(alpha > 0, jnp.log1p(growth), jnp.inf)
    by_order = jnp.where(order > 0, 1 / jnp.where(order > 0, order, 1.0), jnp.inf)
    right = at_about_minus_one(
        -psi.value(one), jnp.sqrt(2 / (alpha + order)), jnp.log(4 / (alpha + 2 * order))
    )
    near = jnp.sqrt(4 / (alpha * jnp.cosh(1.0) + order))
    left = at_about_minus_one(-psi.value(-one), near, jnp.minimum(by_order, by_alpha))
    slope_right, slope_left = -psi.slope(right), psi.slope(-left)
    flats = left + psi.value(-left) / slope_left, right + psi.value(right) / slope_right
    return _Hat(psi, *flats, slope_left, slope_right)


def _propose_log(key: RandomKey, hat: _Hat, _: Array) -> tuple[PerRow, Bool[Array, "N"]]:
    """One attempt at t."""
    which, place, u = jax.random.uniform(key, (3, *hat.flat_left.shape), hat.flat_left.dtype)
    middle = hat.flat_left + hat.flat_right
    area_left, area_right = 1 / hat.slope_left, 1 / hat.slope_right
    which = which * (middle + area_left + area_right)
    beyond = -jnp.log1p(-place)
    inside, rightwards = which < middle, which < middle + area_right
    outside = jnp.where(
        rightwards, hat.flat_right + beyond * area_right, -hat.flat_left - beyond * area_left
    )
    t = jnp.where(inside, place * middle - hat.flat_left, outside)
    log_hat = jnp.where(inside, 0.0, -beyond)
    return t, jnp.log(u) < hat.psi.value(t) - log_hat
