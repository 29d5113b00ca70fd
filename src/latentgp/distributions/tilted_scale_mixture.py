"""Distributions on the positive half-line given by their Laplace transforms only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jax.typing import ArrayLike
from jaxtyping import Bool, Float
from numpyro.distributions import constraints

from latentgp.distributions.base import Law, as_floats
from latentgp.distributions.rejection import repeat_until_done
from latentgp.numerics.laplace_inversion import LawAtPoints, invert
from latentgp.typing import Array, Draws, PerRow, RandomKey, Values

# Relative error of F after which a step of Halley's method, of third order, is the last.
_LAST = 1e-3
_MAXIMAL_STEPS = 150  # a draw is done after so many evaluations at the latest


class TiltedScaleMixture(Law):
    """The law proportional to exp(-r w) p(w), w > 0, where phi is the Laplace transform of p.

    Its own transform is phi(r + t) / phi(r). The auxiliary variable of a Gaussian scale mixture
    has this law (Galy-Fajou, Wenzel & Opper 2020). All of it is numerical: see
    `sample_tilted_scale_mixture`.

    Args:
        log_phi: log phi, elementwise; takes real arrays and complex ones with a positive real
            part. phi is completely monotone and phi(0) = 1.
        tilt: r >= 0, in 1 / units of w.

    Example:
        >>> law = TiltedScaleMixture(lambda t: -2 * jnp.log1p(t), 1.0)  # Ga(2, rate 2)
        >>> law.mean, law.variance
        (Array(1., dtype=float32), Array(0.5, dtype=float32))
    """

    arg_constraints: dict[str, Any] = {"tilt": constraints.nonnegative}  # noqa: RUF012
    _support = constraints.positive
    pytree_data_fields = ("log_phi", "tilt")

    def __init__(
        self, log_phi: Callable[[Array], Array], tilt: ArrayLike, *, validate_args: Any = None
    ) -> None:
        # A plain function becomes a pytree without leaves; a method of a module is one with them.
        is_leaf = jax.tree_util.all_leaves([log_phi])
        self.log_phi = jax.tree_util.Partial(log_phi) if is_leaf else log_phi
        (self.tilt,) = as_floats(tilt)
        super().__init__(self.tilt.shape, validate_args=validate_args)

    def sample(self, key: RandomKey | None, sample_shape: tuple[int, ...] = ()) -> Draws:
        tilt = jnp.broadcast_to(self.tilt, self.shape(sample_shape))
        return sample_tilted_scale_mixture(key, self.log_phi, tilt)

    def log_density(self, value: Float[Array, "*S"]) -> Float[Array, "*S"]:
        """By numerical inversion: the absolute error of the density times w is that of `cdf`."""
        return jnp.log(self._invert(value)[1])

    def cdf(self, value: Float[Array, "*S"]) -> Float[Array, "*S"]:
        """By numerical inversion, with an error of about 1e-10 (1e-4 in single precision)."""
        return self._invert(value)[0]

    def log_laplace_transform(self, t: Float[Array, "*#S"]) -> Float[Array, "*S"]:
        return self.log_phi(self.tilt + t) - self.log_phi(self.tilt)

    @property
    def mean(self) -> Float[Array, "*S"]:
        return -_derivatives(self.log_phi, self.tilt)[0]

    @property
    def variance(self) -> Float[Array, "*S"]:
        return _derivatives(self.log_phi, self.tilt)[1]

    def _invert(self, value: Float[Array, "*S"]) -> tuple[Float[Array, "*S"], Float[Array, "*S"]]:
        value, tilt = as_floats(value, self.tilt)
        law = _shifted(self.log_phi, tilt)
        above = value > law.start
        at = law.invert(jnp.where(above, value - law.start, 1.0))
        return jnp.where(above, at.distribution, 0.0), jnp.where(above, at.density, 0.0)


class _ShiftedLaw(NamedTuple):
    """The law of w - start."""

    log_phi: Callable[[Array], Array]  # see `TiltedScaleMixture`
    tilt: Array  # r
    # a number below which w lies with probability e^-32 at most; zero unless the law is narrow.
    # Inversion takes more terms the narrower a law is compared to its mean.
    start: Array
    mean: Array  # of w - start; infinite or NaN where it is not known
    variance: Array  # the same

    def invert(self, x: Float[Array, "*S"]) -> LawAtPoints:
        """Distribution function and density of w - start at x > 0."""
        at_tilt = self.log_phi(self.tilt)[..., None]

        def log_transform(s: Array) -> Array:
            tilted = self.log_phi(self.tilt[..., None] + s) - at_tilt
            return tilted + s * self.start[..., None]

        return invert(log_transform, x)


def _shifted(log_phi: Callable[[Array], Array], tilt: Float[Array, "*S"]) -> _ShiftedLaw:
    """By Chernoff's bound, P(w <= y) <= exp(t y) E exp(-t w) for every t > 0."""
    slope, variance = _derivatives(log_phi, tilt)
    known = jnp.isfinite(slope) & jnp.isfinite(variance) & (variance > 0)
    t = 8 / jnp.sqrt(jnp.where(known, variance, 1.0))
    start = (log_phi(tilt) - log_phi(tilt + t) - 32) / t
    start = jnp.where(known & (start > 0), start, 0.0)
    return _ShiftedLaw(log_phi, tilt, start, -slope - start, variance)


class _Search(NamedTuple):
    """State of the search for one quantile, in log(w - start)."""

    place: Array  # the next logarithm to look at
    lower: Array  # the largest known to be too small
    upper: Array  # the smallest known to be too large
    stride: Array  # the next step, while there is no bound on one side
    residual: Array  # the last |F - u|
    steps: Array  # evaluations so far


@eqx.filter_jit
def sample_tilted_scale_mixture(
    key: RandomKey, log_phi: Callable[[Array], Array], tilt: Float[Array, "*S"]
) -> Float[Array, "*S"]:
    """Draws by inversion: the w at which the distribution function F equals a uniform number.

    F and its derivatives by `invert`, from differences of log phi. Halley's method in log w
    (Newton's in Ridout 2009) between bounds, with a bisection wherever a step leaves them or the
    last did not halve |F - u|; without bounds on one side, by strides that double. A draw is done
    where |F - u| <= 1e-9 (1e-4 in single precision), or where the next step will be, and is finite
    always. F itself is good to 1e-10, and loses a digit for each that log phi(r) has.

    Args:
        key: the random key.
        log_phi: see `TiltedScaleMixture`.
        tilt: r.
    """
    law = _shifted(log_phi, tilt.ravel())
    dtype = tilt.dtype
    u = jax.random.uniform(key, law.tilt.shape, dtype)
    zero = jnp.zeros_like(u)
    unknown = zero - jnp.inf, zero + jnp.inf, zero + 1, zero + jnp.inf, zero.astype(jnp.int32)
    search = _Search(_first_guess(law, u), *unknown)
    eps = float(jnp.finfo(dtype).eps)
    tolerance = max(1e-9, 1000 * eps)
    furthest = 0.95 * float(np.log(float(jnp.finfo(dtype).max)))

    def step(_: Array, lanes: tuple, search: _Search) -> tuple[_Search, Bool[Array, "N"]]:
        law, u = lanes
        x = jnp.exp(search.place)
        at = _ShiftedLaw(log_phi, *law).invert(x)
        error = at.distribution - u
        residual = jnp.abs(error)
        lower = jnp.where(error < 0, search.place, search.lower)
        upper = jnp.where(error < 0, search.upper, search.place)
        # Halley's method in log x.
        newton = -error / (x * at.density)
        curvature = 1 + x * at.slope / at.density
        halley = search.place + newton / jnp.maximum(1 + 0.5 * newton * curvature, 0.5)
        is_good = (halley > lower) & (halley < upper) & (residual <= 0.5 * search.residual)
        is_last = is_good & (residual <= _LAST * jnp.minimum(u, 1 - u))
        bounded = jnp.isfinite(lower) & jnp.isfinite(upper)
        stride = jnp.where(error < 0, search.stride, -search.stride)
        other = jnp.where(bounded, 0.5 * (lower + upper), search.place + stride)
        next_place = jnp.clip(jnp.where(is_good, halley, other), -furthest, furthest)
        steps = search.steps + 1
        done = is_last | (residual <= tolerance) | (steps >= _MAXIMAL_STEPS)
        done = done | (upper - lower <= 4 * eps * jnp.maximum(jnp.abs(search.place), 1.0))
        place = jnp.where(done & ~is_last, search.place, next_place)
        stride = jnp.where(is_good | bounded, search.stride, 2 * search.stride)
        return _Search(place, lower, upper, stride, residual, steps), done

    done = jnp.zeros(u.shape, bool)
    search = repeat_until_done(step, key, (law[1:], u), search, done)
    return (law.start + jnp.exp(search.place)).reshape(tilt.shape)


def _first_guess(law: _ShiftedLaw, u: PerRow) -> PerRow:
    """Log of the quantile of the log-normal law with the same mean and variance.

    Zero, a start as good as any, where these are not known.
    """
    spread = jnp.log1p(law.variance / law.mean**2)
    eps = float(jnp.finfo(u.dtype).eps)
    z = ndtri(jnp.clip(u, eps, 1 - eps))
    guess = jnp.log(law.mean) - 0.5 * spread + jnp.sqrt(spread) * z
    return jnp.where(jnp.isfinite(guess), guess, 0.0)


def _derivatives(log_phi: Callable[[Array], Array], r: Values) -> tuple[Values, Values]:
    """First and second derivative of log phi, elementwise; infinite where they do not exist."""

    def first(r: Array) -> Array:
        return jax.grad(lambda r: jnp.sum(log_phi(r)))(r)

    slope, curvature = jax.jvp(first, (r,), (jnp.ones_like(r),))
    slope = jnp.where(jnp.isnan(slope), -jnp.inf, slope)
    return slope, jnp.where(jnp.isnan(curvature), jnp.inf, curvature)
