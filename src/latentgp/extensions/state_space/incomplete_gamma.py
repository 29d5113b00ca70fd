"""Lower incomplete gamma functions of whole orders, without cancellation."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.typing import Array

_SMALL, _TERMS = 1.0, 16


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def lower_gammas(x: Float[Array, "*S"], top: int) -> tuple[Float[Array, "*S"], ...]:
    """The integrals of t^(a - 1) exp(-t) over t from 0 to x >= 0, for a = 1, ..., top.

    That of the highest order is a series of positive terms (Abramowitz & Stegun 1964, 6.5.29)
    where x is small, and Gamma(a) less its tail elsewhere; the others follow from it downwards,
    gamma(a, x) = (gamma(a + 1, x) + x^a exp(-x)) / a, a sum of positive numbers.

    Example:
        >>> [round(float(value), 6) for value in lower_gammas(jnp.asarray(1.0), 2)]
        [0.632121, 0.264241]
    """
    decay = jnp.exp(-x)
    small = jnp.minimum(x, _SMALL)
    series = jnp.ones_like(x)
    for k in range(_TERMS, 0, -1):
        series = 1 + series * small * (1 / (top + k))
    power = x**top * decay / top
    tail = jnp.ones_like(x)
    for k in range(top - 1, 0, -1):
        tail = 1 + tail * x * (1 / k)
    value = jnp.where(x < _SMALL, power * series, math.factorial(top - 1) * (1 - decay * tail))
    found = [value]
    for order in range(top - 1, 0, -1):
        found.append((found[-1] + x**order * decay) * (1 / order))
    return tuple(reversed(found))


@lower_gammas.defjvp
def _lower_gammas_jvp(top, primals, tangents):
    (x,), (along,) = primals, tangents
    slopes = [along * jnp.exp(-x) * x**order for order in range(top)]
    return lower_gammas(x, top), tuple(slopes)
