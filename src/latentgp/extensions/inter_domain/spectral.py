"""Spectral densities of stationary kernels, in closed form or by one quadrature."""

from __future__ import annotations

from functools import singledispatch

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Float

from latentgp.extensions.inter_domain.base import refuse_kernel
from latentgp.kernels.base import Kernel
from latentgp.kernels.stationary import (
    RBF,
    Matern,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    Stationary,
)
from latentgp.typing import Array

_NODES, _REACH = 200, 12.0  # of the logarithm of a mixing variable


@singledispatch
def unit_density(
    kernel: Kernel, squared_radius: Float[Array, "*S"], dimension: int
) -> Float[Array, "*S"]:
    """Fourier transform of the correlation in `dimension` coordinates in length-scales.

    With angular frequencies w: correlation(|t|^2) is the integral of unit_density(|w|^2) e^(iw't)
    over (2 pi)^dimension.

    Args:
        kernel: a stationary one.
        squared_radius: |w|^2.
        dimension: number of coordinates.

    Raises:
        InputError: the density of the kernel is not known.
    """
    supported = "RBF, a Matern kernel or RationalQuadratic"
    refuse_kernel("A spectral density", supported, type(kernel).__name__)


@unit_density.register
def _(kernel: RBF, squared_radius: Float[Array, "*S"], dimension: int) -> Float[Array, "*S"]:
    return (2 * np.pi) ** (dimension / 2) * jnp.exp(-0.5 * squared_radius)


@unit_density.register(Matern)
@unit_density.register(Matern12)
@unit_density.register(Matern32)
@unit_density.register(Matern52)
def _(
    kernel: Matern | Matern12 | Matern32 | Matern52,
    squared_radius: Float[Array, "*S"],
    dimension: int,
) -> Float[Array, "*S"]:
    """Rasmussen & Williams (2006), eq. 4.15, with length-scale one."""
    order, half = kernel.order, dimension / 2
    log_constant = (
        dimension * np.log(2.0)
        + half * np.log(np.pi)
        + gammaln(order + half)
        - gammaln(order)
        + order * jnp.log(2.0 * order)
    )
    return jnp.exp(log_constant - (order + half) * jnp.log(2 * order + squared_radius))


@unit_density.register
def _(
    kernel: RationalQuadratic, squared_radius: Float[Array, "*S"], dimension: int
) -> Float[Array, "*S"]:
    """A mixture of the RBF's over precisions t ~ Gamma(a, a), by the trapezoidal rule in log t."""
    a = kernel.mixing
    log_t = jnp.linspace(-1.0, 1.0, _NODES) * (_REACH + _REACH / jnp.minimum(a, 1.0) ** 0.5)
    t = jnp.exp(log_t)
    step = log_t[1] - log_t[0]
    law = jnp.exp(a * jnp.log(a) - gammaln(a) + a * log_t - a * t) * step
    spread = (2 * np.pi / t) ** (dimension / 2) * law
    return jnp.sum(spread * jnp.exp(-0.5 * squared_radius[..., None] / t), axis=-1)


def has_density(kernel: Kernel) -> bool:
    """Whether `unit_density` knows the density of a kernel."""
    found = unit_density.dispatch(type(kernel))
    return isinstance(kernel, Stationary) and found is not unit_density.dispatch(object)
