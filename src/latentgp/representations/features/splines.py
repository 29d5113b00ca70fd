"""B-spline inducing features (Cunningham, de Souza, Ghahramani & van der Wilk 2023, ASVGP)."""

from __future__ import annotations

from functools import cache

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentgp.errors import InputError
from latentgp.kernels import Kernel
from latentgp.kernels.terms import Part
from latentgp.representations.features.base import (
    Basis,
    FixedFeatures,
    check_number,
    range_of,
)
from latentgp.representations.features.matern import (
    beyond,
    noise_density,
    operator_weights,
    smoothness_of,
    state_covariance,
)
from latentgp.representations.features.operators import Banded
from latentgp.typing import Array

_SPARSEST = 0.01  # density of values, of an even one, that knots are made for at least


class BSplines(FixedFeatures):
    """Projections on B-splines, for Matérn kernels of single columns.

    Inducing variables are inner products of the latent function with B-splines over the column's
    range, in the RKHS of the kernel there: K_uu is banded, and a row touches degree + 1 functions a
    column, so that sums over rows cost O(N degree^2). Sums of kernels have blocks, products
    Kronecker products. Knots are closer where there are more values, as far as steps of an even
    grid show them, so that less is left open there.

    Args:
        number: of splines a column.
        degree: of the splines; None is 2 p + 1 for functions that are p times differentiable, which
            leaves least open: 1, 3 and 5 for Matern12, Matern32 and Matern52.

    Raises:
        InputError: a number or degree that is too small.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> X = np.linspace(0, 6, 40)
        >>> model = lgp.LatentGP(lgp.Matern32(), lgp.Gaussian(noise_variance=0.1))
        >>> method = lgp.CollapsedVI(lgp.Inducing(features=lgp.BSplines(20)))
        >>> result = lgp.fit(model, lgp.Data(X, np.sin(X)), key=jax.random.key(0), method=method)
        >>> bool(abs(result.posterior.mean_f([[3.0]])[0] - np.sin(3.0)) < 0.1)
        True
    """

    words = "B-splines"
    number: int = eqx.field(static=True, default=100)
    degree: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_number(self, 2)
        check_number(self, 1, "degree")

    def basis(
        self,
        part: Part,
        columns: Float[np.ndarray, "N C"],
        share: int,
        weights: Float[np.ndarray, "N"] | None,
    ) -> "Splines":
        p = smoothness_of(part, type(self).__name__)
        degree = 2 * p + 1 if self.degree is None else self.degree
        if degree <= p or self.number <= degree:
            raise InputError(
                f"{type(part.kernel).__name__} needs BSplines of a degree from {p + 1} and of a "
                f"greater number than the degree, got degree={degree} and number={self.number}."
            )
        lower, upper = range_of(columns[:, 0])
        about = columns[:, 0] - lower
        knots = _knots(about, weights, upper - lower, self.number - degree, p)
        return Splines(lower, knots, degree, p)


class Splines(Basis):
    """B-splines of a degree, those that are not zero in an interval.

    Attributes:
        lower: end of the interval.
        knots: ends of the cells from there, ascending from 0; beyond the interval they go on in its
            last widths.
        degree: of the splines.
        smoothness: derivatives that functions of the kernel have.
    """

    lower: float = eqx.field(static=True)
    knots: tuple[float, ...] = eqx.field(static=True)
    degree: int = eqx.field(static=True)
    smoothness: int = eqx.field(static=True)

    @property
    def number(self) -> int:
        return self.cells + self.degree

    @property
    def bandwidth(self) -> int:
        return self.degree

    @property
    def domain(self) -> tuple[float, float]:
        return self.lower, self.lower + self.knots[-1]

    @property
    def cells(self) -> int:
        """Number of intervals between knots."""
        return len(self.knots) - 1

    def local(self, x: Float[Array, "N C"]) -> tuple[Int[Array, "N W"], Float[Array, "N W"]]:
        knots = jnp.asarray(self.knots)
        about = x[:, 0] - self.lower
        cell = jnp.searchsorted(knots[1:-1], about, side="right")
        place = (about - knots[cell]) / jnp.diff(knots)[cell]
        powers = place[:, None] ** jnp.arange(self.degree + 1)
        values = jnp.einsum("nwk,nk->nw", jnp.asarray(_pieces(self))[cell], powers)
        return cell[:, None] + jnp.arange(self.degree + 1), values

    def fixed(self, x: Float[Array, "N C"]) -> Float[Array, "M N"]:
        numbers, values = self.local(x)
        found = jnp.zeros((self.number, len(x)))
        for touched in range(self.degree + 1):
            here = jnp.arange(self.number)[:, None] == numbers[:, touched]
            found = jnp.where(here, values[:, touched], found)
        return found

    def values(self, kernel: Kernel, x: Float[Array, "N C"]) -> Float[Array, "M N"]:
        inside = self.fixed(jnp.clip(x, *self.domain))
        return beyond(inside, _ends(self), kernel, x[:, 0], self.domain)

    def operator(self, kernel: Kernel) -> Banded:
        p = self.smoothness
        weights = operator_weights(kernel, p)
        outer = jnp.outer(weights, weights) / noise_density(kernel, p)
        bands = jnp.einsum("ij,ijwm->wm", outer, _bands(self))
        left = _ends(self)[0][: self.degree + 1]  # further splines are zero there
        precision = jnp.linalg.inv(state_covariance(kernel, p))
        whole = left @ precision @ left.T
        first = [
            jnp.pad(jnp.diagonal(whole, -shift), (0, self.number - len(whole) + shift))
            for shift in range(self.degree + 1)
        ]
        return Banded(bands + jnp.stack(first))


def _knots(
    values: Float[np.ndarray, "N"],
    weights: Float[np.ndarray, "N"] | None,
    width: float,
    cells: int,
    p: int,
) -> tuple[float, ...]:
    """Ends of cells from 0 to `width` that leave least open at values there.

    A cell of width h leaves h^(2p + 1) of the variance open at each of its values, so that the best
    density of knots is the power 1 / (2p + 2) of that of the values (de Boor 1978, XII), which is
    seen in as many even steps.
    """
    bins = np.linspace(0.0, width, cells + 1)
    counts = np.histogram(values, bins, weights=weights)[0]
    share = counts * cells / max(counts.sum(), np.finfo(float).tiny)
    density = np.maximum(share, _SPARSEST) ** (1 / (2 * p + 2))
    mass = np.append(0.0, np.cumsum(density / density.sum()))
    knots = np.interp(np.linspace(0.0, 1.0, cells + 1), mass, bins)
    return tuple(knots.tolist())


@cache
def _pieces(basis: Splines) -> Float[np.ndarray, "C W K"]:
    """Coefficients of the splines that are not zero in a cell, in powers of the place in it.

    By the recursion of Cox and de Boor; row r is that of the r-th such spline, in their order.
    """
    degree, knots = basis.degree, np.asarray(basis.knots)
    widths = np.diff(knots)
    further = np.arange(1, degree + 1)
    knots = np.concatenate(
        [knots[0] - widths[0] * further[::-1], knots, knots[-1] + widths[-1] * further]
    )
    cell = np.arange(basis.cells) + degree
    found = np.zeros((basis.cells, degree + 1, degree + 1))
    found[:, 0, 0] = 1.0
    for d in range(1, degree + 1):
        lower, found = found, np.zeros_like(found)
        for r in range(d + 1):
            spline = cell - d + r
            if r > 0:  # the one before, rising
                reach = knots[spline + d] - knots[spline]
                start = (knots[cell] - knots[spline]) / reach
                found[:, r] += start[:, None] * lower[:, r - 1]
                found[:, r, 1:] += (widths / reach)[:, None] * lower[:, r - 1, :-1]
            if r < d:  # the one after, falling
                reach = knots[spline + d + 1] - knots[spline + 1]
                start = (knots[spline + d + 1] - knots[cell]) / reach
                found[:, r] += start[:, None] * lower[:, r]
                found[:, r, 1:] -= (widths / reach)[:, None] * lower[:, r, :-1]
    return found


def _derivatives(basis: Splines, order: int) -> Float[np.ndarray, "C W K"]:
    """Coefficients of a derivative likewise."""
    pieces, degree = _pieces(basis), basis.degree
    for _ in range(order):
        pieces = pieces[..., 1:] * np.arange(1, pieces.shape[-1])
    pieces = pieces / np.diff(basis.knots)[:, None, None] ** order
    return np.pad(pieces, ((0, 0), (0, 0), (0, degree + 1 - pieces.shape[-1])))


@cache
def _bands(basis: Splines) -> Float[np.ndarray, "K K W M"]:
    """Integrals of products of derivatives of order i and j: lower diagonals, made symmetric."""
    orders, degree = basis.smoothness + 2, basis.degree
    nodes, weights = np.polynomial.legendre.leggauss(degree + 1)
    powers = (0.5 * (nodes + 1))[:, None] ** np.arange(degree + 1)
    weights = 0.5 * weights * np.diff(basis.knots)[:, None]
    bands = np.zeros((orders, orders, degree + 1, basis.number))
    each = [np.einsum("cwk,qk->cwq", _derivatives(basis, i), powers) for i in range(orders)]
    for i in range(orders):
        for j in range(orders):
            cell = np.einsum("cwq,cvq,cq->wvc", each[i], each[j], weights)
            cell = 0.5 * (cell + cell.swapaxes(0, 1))
            for shift in range(degree + 1):
                for r in range(degree + 1 - shift):
                    bands[i, j, shift, r : r + basis.cells] += cell[r + shift, r]
    return bands


@cache
def _ends(basis: Splines) -> tuple[Float[np.ndarray, "M R"], Float[np.ndarray, "M R"]]:
    """Derivatives of order 0 to p at both ends."""
    orders, degree = basis.smoothness + 1, basis.degree
    left, right = np.zeros((2, basis.number, orders))
    for order in range(orders):
        pieces = _derivatives(basis, order)
        left[: degree + 1, order] = pieces[0, :, 0]
        right[basis.cells - 1 :, order] = pieces[-1].sum(axis=1)
    return left, right
