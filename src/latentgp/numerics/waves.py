"""Cosines and sines of the same angles."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.typing import Array

# Quarters of a turn, cut into parts whose products with numbers of turns are exact, and polynomials
# in the square of an angle, that of the highest power first (Moshier 1989, Cephes).
_QUARTER = 1.5707962512969970703125, 7.54978941586159635336e-8, 5.39030285815811905290e-15
_SINE = (
    *(1.58962301576546568060e-10, -2.50507477628578072866e-8, 2.75573136213857245213e-6),
    *(-1.98412698295895385996e-4, 8.33333333332211858878e-3, -1.66666666666666307295e-1),
)
_COSINE = (
    *(-1.13585365213876817300e-11, 2.08757008419747316778e-9, -2.75573141792967388112e-7),
    *(2.48015872888517045348e-5, -1.38888888888730564116e-3, 4.16666666666665929218e-2),
)


@jax.custom_jvp
def cosine_and_sine(
    angle: Float[Array, "*S"],
) -> tuple[Float[Array, "*S"], Float[Array, "*S"]]:
    """Cosine and sine of each angle, in radians.

    In double precision by polynomials on a quarter of a turn, off by 2e-16, or by the rounding of
    the angle itself where that is more: XLA's own call the C library for one number after another
    on a CPU, and are made again in every fusion that reads them.

    Example:
        >>> cosine, sine = cosine_and_sine(jnp.asarray(np.pi / 3))
        >>> bool(abs(cosine - 0.5) < 1e-7), bool(abs(sine - np.sqrt(0.75)) < 1e-7)
        (True, True)
    """
    if angle.dtype != jnp.float64:
        return jnp.cos(angle), jnp.sin(angle)
    quarters = jnp.floor(angle * (2 / np.pi) + 0.5)
    rest = reduce(lambda rest, part: rest - quarters * part, _QUARTER, angle)
    rest = jnp.clip(rest, -1.0, 1.0)  # beyond 1e16, where angles are not known to a turn
    square = rest**2
    cosine = 1 - 0.5 * square + square**2 * _polynomial(_COSINE, square)
    sine = rest + rest * square * _polynomial(_SINE, square)
    quadrant = quarters - 4 * jnp.floor(0.25 * quarters)
    odd = (quadrant == 1) | (quadrant == 3)
    cosine, sine = jnp.where(odd, sine, cosine), jnp.where(odd, cosine, sine)
    turned = (quadrant == 1) | (quadrant == 2)
    return jnp.where(turned, -cosine, cosine), jnp.where(quadrant >= 2, -sine, sine)


@cosine_and_sine.defjvp
def _(
    primals: tuple[Array], tangents: tuple[Array]
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    cosine, sine = cosine_and_sine(*primals)
    (slope,) = tangents
    return (cosine, sine), (-sine * slope, cosine * slope)


def _polynomial(coefficients: Sequence[Any], x: Float[Array, "*S"]) -> Float[Array, "*S"]:
    return jnp.asarray(reduce(lambda value, own: value * x + own, coefficients))
