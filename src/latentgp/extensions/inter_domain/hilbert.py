"""Hilbert-space approximation by Laplacian eigenfunctions (Solin & Särkkä 2020)."""

from __future__ import annotations

from functools import singledispatch
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Float

from latentgp.errors import check_ranges, check_whole
from latentgp.extensions.inter_domain.base import (
    MOST_FUNCTIONS,
    Demands,
    FixedFeatures,
    as_needed,
    range_of,
    refuse_kernel,
    refuse_part,
)
from latentgp.extensions.inter_domain.functions import Basis, times_columns
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
from latentgp.kernels.terms import Part
from latentgp.modules import stored
from latentgp.typing import Array, Inputs

# Boxes that are tried: half-ranges and so many length-scales; the most that a search starts with.
_MARGINS, _LEAST_BOX, _MOST_BOX = np.geomspace(0.25, 8.0, 11), 1.05, 4.0
# c over the length-scale, in half-ranges (Riutort-Mayol et al. 2023), of RBF and of rougher ones.
_FREQUENCIES, _ROUGH_FREQUENCIES = 1.75, 3.4
_SHORTER, _SHORTEST = 0.5, 0.02  # than the length-scale; in half-ranges
_MOST_DIMENSIONS = 4
_NODES, _REACH = 200, 12.0  # of the logarithm of a mixing variable


class HilbertSpace(FixedFeatures):
    """Eigenfunctions of the Laplacian on a box, for stationary kernels of up to four columns.

    The prior is that of sum_j sqrt(S(w_j)) phi_j(x) v_j, v ~ N(0, I), with the kernel's spectral
    density S. Its covariance comes near the kernel's inside the box, and falls to zero at its
    sides. What it lacks of the prior variance counts as in any sparse bound, which the evidence is
    up to that approximation. Sums of kernels have functions of each, products those of all columns.

    Args:
        number: of functions a column; None takes 1.75 c / l (3.4 but for RBF), l half the
            length-scale and c the widest box, and where a search has ended as many more as the
            bound needs, at most 1,000 functions of a term. A search starts with an l of at most a
            fifth of half the range.
        box: half the box's width in half the column's range, at least 1; None is what leaves least
            of f open, up to eight length-scales beside the rows. It follows the length-scale that
            is learned; without a number, from a box of at most 4.

    Raises:
        InputError: no function; a box that is smaller than the range.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> X = np.linspace(0, 6, 40)
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(noise_variance=0.1))
        >>> method = lgp.CollapsedVI(lgp.Inducing(features=lgp.inter_domain.HilbertSpace()))
        >>> result = lgp.fit(model, lgp.Data(X, np.sin(X)), key=jax.random.key(0), method=method)
        >>> bool(abs(result.posterior.mean_f([[3.0]])[0] - np.sin(3.0)) < 0.1)
        True
    """

    evidence_is_bound: ClassVar[bool] = False
    words = "Laplacian eigenfunctions"
    number: int | None = eqx.field(static=True, default=None)
    box: float | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_whole(self, number=1)
        check_ranges(self, box="at least 1")

    def basis(self, part: Part, columns: Inputs, demands: Demands) -> Basis:
        dimension = columns.shape[1]
        if not has_density(part.kernel) or dimension * demands.share > _MOST_DIMENSIONS:
            kinds = "RBF, Matern kernels and RationalQuadratic of up to 4 columns"
            refuse_part(type(self).__name__, kinds, part)
        ranges = [range_of(column) for column in columns.T]
        centres = tuple(0.5 * (upper + lower) for lower, upper in ranges)
        halves = np.array([0.5 * (upper - lower) for lower, upper in ranges])
        kernel: Any = part.kernel
        relative = np.broadcast_to(np.asarray(kernel.lengthscale), halves.shape) / halves
        boxes = [np.maximum(1 + margin * relative, _LEAST_BOX) for margin in _MARGINS]
        if self.box is not None:
            boxes = [np.full_like(halves, self.box)]
        elif self.number is None and np.isfinite(demands.shortest):  # so that the more the better
            boxes = [np.minimum(boxes[-1], _MOST_BOX)]
        finest = np.maximum(np.minimum(_SHORTER * relative, 2 * demands.shortest), _SHORTEST)
        most = int(MOST_FUNCTIONS ** (1 / (dimension * demands.share)))
        factor = _FREQUENCIES if type(kernel) is RBF else _ROUGH_FREQUENCIES

        def of_times(times: int) -> list[Eigenfunctions]:
            counts = np.minimum(np.ceil(times * factor * boxes[-1] / finest), most).astype(int)
            counts = counts if self.number is None else np.full(dimension, self.number)
            own = tuple(counts.tolist())
            return [Eigenfunctions(centres, tuple((b * halves).tolist()), own) for b in boxes]

        return as_needed(of_times, part, columns, demands)


@stored
class Eigenfunctions(Basis):
    """Products of sines that are zero at the sides of a box, and of norm one in it."""

    is_white = True
    centres: tuple[float, ...] = eqx.field(static=True)
    halves: tuple[float, ...] = eqx.field(static=True)
    counts: tuple[int, ...] = eqx.field(static=True)

    @property
    def number(self) -> int:
        return int(np.prod(self.counts, dtype=int))

    def fixed(self, x: Inputs) -> Float[Array, "M N"]:
        each = []
        for column, (centre, half, count) in zip(x.T, self._columns, strict=True):
            place = jnp.clip((column - centre) / half, -1.0, 1.0)
            angles = (0.5 * np.pi * np.arange(1, count + 1))[:, None] * (place + 1)
            each.append(jnp.sin(angles) / np.sqrt(half))
        return times_columns(each, len(x))

    def scales(self, kernel: Kernel) -> Float[Array, "M"]:
        own: Any = kernel
        lengthscales = jnp.broadcast_to(own.lengthscale, (len(self.counts),))
        squares = jnp.zeros(1)
        for length, (_, half, count) in zip(lengthscales, self._columns, strict=True):
            w = 0.5 * np.pi * np.arange(1, count + 1) / half * length
            squares = (squares[:, None] + w**2).reshape(-1)
        density = unit_density(kernel, squares, len(self.counts))
        return jnp.sqrt(own.variance * jnp.prod(lengthscales) * density)

    @property
    def _columns(self) -> list[tuple[float, float, int]]:
        return list(zip(self.centres, self.halves, self.counts, strict=True))


@singledispatch
def unit_density(
    kernel: Kernel, squared_radius: Float[Array, "*S"], dimension: int
) -> Float[Array, "*S"]:
    """Fourier transform of the correlation in `dimension` coordinates in length-scales.

    With angular frequencies w: correlation(|t|^2) is the integral of unit_density(|w|^2) e^(iw't)
    over (2 pi)^dimension. InputError where the density of the kernel is not known.
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
    log_constant = dimension * np.log(2.0) + half * np.log(np.pi) + gammaln(order + half)
    log_constant = log_constant - gammaln(order) + order * jnp.log(2.0 * order)
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
