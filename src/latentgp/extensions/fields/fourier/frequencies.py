"""Equispaced frequencies: functions of places, their sums over rows and products with them.

The functions are cas(w_j'(x - c)) = cos + sin, j in {-m, .., m}^D, which with symmetric prior
variances s_j have the covariance sum_j s_j cos(w_j'(x - z)), and real weights (Hartley 1942).
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Complex, Float, Int

from latentgp.errors import InputError
from latentgp.extensions.inter_domain.hilbert import has_density, unit_density
from latentgp.kernels import Kernel
from latentgp.kernels.stationary import RationalQuadratic
from latentgp.kernels.terms import terms_of
from latentgp.modules import stored
from latentgp.typing import Array, Inputs, Scalar

MOST_DIMENSIONS = 3
_PRECISION = 1e-12  # relative, of non-uniform transforms
_DISTANCES = 1.02 ** np.arange(212)  # in length-scales, at which a correlation may have fallen
_KINDS = "RBF, Matern kernels of all columns, up to 3, and sums of these"


@stored
class FrequencyGrid(eqx.Module):
    """Frequencies on a grid, for places in a box.

    Functions have a period in each column. It is longer than the box, so that the images of a place
    are far from all others.
    """

    lower: Float[Array, "D"]  # corners of the box
    upper: Float[Array, "D"]
    spacing: Float[Array, "D"]  # of angular frequencies: 2 pi over the period
    most: tuple[int, ...] = eqx.field(static=True)  # m of each column

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of frequencies of each column."""
        return tuple(2 * m + 1 for m in self.most)

    @property
    def number(self) -> int:
        """Number of functions M."""
        return math.prod(self.shape)

    @property
    def steps(self) -> Int[np.ndarray, "M D"]:
        """Whole-number frequencies j of all functions."""
        each = np.meshgrid(*(np.arange(-m, m + 1) for m in self.most), indexing="ij")
        return np.stack([one.ravel() for one in each], axis=1)

    def squares(self, kernel: Any) -> Float[Array, "M"]:
        """Squared angular frequencies in inverse length-scales."""
        scaled = self.spacing * jnp.broadcast_to(kernel.lengthscale, self.spacing.shape)
        return jnp.sum((self.steps * scaled) ** 2, axis=1)

    def doubled(self) -> FrequencyGrid:
        """The grid of sums and differences of two of its frequencies."""
        return FrequencyGrid(self.lower, self.upper, self.spacing, tuple(2 * m for m in self.most))

    def sums(self, X: Inputs, columns: Float[Array, "N S"]) -> Float[Array, "M S"]:
        """Sums over rows of every function times each column, by one transform for two of them."""
        nufft1 = transforms().nufft1
        values = in_pairs(columns.T)
        found = nufft1(self.shape, values, *self._angles(X), eps=_PRECISION, iflag=1)
        found = 0.5 * ((1 - 1j) * found + (1 + 1j) * turned(found))
        return apart(found, columns.shape[1]).reshape(columns.shape[1], -1).T

    def combined(self, X: Inputs, weights: Float[Array, "M S"]) -> Float[Array, "N S"]:
        """Values at rows of sums of the functions, likewise."""
        nufft2 = transforms().nufft2
        own = in_pairs(weights.T.reshape(-1, *self.shape))
        own = 0.5 * ((1 - 1j) * own + (1 + 1j) * turned(own))
        found = nufft2(own, *self._angles(X), eps=_PRECISION, iflag=1)
        return apart(found, weights.shape[1]).T

    def functions(self, X: Inputs) -> Float[Array, "N M"]:
        """The functions at a few rows."""
        phases = jnp.stack(self._angles(X), axis=1) @ self.steps.T
        return jnp.cos(phases) + jnp.sin(phases)

    def _angles(self, X: Inputs) -> tuple[Array, ...]:
        centre = 0.5 * (jnp.asarray(self.lower) + self.upper)
        angles = (X - centre) * self.spacing
        return tuple((angles - 2 * jnp.pi * jnp.round(angles / (2 * jnp.pi))).T)

    def check_places(self, X: Inputs) -> None:
        """Raise InputError where a place is outside of the box."""
        X, lower, upper = (np.asarray(a) for a in (X, self.lower, self.upper))
        slack = 1e-9 * (upper - lower)
        outside = np.any((lower - slack > X) | (upper + slack < X), axis=1)
        if outside.any():
            row = int(np.argmax(outside))
            raise InputError(
                f"Row {row}, at {np.round(X[row], 6).tolist()}, is outside of the box from "
                f"{np.round(lower, 6).tolist()} to {np.round(upper, 6).tolist()} for which the "
                "frequencies were made; fit with EquispacedFourier(margin=...), the share of the "
                "range to be added on each side."
            )


def transforms() -> Any:
    """The non-uniform fast Fourier transforms of jax-finufft; InputError where it is not installed.

    Barnett, Magland & af Klinteberg (2019).
    """
    try:
        import jax_finufft
    except ImportError as error:
        raise InputError(
            "EquispacedFourier needs jax-finufft, which has wheels for Linux and macOS; install it "
            "by `pip install jax-finufft`, or use Inducing(features=HilbertSpace())."
        ) from error
    return jax_finufft


def prior_variances(kernel: Kernel, grid: FrequencyGrid) -> Float[Array, "M"]:
    """Prior variances of the weights: the spectral density times the volume of a cell.

    Greengard, Rachh & Barnett (2025), eq. 10. Their sum is the prior variance but for what the
    frequencies leave open.
    """
    cell = jnp.prod(grid.spacing) / (2 * jnp.pi) ** len(grid.most)
    found = jnp.zeros(grid.number)
    for scale, own in stationary_terms(kernel, len(grid.most)):
        lengths = jnp.broadcast_to(own.lengthscale, grid.spacing.shape)
        density = unit_density(own, grid.squares(own), len(grid.most))
        found = found + scale * own.variance * jnp.prod(lengths) * density * cell
    return found


def prior_variance(kernel: Kernel, grid: FrequencyGrid) -> Scalar:
    """Prior variance of f, the same at every place."""
    return kernel.diagonal(jnp.zeros((1, len(grid.most))))[0]


def variance_left_open(kernel: Kernel, grid: FrequencyGrid, variances: Float[Array, "M"]) -> Scalar:
    """Prior variance of f that the functions, whose weights have these, leave open."""
    return jnp.maximum(prior_variance(kernel, grid) - jnp.sum(variances), 0.0)


def stationary_terms(kernel: Any, dimension: int) -> list[tuple[Scalar, Any]]:
    """Scale and stationary kernel of each term of a sum; InputError of any other kernel."""
    every, found = tuple(range(dimension)), []
    for term in terms_of(kernel, every):
        one = term.parts[0] if len(term.parts) == 1 else None
        # a correlation that falls as a power is that of images too
        falls = one is not None and not isinstance(one.kernel, RationalQuadratic)
        if one is None or one.columns != every or not (falls and has_density(one.kernel)):
            raise InputError(
                f"EquispacedFourier takes {_KINDS}, but got {kernel!r}; use Neighbours(20) or "
                "Inducing(features=HilbertSpace())."
            )
        found.append((term.scale, one.kernel))
    if dimension > MOST_DIMENSIONS:
        raise InputError(
            f"EquispacedFourier takes {_KINDS}, but got {dimension} columns; use Neighbours(20)."
        )
    return found


def grid_for(
    kernel: Kernel,
    lower: Float[np.ndarray, "D"],
    upper: Float[np.ndarray, "D"],
    tolerance: float,
    left: float,
    most: int,
) -> FrequencyGrid:
    """The grid by which a kernel is represented in a box, with the fewest functions.

    Images of places, a period apart, have a covariance of at most the tolerance, in prior
    variances, and frequencies leave at most a share of it open; of more than the most functions
    the highest frequencies are left out.
    """
    ranges, dimension = upper - lower, len(lower)
    kernels = stationary_terms(kernel, dimension)
    total = sum(float(scale * own.variance) for scale, own in kernels)
    periods, highest = np.zeros(dimension), np.zeros(dimension)
    for scale, own in kernels:
        share = float(scale * own.variance) / total
        lengths = np.broadcast_to(np.asarray(own.lengthscale), dimension)
        periods = np.maximum(
            periods, ranges + lengths * _reach(own, tolerance / (share * dimension))
        )
        highest = np.maximum(highest, _frequency(own, left / share, dimension) / lengths)
    wanted = np.maximum(np.ceil(highest * periods / (2 * np.pi)), 1.0)
    if np.prod(2 * wanted + 1) > most:
        shrunk = wanted * (most / np.prod(2 * wanted + 1)) ** (1 / dimension)
        wanted = np.maximum(np.floor(shrunk), 1.0)
    return FrequencyGrid(lower, upper, 2 * np.pi / periods, tuple(int(m) for m in wanted))


def kernel_error(kernel: Kernel, grid: FrequencyGrid) -> tuple[float, float]:
    """Bounds of |k - approximation| between places in the box, in prior variances.

    The first is of what images add, sum_n k(x + n period), |n| <= 2, where these are nearest; the
    second of what the frequencies leave open (Greengard, Rachh & Barnett 2025, theorem 1).
    """
    dimension = len(grid.most)
    ranges, periods = np.asarray(grid.upper) - grid.lower, 2 * np.pi / np.asarray(grid.spacing)
    images = np.array([n for n in itertools.product(range(-2, 3), repeat=dimension) if any(n)])
    nearest = np.maximum(np.abs(images) * periods - ranges, 0.0) * (images != 0)
    total = float(prior_variance(kernel, grid))
    added = float(np.sum(kernel.gram(jnp.zeros((1, dimension)), jnp.asarray(nearest)))) / total
    left = 1 - float(jnp.sum(prior_variances(kernel, grid))) / total
    return added, max(left + added, 0.0)


def _reach(kernel: Any, tolerance: float) -> float:
    """Distance in length-scales at which the correlation falls to the tolerance."""
    correlation = np.asarray(kernel.correlation(jnp.asarray(_DISTANCES**2)))
    return float(_DISTANCES[np.argmax(np.append(correlation[:-1] <= tolerance, True))])


def _frequency(kernel: Any, tolerance: float, dimension: int) -> float:
    """Angular frequency, in inverse length-scales, above which the tolerance of the variance is."""
    w = np.geomspace(1e-3, 1e5, 4_000)
    density = np.asarray(unit_density(kernel, jnp.asarray(w**2), dimension)) * w**dimension
    above = np.cumsum(density[::-1])[::-1]  # by log w
    return float(w[np.argmax(above <= tolerance * above[0])])


def turned(values: Complex[Array, "S *shape"]) -> Complex[Array, "S *shape"]:
    """Those of the opposite frequencies."""
    return jnp.flip(values, axis=tuple(range(1, values.ndim)))


def in_pairs(values: Float[Array, "S *shape"]) -> Complex[Array, "half *shape"]:
    """Two real arrays as a complex one, as whatever is linear treats both at once."""
    if len(values) % 2:
        values = jnp.concatenate([values, jnp.zeros_like(values[:1])])
    return values[::2] + 1j * values[1::2]


def apart(values: Complex[Array, "half *shape"], number: int) -> Float[Array, "S *shape"]:
    """So many real arrays of complex ones that hold two each."""
    both = jnp.stack([values.real, values.imag], axis=1)
    return both.reshape(-1, *values.shape[1:])[:number]
