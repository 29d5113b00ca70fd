"""Half-integer Matérn kernels of one column as Markov processes, and their RKHS on an interval.

f of order p + 1/2 solves (d/dx + s)^(p+1) f = white noise of density q, s = sqrt(2 p + 1) / l, from
a state (f, f', ..., f^(p)) at the left end a of law N(0, P). So the inner product of its RKHS on
[a, b] is, with L the operator on the left,

    <g, h> = G(a)' P^-1 H(a) + (1 / q) int_a^b (L g)(L h),

and that of f with h, as a random variable, has covariance <g, h> with that of g, and g(x) with f(x)
(Hensman, Durrande & Solin 2018, section 3). Outside [a, b] covariances with f follow from its state
at the nearer end.
"""

from __future__ import annotations

from math import comb
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.extensions.inter_domain.base import refuse_part
from latentgp.kernels import Kernel, Matern12, Matern32, Matern52
from latentgp.kernels.terms import Part
from latentgp.typing import Array, PerRow, Scalar

_SMOOTHNESS = {Matern12: 0, Matern32: 1, Matern52: 2}
_SUPPORTED = "Matern12, Matern32 and Matern52 of single columns"


def smoothness_of(part: Part, kind: str) -> int:
    """Number of derivatives of the functions, p; InputError unless the kernel has one."""
    if type(part.kernel) not in _SMOOTHNESS or len(part.columns) != 1:
        refuse_part(kind, _SUPPORTED, part)
    return _SMOOTHNESS[type(part.kernel)]


def rate_of(kernel: Any, p: int) -> Scalar:
    """The s of the operator (d/dx + s)^(p+1)."""
    return np.sqrt(2 * p + 1) / jnp.reshape(kernel.lengthscale, ())


def noise_density(kernel: Any, p: int) -> Scalar:
    """The q of the white noise."""
    return kernel.variance * (2.0, 4.0, 16 / 3)[p] * rate_of(kernel, p) ** (2 * p + 1)


def state_covariance(kernel: Any, p: int) -> Float[Array, "states states"]:
    """The P of the state (f, ..., f^(p)): (-1)^j k^(i+j)(0)."""
    s2, variance = rate_of(kernel, p) ** 2, kernel.variance
    unit = {
        0: [[1.0]],
        1: [[1.0, 0.0], [0.0, s2]],
        2: [[1.0, 0.0, -s2 / 3], [0.0, s2 / 3, 0.0], [-s2 / 3, 0.0, s2**2]],
    }[p]
    return variance * jnp.array(unit)


def operator_weights(kernel: Any, p: int) -> Float[Array, "orders"]:
    """Weights of the derivatives of order 0 to p + 1 in L."""
    rate = rate_of(kernel, p)
    return jnp.stack([comb(p + 1, i) * rate ** (p + 1 - i) for i in range(p + 2)])


def state_decay(kernel: Any, p: int, distance: PerRow) -> Float[Array, "states N"]:
    """Weights of f, ..., f^(p) at an end in the mean of f at a distance beyond it."""
    rate = rate_of(kernel, p)
    t = rate * distance
    unit = {
        0: [jnp.ones_like(t)],
        1: [1 + t, distance],
        2: [1 + t + t**2 / 2, distance * (1 + t), distance**2 / 2],
    }[p]
    return jnp.stack(unit) * jnp.exp(-t)


def beyond(
    inside: Float[Array, "M N"],
    ends: tuple[Float[Array, "M states"], Float[Array, "M states"]],
    kernel: Kernel,
    x: PerRow,
    domain: tuple[float, float],
) -> Float[Array, "M N"]:
    """Covariances with f anywhere, from the functions inside at the nearest place in the domain.

    The kernel is of order p + 1/2; `ends` are derivatives of order 0 to p at both ends.
    """
    p = ends[0].shape[1] - 1
    below, above = jnp.maximum(domain[0] - x, 0.0), jnp.maximum(x - domain[1], 0.0)
    left, right = (state_decay(kernel, p, distance) for distance in (below, above))
    values = inside * (left[0] * right[0])
    if p:
        signs = (-1.0) ** np.arange(1, p + 1)
        values = values + (ends[0][:, 1:] * signs) @ left[1:] + ends[1][:, 1:] @ right[1:]
    return values
