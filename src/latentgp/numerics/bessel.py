"""The Matérn correlation of any order, by quadrature of an integral of the Bessel function."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma, gammaln
from jaxtyping import Float

from latentgp.typing import Array, Scalar, Values

_NODES = 96
_UNROLLED = 8  # nodes of a pass over the arrays
_FALL = 36.0  # of the logarithm of the integrand at the ends


@jax.custom_jvp
def matern_correlation(r: Float[Array, "*S"], order: Float[Array, ""]) -> Float[Array, "*S"]:
    """2^(1 - nu) / Gamma(nu) * s^nu K_nu(s) with s = sqrt(2 nu) r, and one at r = 0.

    K_nu(s) is the integral over t > 0 of exp(-s cosh t) cosh(nu t) (Abramowitz & Stegun 1964,
    eq. 9.6.24). The integrand decays double-exponentially, so the trapezoidal rule converges
    geometrically: the relative error against SciPy's `kv` is below 1e-10 for nu in [0.05, 50].
    Derivatives in r and nu come from the same sum; memory stays that of r.
    """
    return _correlation_and_derivatives(r, order)[0]


@matern_correlation.defjvp
def _matern_correlation_jvp(primals, tangents):
    r, order = primals
    value, in_r, in_order = _correlation_and_derivatives(r, order)
    return value, in_r * tangents[0] + in_order * tangents[1]


def _correlation_and_derivatives(r: Values, order: Scalar) -> tuple[Values, Values, Values]:
    order = jnp.asarray(order, r.dtype)
    scale, tiny = jnp.sqrt(2 * order), 1e-14
    s = jnp.maximum(scale * r, tiny)
    # The exponent nu t - s cosh t peaks at sinh t = nu / s with curvature sqrt(s^2 + nu^2);
    # the range ends on both sides where the integrand has fallen by e^-_FALL.
    peak = jnp.arcsinh(order / s)
    curvature = jnp.sqrt(s**2 + order**2)
    log_peak = order * peak - curvature
    start = jnp.maximum(0.0, peak - _FALL / order - 1)
    step = (peak + jnp.arccosh(1 + _FALL / curvature) - start) / (_NODES - 1)

    # exp(t) and exp(-2 nu t) of a node are those of the one before times these.
    up, down, fall = jnp.exp(step), jnp.exp(-step), jnp.exp(-2 * order * step)

    def add_node(index, sums):
        total, total_cosh, total_t, above, below, share = sums
        t = start + index * step
        weight = jnp.where(index == 0, 0.25, 0.5)
        cosh = 0.5 * (above + below)
        # cosh(nu t) = (e^(nu t) + e^(-nu t)) / 2, scaled by the peak to stay finite.
        rising = weight * jnp.exp(order * t - s * cosh - log_peak)
        both = rising * (1 + share)
        total_t = total_t + rising * (1 - share) * t
        return (
            total + both,
            total_cosh + both * cosh,
            total_t,
            above * up,
            below * down,
            share * fall,
        )

    zero = jnp.zeros_like(s)
    first = jnp.exp(start), jnp.exp(-start), jnp.exp(-2 * order * start)
    sums = jax.lax.fori_loop(0, _NODES, add_node, (zero, zero, zero, *first), unroll=_UNROLLED)
    total, total_cosh, total_t, *_ = sums
    constant = (1 - order) * jnp.log(2.0) - gammaln(order)
    value = jnp.exp(constant + order * jnp.log(s) + log_peak) * total * step
    log_in_s = order / s - total_cosh / total
    log_in_order = -jnp.log(2.0) - digamma(order) + jnp.log(s) + total_t / total
    at_zero = scale * r <= tiny
    in_s = value * log_in_s
    in_order = value * log_in_order + in_s * s / (2 * order)
    in_r, in_order = (jnp.where(at_zero, 0.0, slope) for slope in (in_s * scale, in_order))
    return jnp.where(at_zero, 1.0, value), in_r, in_order
