"""B-spline inducing features (Cunningham, de Souza, Ghahramani & van der Wilk 2023, ASVGP)."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from latentgp.errors import InputError, check_whole
from latentgp.extensions.inter_domain.base import Demands, FixedFeatures, range_of
from latentgp.extensions.inter_domain.functions import Basis
from latentgp.extensions.inter_domain.matern import (
    beyond,
    noise_density,
    operator_weights,
    rate_of,
    smoothness_of,
    state_covariance,
)
from latentgp.extensions.inter_domain.operators import Banded, Full, Operator
from latentgp.kernels import Kernel
from latentgp.kernels.terms import Part
from latentgp.modules import stored
from latentgp.typing import Array, Inputs, PerRow

_CLOSEST = 1e-6  # in the range, places of rows that have a knot each
_SPARSEST = 0.01  # density of values, of an even one, that knots are made for at least
# Bands carry length-scales up to so many cells to the power 2 p + 1: the share of the variance that
# doubles lose. Through fewer splines than this functions are made smooth in turn, which loses none.
_LENGTH_IN_CELLS, _BANDED_FROM = 1e9, 256
_LOST = 4.0  # times longer ones are none that a search may go to
_KEPT = 8  # bases whose arrays are kept
_AS_MANY = 1.5  # so many times fewer functions will do


class BSplines(FixedFeatures):
    """Projections on B-splines, for Matérn kernels of single columns.

    Inducing variables are inner products of the latent function with B-splines over the column's
    range, in the RKHS of the kernel there: K_uu is banded, and a row touches degree + 1 functions a
    column, so that sums over rows cost O(N degree^2). Sums of kernels have blocks, products
    Kronecker products. Knots are closer where there are more values, as far as steps of an even
    grid show them, so that less is left open there. With Matern12 every place of few rows has one.

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
        >>> method = lgp.CollapsedVI(lgp.Inducing(features=lgp.inter_domain.BSplines(20)))
        >>> result = lgp.fit(model, lgp.Data(X, np.sin(X)), key=jax.random.key(0), method=method)
        >>> bool(abs(result.posterior.mean_f([[3.0]])[0] - np.sin(3.0)) < 0.1)
        True
    """

    words = "B-splines"
    number: int = eqx.field(static=True, default=100)
    degree: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_whole(self, number=2, degree=1)

    def basis(self, part: Part, columns: Inputs, demands: Demands) -> "Splines":
        p = smoothness_of(part, type(self).__name__)
        degree = 2 * p + 1 if self.degree is None else self.degree
        if degree <= p or self.number <= degree:
            raise InputError(
                f"{type(part.kernel).__name__} needs BSplines of a degree from {p + 1} and of a "
                f"greater number than the degree, got degree={degree} and number={self.number}."
            )
        lower, upper = range_of(columns[:, 0])
        about, width = columns[:, 0] - lower, upper - lower
        least = min(self.number, _BANDED_FROM - 1) - degree
        longest = _most_in_cells(p) * width / float(np.sqrt(2 * p + 1) / rate_of(part.kernel, p))
        cells = int(np.clip(longest, least, self.number - degree))
        return Splines(lower, _knots(about, demands.weights, width, cells, p), degree, p)


@stored
class Splines(Basis):
    """B-splines of a degree, those that are not zero in an interval.

    The inner products of B-splines are in proportion to (length-scale / cell)^(2p + 1): of long
    length-scales what smooth functions say would be lost in what rough ones do. Unless a band is
    wanted, the functions are therefore those of the same space that are orthogonal both in L2 and
    in their derivatives of order p + 1 (Demmler & Reinsch 1975): polynomials of degree up to p and
    then ever rougher ones, whose inner products are small beside their norms.
    """

    lower: float = eqx.field(static=True)  # end of the interval
    # ends of the cells from there, ascending from 0; beyond the interval they go on in its last
    # widths
    knots: tuple[float, ...] = eqx.field(static=True)
    degree: int = eqx.field(static=True)  # of the splines
    smoothness: int = eqx.field(static=True)  # derivatives that functions of the kernel have
    # whether functions are the B-splines themselves
    banded: bool = eqx.field(static=True, default=False)

    @property
    def number(self) -> int:
        return self.cells + self.degree

    @property
    def bandwidth(self) -> int | None:
        return self.degree if self.banded else None

    @property
    def turn(self) -> Float[np.ndarray, "M M"] | None:
        return None if self.banded else _orthogonal(self).turn

    def in_bands(self) -> "Splines":
        return dataclasses.replace(self, banded=True) if self.number >= _BANDED_FROM else self

    def carries(self, kernel: Kernel) -> Bool[Array, ""]:
        p = self.smoothness
        longest = _LOST * _most_in_cells(p) * np.min(np.diff(self.knots))
        return jnp.asarray(not self.banded) | (rate_of(kernel, p) * longest > np.sqrt(2 * p + 1))

    def serves_as(self, other: Basis, kernel: Kernel, x: Inputs) -> bool:
        fewer, more = sorted((self.number, other.number))
        return more <= _AS_MANY * fewer

    @property
    def domain(self) -> tuple[float, float]:
        return self.lower, self.lower + self.knots[-1]

    @property
    def cells(self) -> int:
        """Number of intervals between knots."""
        return len(self.knots) - 1

    def local(self, x: Inputs) -> tuple[Int[Array, "N band"], Float[Array, "N band"]]:
        knots = jnp.asarray(self.knots)
        about = x[:, 0] - self.lower
        cell = jnp.searchsorted(knots[1:-1], about, side="right")
        place = (about - knots[cell]) / jnp.diff(knots)[cell]
        powers = place[:, None] ** jnp.arange(self.degree + 1)
        values = jnp.einsum("nwk,nk->nw", jnp.asarray(_pieces(self))[cell], powers)
        return cell[:, None] + jnp.arange(self.degree + 1), values

    def fixed(self, x: Inputs) -> Float[Array, "M N"]:
        numbers, values = self.local(x)
        found = jnp.zeros((self.number, len(x)))
        for touched in range(self.degree + 1):
            here = jnp.arange(self.number)[:, None] == numbers[:, touched]
            found = jnp.where(here, values[:, touched], found)
        return found if self.turn is None else self.turn.T @ found

    def values(self, kernel: Kernel, x: Inputs) -> Float[Array, "M N"]:
        inside = self.fixed(jnp.clip(x, *self.domain))
        left, right = _ends(self)
        ends = (left, right) if self.turn is None else (self.turn.T @ left, self.turn.T @ right)
        return beyond(inside, ends, kernel, x[:, 0], self.domain)

    def operator(self, kernel: Kernel) -> Operator:
        p = self.smoothness
        weights = operator_weights(kernel, p)
        outer = jnp.outer(weights, weights) / noise_density(kernel, p)
        precision = jnp.linalg.inv(state_covariance(kernel, p))
        if not self.banded:
            found = _orthogonal(self)
            inside = jnp.einsum("ij,ijmn->mn", outer, jnp.asarray(found.products))
            return Full(inside + found.left @ precision @ found.left.T)
        bands = jnp.einsum("ij,ijwm->wm", outer, _bands(self))
        left = _ends(self)[0][: self.degree + 1]  # further splines are zero there
        whole = left @ precision @ left.T
        first = [
            jnp.pad(jnp.diagonal(whole, -shift), (0, self.number - len(whole) + shift))
            for shift in range(self.degree + 1)
        ]
        return Banded(bands + jnp.stack(first))


def _most_in_cells(p: int) -> float:
    """The longest length-scale that a band carries, in cells."""
    return _LENGTH_IN_CELLS ** (1 / (2 * p + 1))


def _knots(
    values: PerRow, weights: PerRow | None, width: float, cells: int, p: int
) -> tuple[float, ...]:
    """Ends of cells from 0 to `width` that leave least open at values there.

    A cell of width h leaves h^(2p + 1) of the variance open at each of its values, so that the best
    density of knots is the power 1 / (2p + 2) of that of the values (de Boor 1978, XII), which is
    seen in as many even steps. A section k(x, .) of p = 0 has a kink at x, so that where rows have
    no more places than there are knots, every place has one, and cells between them are even.
    """
    places = np.unique(values)
    gaps = len(places) - 1
    if p == 0 and 0 < gaps <= cells and np.min(np.diff(places)) > _CLOSEST * width:
        each = cells // gaps
        steps = np.arange(each * gaps + 1) / each
        return tuple(np.interp(steps, np.arange(gaps + 1), places).tolist())
    bins = np.linspace(0.0, width, cells + 1)
    counts = np.histogram(values, bins, weights=weights)[0]
    share = counts * cells / max(counts.sum(), np.finfo(float).tiny)
    density = np.maximum(share, _SPARSEST) ** (1 / (2 * p + 2))
    mass = np.append(0.0, np.cumsum(density / density.sum()))
    knots = np.interp(np.linspace(0.0, 1.0, cells + 1), mass, bins)
    return tuple(knots.tolist())


@lru_cache(_KEPT)
def _pieces(basis: Splines) -> Float[np.ndarray, "cells band powers"]:
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


def _derivatives(basis: Splines, order: int) -> Float[np.ndarray, "cells band powers"]:
    """Coefficients of a derivative likewise."""
    pieces, degree = _pieces(basis), basis.degree
    for _ in range(order):
        pieces = pieces[..., 1:] * np.arange(1, pieces.shape[-1])
    pieces = pieces / np.diff(basis.knots)[:, None, None] ** order
    return np.pad(pieces, ((0, 0), (0, 0), (0, degree + 1 - pieces.shape[-1])))


@lru_cache(_KEPT)
def _bands(basis: Splines) -> Float[np.ndarray, "orders orders band M"]:
    """Integrals of products of derivatives of order i and j: lower diagonals, made symmetric."""
    orders, degree = basis.smoothness + 2, basis.degree
    _, weights = _nodes(basis)
    bands = np.zeros((orders, orders, degree + 1, basis.number))
    each = [_at_nodes(basis, order) for order in range(orders)]
    for i in range(orders):
        for j in range(orders):
            cell = np.einsum("cqw,cqv,cq->wvc", each[i], each[j], weights)
            cell = 0.5 * (cell + cell.swapaxes(0, 1))
            for shift in range(degree + 1):
                for r in range(degree + 1 - shift):
                    bands[i, j, shift, r : r + basis.cells] += cell[r + shift, r]
    return bands


@lru_cache(_KEPT)
def _ends(basis: Splines) -> tuple[Float[np.ndarray, "M states"], Float[np.ndarray, "M states"]]:
    """Derivatives of order 0 to p at both ends."""
    orders, degree = basis.smoothness + 1, basis.degree
    left, right = np.zeros((2, basis.number, orders))
    for order in range(orders):
        pieces = _derivatives(basis, order)
        left[: degree + 1, order] = pieces[0, :, 0]
        right[basis.cells - 1 :, order] = pieces[-1].sum(axis=1)
    return left, right


class _Orthogonal(NamedTuple):
    """Functions of Demmler & Reinsch."""

    turn: Float[np.ndarray, "M M"]  # their coefficients in B-splines, a column each
    # integrals of products of derivatives of order i and j
    products: Float[np.ndarray, "orders orders M M"]
    left: Float[np.ndarray, "M states"]  # derivatives of order 0 to p at the left end


@lru_cache(_KEPT)
def _orthogonal(basis: Splines) -> _Orthogonal:
    """From derivatives at the nodes of a quadrature: products of these would lose half the digits.

    Computed on the interval from 0 to 1, so that no unit of the inputs matters.
    """
    p, width = basis.smoothness, basis.knots[-1]
    unit = Splines(0.0, tuple((np.asarray(basis.knots) / width).tolist()), basis.degree, p)
    places, weights = map(np.ravel, _nodes(unit))
    jets = [_spread(unit, order) * np.sqrt(weights)[:, None] for order in range(p + 2)]
    root: Any = np.linalg.qr(jets[0], mode="r")
    low = np.polynomial.legendre.legvander(places * 2 - 1, p) * np.sqrt(weights)[:, None]
    low = np.linalg.qr(root @ np.linalg.lstsq(jets[0], low, rcond=None)[0], mode="complete")[0]
    rough = np.linalg.solve(root.T, jets[-1].T).T @ low[:, p + 1 :]
    right = np.linalg.svd(np.linalg.qr(rough, mode="r"))[2][::-1].T
    turn = np.linalg.solve(root, np.hstack([low[:, : p + 1], low[:, p + 1 :] @ right]))
    jets = [jet @ turn for jet in jets]
    for order, jet in enumerate(jets):
        jet[:, : min(order, p + 1)] = 0.0  # polynomials of a lower degree
    orders = range(p + 2)
    products = np.array(
        [[jets[i].T @ jets[j] * width ** (1 - i - j) for j in orders] for i in orders]
    )
    products = 0.5 * (products + np.transpose(products, (1, 0, 3, 2)))
    left = turn.T @ _ends(unit)[0] / width ** np.arange(p + 1)
    left[np.triu_indices(p + 1, 1)] = 0.0
    return _Orthogonal(turn, products, left)


def _nodes(basis: Splines) -> Float[np.ndarray, "2 cells nodes"]:
    """Nodes of Gauss's quadrature in every cell, exact for products of splines, and weights."""
    nodes, weights = np.polynomial.legendre.leggauss(basis.degree + 1)
    knots, widths = np.asarray(basis.knots), np.diff(basis.knots)[:, None]
    return np.stack([knots[:-1, None] + 0.5 * (nodes + 1) * widths, 0.5 * weights * widths])


def _at_nodes(basis: Splines, order: int) -> Float[np.ndarray, "cells nodes band"]:
    """A derivative there of the splines that are not zero in a cell."""
    nodes = np.polynomial.legendre.leggauss(basis.degree + 1)[0]
    powers = (0.5 * (nodes + 1))[:, None] ** np.arange(basis.degree + 1)
    return np.einsum("cwk,qk->cqw", _derivatives(basis, order), powers)


def _spread(basis: Splines, order: int) -> Float[np.ndarray, "nodes M"]:
    """The same of every spline, cell by cell."""
    each = _at_nodes(basis, order)
    found = np.zeros((*each.shape[:2], basis.number))
    for cell, own in enumerate(each):
        found[cell, :, cell : cell + basis.degree + 1] = own
    return found.reshape(-1, basis.number)
