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


class BSplines(FixedFeatures):
    """Projections on B-splines, for Matérn kernels of single columns.

    Inducing variables are inner products of the latent function with B-splines on even knots over
    the column's range, in the RKHS of the kernel there: K_uu is banded, and a row touches
    degree + 1 functions a column, so that sums over rows cost O(N degree^2). Sums of kernels have
    blocks, products Kronecker products.

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

    def basis(self, part: Part, columns: Float[np.ndarray, "N C"], share: int) -> "Splines":
        p = smoothness_of(part, type(self).__name__)
        degree = 2 * p + 1 if self.degree is None else self.degree
        if degree <= p or self.number <= degree:
            raise InputError(
                f"{type(part.kernel).__name__} needs BSplines of a degree from {p + 1} and of a "
                f"greater number than the degree, got degree={degree} and number={self.number}."
            )
        return Splines(*range_of(columns[:, 0]), self.number, degree, p)


class Splines(Basis):
    """B-splines of a degree on even knots, those that are not zero in an interval."""

    lower: float = eqx.field(static=True)
    upper: float = eqx.field(static=True)
    count: int = eqx.field(static=True)
    degree: int = eqx.field(static=True)
    smoothness: int = eqx.field(static=True)

    @property
    def number(self) -> int:
        return self.count

    @property
    def bandwidth(self) -> int:
        return self.degree

    @property
    def domain(self) -> tuple[float, float]:
        return self.lower, self.upper

    @property
    def cells(self) -> int:
        """Number of intervals between knots."""
        return self.number - self.degree

    @property
    def width(self) -> float:
        """Of a cell."""
        return (self.upper - self.lower) / self.cells

    def local(self, x: Float[Array, "N C"]) -> tuple[Int[Array, "N W"], Float[Array, "N W"]]:
        place = (x[:, 0] - self.lower) / self.width
        cell = jnp.clip(jnp.floor(place), 0, self.cells - 1).astype(int)
        powers = (place - cell)[:, None] ** jnp.arange(self.degree + 1)
        return cell[:, None] + jnp.arange(self.degree + 1), powers @ _pieces(self.degree).T

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


@cache
def _pieces(degree: int) -> Float[np.ndarray, "W K"]:
    """Coefficients of the pieces of the cardinal B-spline in powers of the place in a cell.

    Row r is that of the r-th spline which is not zero in a cell, in the order of splines.
    """
    from scipy.interpolate import BSpline, PPoly  # takes long to import

    whole = PPoly.from_spline(BSpline.basis_element(np.arange(degree + 2.0)))
    # The knots before and after the support are there `degree` times.
    pieces = [whole.c[:, np.flatnonzero(whole.x[:-1] == piece)[-1]] for piece in range(degree + 1)]
    return np.stack(pieces[::-1])[:, ::-1]


def _derivatives(degree: int, order: int) -> Float[np.ndarray, "W K"]:
    """The same of a derivative, in units of cells."""
    pieces = _pieces(degree)
    for _ in range(order):
        pieces = pieces[:, 1:] * np.arange(1, pieces.shape[1])
    return np.pad(pieces, ((0, 0), (0, degree + 1 - pieces.shape[1])))


@cache
def _bands(basis: Splines) -> Float[np.ndarray, "K K W M"]:
    """Integrals of products of derivatives of order i and j: lower diagonals, made symmetric."""
    orders, degree = basis.smoothness + 2, basis.degree
    nodes, weights = np.polynomial.legendre.leggauss(degree + 1)
    powers = (0.5 * (nodes + 1))[:, None] ** np.arange(degree + 1)
    bands = np.zeros((orders, orders, degree + 1, basis.number))
    each = [powers @ _derivatives(degree, i).T / basis.width**i for i in range(orders)]
    for i in range(orders):
        for j in range(orders):
            cell = 0.5 * basis.width * each[i].T @ (weights[:, None] * each[j])
            cell = 0.5 * (cell + cell.T)
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
        pieces = _derivatives(degree, order) / basis.width**order
        left[: degree + 1, order] = pieces[:, 0]
        right[basis.cells - 1 :, order] = pieces.sum(axis=1)
    return left, right
