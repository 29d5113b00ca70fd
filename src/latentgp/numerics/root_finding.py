"""Quantiles by inverting a cumulative distribution function, inside jit."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.typing import Array, Scalar, Values

_WIDENINGS, _ITERATIONS = 400, 100

CDF = Callable[[Values], Values]


def invert_cdf(
    cdf: CDF, probabilities: Float[Array, "levels"], centre: Values, width: Values
) -> Float[Array, "*N levels"]:
    """The y with cdf(y) = p for every row and probability in (0, 1).

    A bracket is widened until it holds the quantile; then Chandrupatla's method (1997), which is
    inverse quadratic interpolation that falls back on bisection, narrows it to rounding. The cdf
    takes one value of y a row, and is continuous and not decreasing; the centre is where each
    row's law is, the width about how wide it is: any positive number will do.
    """

    def one(probability: Float[Array, ""]) -> Float[Array, "*N"]:
        low, high = _bracket(cdf, probability, centre - width, centre + width, width)
        return _chandrupatla(lambda y: cdf(y) - probability, low, high)

    return jnp.moveaxis(jax.lax.map(one, probabilities), 0, -1)


def invert_cdf_of_counts(
    cdf: CDF, probabilities: Float[Array, "levels"], centre: Float[Array, "*N"]
) -> Float[Array, "*N levels"]:
    """The smallest whole number y >= 0 with cdf(y) >= p for every row and probability.

    Arguments are those of `invert_cdf`; `centre` gives the rows.
    """

    def one(probability: Float[Array, ""]) -> Float[Array, "*N"]:
        def too_low(state):
            return jnp.any(state[2]) & (state[3] < _WIDENINGS)

        def double(state):
            low, high, _, count = state
            below = cdf(high) < probability
            low, high = jnp.where(below, high, low), jnp.where(below, 2 * high + 1, high)
            return low, high, below, count + 1

        first = jnp.full_like(centre, -1.0)
        start = (first, first + 1, jnp.ones_like(centre, bool), jnp.zeros((), jnp.int32))
        low, high, *_ = jax.lax.while_loop(too_low, double, start)

        def halve(ends):
            low, high = ends
            middle = jnp.floor(0.5 * (low + high))
            reached = cdf(middle) >= probability
            return jnp.where(reached, low, middle), jnp.where(reached, middle, high)

        def unfinished(ends):
            # Above 2^53 neighbours are further apart than one.
            middle = jnp.floor(0.5 * (ends[0] + ends[1]))
            return jnp.any((middle > ends[0]) & (middle < ends[1]))

        return jax.lax.while_loop(unfinished, halve, (low, high))[1]

    return jnp.moveaxis(jax.lax.map(one, probabilities), 0, -1)


def _bracket(
    cdf: CDF, probability: Scalar, low: Values, high: Values, width: Values
) -> tuple[Values, Values]:
    """Ends with cdf(low) < p <= cdf(high); an end that is right already stays."""

    def outside(state):
        *_, wrong, count = state
        return wrong & (count < _WIDENINGS)

    def widen(state):
        low, high, width, _, count = state
        low_wrong = cdf(low) >= probability
        high_wrong = cdf(high) < probability
        low = jnp.where(low_wrong, low - width, low)
        high = jnp.where(high_wrong, high + width, high)
        return low, high, 2 * width, jnp.any(low_wrong | high_wrong), count + 1

    start = (low, high, width, jnp.array(True), jnp.zeros((), jnp.int32))
    low, high, *_ = jax.lax.while_loop(outside, widen, start)
    return low, high


def _chandrupatla(function: CDF, low: Values, high: Values) -> Values:
    """Root of an increasing function in a bracket, to rounding."""
    resolution = 4 * float(jnp.finfo(low.dtype).eps)

    def unfinished(state):
        a, b, *_, count = state
        tolerance = resolution * jnp.maximum(jnp.abs(a), jnp.abs(b))
        return jnp.any(jnp.abs(b - a) > tolerance) & (count < _ITERATIONS)

    def narrow(state):
        # a is the newest point, b the other end of the bracket, c the point before.
        a, b, c, at_a, at_b, at_c, share, count = state
        x = a + share * (b - a)
        at_x = function(x)
        same_side = (at_x > 0) == (at_a > 0)
        b, at_b, c, at_c = (
            jnp.where(same_side, b, a),
            jnp.where(same_side, at_b, at_a),
            jnp.where(same_side, a, b),
            jnp.where(same_side, at_a, at_b),
        )
        a, at_a = x, at_x
        # A point that hits the root exactly closes the bracket.
        b = jnp.where(at_a == 0, a, b)
        xi = (a - b) / jnp.where(c == b, 1.0, c - b)
        phi = (at_a - at_b) / jnp.where(at_c == at_b, 1.0, at_c - at_b)
        trusted = (phi**2 < xi) & ((1 - phi) ** 2 < 1 - xi) & (at_a != at_b)
        trusted &= (at_c != at_a) & (at_c != at_b)

        def over(number, by):
            return number / jnp.where(by == 0, 1.0, by)

        far = over(c - a, b - a) * over(at_a, at_c - at_a) * over(at_b, at_c - at_b)
        interpolated = over(at_a, at_b - at_a) * over(at_c, at_b - at_c) + far
        width = jnp.abs(b - a)
        least = over(0.5 * resolution * jnp.maximum(jnp.abs(a), jnp.abs(b)), width)
        share = jnp.where(trusted, jnp.clip(interpolated, least, 1 - least), 0.5)
        return a, b, c, at_a, at_b, at_c, jnp.clip(share, 0.0, 1.0), count + 1

    at_low, at_high = function(low), function(high)
    share = jnp.full_like(low, 0.5)
    start = (high, low, low, at_high, at_low, at_low, share, jnp.zeros((), jnp.int32))
    a, b, _, at_a, at_b, *_ = jax.lax.while_loop(unfinished, narrow, start)
    return jnp.where(jnp.abs(at_a) < jnp.abs(at_b), a, b)
