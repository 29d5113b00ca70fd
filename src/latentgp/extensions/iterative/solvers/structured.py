"""Gram matrices of rows on a grid: products by Fourier transforms, or by factors side by side.

Every row is in a cell of the grid; cells may be empty or hold several rows. With E the matrix that
says which row is where, K = E K_grid E'.
"""

from __future__ import annotations

from abc import abstractmethod
from math import prod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentgp.extensions.iterative.solvers.operators import Covariance, TiledCovariance
from latentgp.kernels.base import ActiveDimensions, Constant, Kernel, Product, Scaled, Sum
from latentgp.kernels.stationary import RBF, Periodic, Stationary
from latentgp.modules import forwarded, stored
from latentgp.runtime.row_scan import scan_rows
from latentgp.typing import Array, Inputs, Vectors

# Of a step: how far from its cell a row may be, as rounding leaves it.
_OFF_THE_GRID = 1e-7
# More cells than so many times the rows are too many empty ones, and longer axes too large factors.
_MOST_CELLS, _LONGEST_AXIS = 4, 4096

Groups = tuple[tuple[int, ...], ...]


class OnGrid(Covariance):
    """The Gram matrix of rows in the cells of a grid."""

    entries: TiledCovariance  # kernel and inputs, of which single entries are made
    cells: Int[Array, "N"]  # number of each row's cell

    @property
    @abstractmethod
    def number(self) -> int:
        """The number of cells."""

    @abstractmethod
    def grid_times(self, right: Float[Array, "grid S"]) -> Float[Array, "grid S"]:
        """K_grid right."""

    @property
    def size(self) -> int:
        return self.entries.size

    def times(self, right: Vectors) -> Vectors:
        empty = jnp.zeros((self.number, right.shape[1]), right.dtype)
        return self.grid_times(empty.at[self.cells].add(right))[self.cells]

    diagonal = forwarded("entries.diagonal")
    columns = forwarded("entries.columns")
    block = forwarded("entries.block")


class Toeplitz(OnGrid):
    """Gram matrix of a stationary kernel on n regularly spaced points: O(n log n) a product."""

    spectrum: Array  # of the kernel, from `toeplitz_spectrum`
    counts: tuple[int, ...] = eqx.field(static=True)  # number of points along each input

    @property
    def number(self) -> int:
        return prod(self.counts)

    def grid_times(self, right: Float[Array, "grid S"]) -> Float[Array, "grid S"]:
        return toeplitz_times(self.spectrum, self.counts, right)


class Kronecker(OnGrid):
    """Gram matrix of a product of kernels of groups of inputs, on all combinations of their points.

    A product takes O(n times the sum of the numbers of points) for n cells.
    """

    # Gram matrix of each group, whose Kronecker product K_grid is
    factors: tuple[Float[Array, "_ _"], ...]

    @property
    def number(self) -> int:
        return prod(map(len, self.factors))

    def grid_times(self, right: Float[Array, "grid S"]) -> Float[Array, "grid S"]:
        values = right.reshape(*map(len, self.factors), -1)
        for axis, factor in enumerate(self.factors):
            values = jnp.moveaxis(jnp.tensordot(factor, values, (1, axis)), 0, axis)
        return values.reshape(right.shape)


class Grid(eqx.Module):
    """Where the cells of a grid are, whatever the kernel's parameters."""

    @abstractmethod
    def covariance(self, kernel: Kernel, X: Inputs) -> OnGrid:
        """The Gram matrix of rows that are on the grid."""

    @property
    @abstractmethod
    def words(self) -> str:
        """Name of its operator, for the user."""

    def slope(self, kernel: Kernel, X: Inputs, left: Vectors, right: Vectors) -> Kernel:
        """Derivative of the sum of left * (K right) in the kernel."""
        return jax.grad(lambda own: jnp.sum(left * self.covariance(own, X).times(right)))(kernel)


@stored
class Lattice(Grid):
    """Regularly spaced points along every input.

    Example:
        >>> line = Lattice(jnp.zeros(1), jnp.ones(1), (3,))
        >>> K = line.covariance(RBF(), jnp.array([[0.0], [2.0]]))
        >>> [round(float(v), 4) for v in K.times(jnp.ones((2, 1)))[:, 0]]
        [1.1353, 1.1353]
    """

    low: Float[Array, "D"]  # the first along each
    step: Float[Array, "D"]  # from one to the next; one where there is a single point
    counts: tuple[int, ...] = eqx.field(static=True)  # how many along each

    def covariance(self, kernel: Kernel, X: Inputs) -> Toeplitz:
        step = jnp.asarray(self.step, X.dtype)
        places = jnp.round((X - jnp.asarray(self.low, X.dtype)) / step).astype(int)
        cells = jnp.ravel_multi_index(tuple(places.T), self.counts, mode="clip")
        spectrum = toeplitz_spectrum(kernel, step, self.counts)
        return Toeplitz(TiledCovariance(kernel, X), cells, spectrum, self.counts)

    @property
    def words(self) -> str:
        across = " x ".join(str(count) for count in self.counts if count > 1)
        return f"Toeplitz products on {across or '1'} regularly spaced points"


@stored
class Axes(Grid):
    """All combinations of points of groups of inputs."""

    # of each group, as whole inputs that differ in the group's columns alone
    points: tuple[Float[Array, "_ D"], ...]
    groups: Groups = eqx.field(static=True)  # columns of each group

    def covariance(self, kernel: Kernel, X: Inputs) -> Kronecker:
        axes = [jnp.asarray(points, X.dtype) for points in self.points]

        def nearest(carry: Any, x: Float[Array, "B D"], real: Any) -> tuple[Any, Array]:
            found = []
            for points, group in zip(axes, self.groups, strict=True):
                columns = np.array(group)
                apart = jnp.abs(x[:, None, columns] - points[None, :, columns])
                found.append(jnp.argmin(jnp.sum(apart, axis=2), axis=1))
            return carry, jnp.ravel_multi_index(tuple(found), tuple(map(len, axes)), mode="clip")

        longest = max(map(len, axes)) * X.shape[1]
        _, cells = scan_rows(nearest, None, X, columns=longest, in_cache=True)
        # Every factor has the prior variance of the other groups in it.
        variance = kernel.diagonal(axes[0][:1])[0]
        grams = [kernel.symmetric_gram(points) for points in axes]
        factors = (grams[0], *(gram / variance for gram in grams[1:]))
        return Kronecker(TiledCovariance(kernel, X), cells, factors)

    @property
    def words(self) -> str:
        across = " x ".join(str(len(points)) for points in self.points if len(points) > 1)
        return f"Kronecker products on a grid of {across} points"


def find_grid(kernels: tuple[Kernel, ...], X: Inputs) -> Grid | None:
    """The grid that rows are on, if there is one and the kernels allow for its products.

    Regularly spaced points for stationary kernels, cells may be empty; else all combinations of the
    values of groups of inputs for products of kernels of these. None if there would be more than
    four times as many cells as rows, or if the kernels do not allow it.

    Example:
        >>> find_grid((RBF(),), np.arange(100.0)[:, None]).words
        'Toeplitz products on 100 regularly spaced points'
    """
    if all(map(is_stationary, kernels)) and (lattice := _lattice(X)) is not None:
        return lattice
    every = tuple(range(X.shape[1]))
    groups = {factor_columns(kernel, every) for kernel in kernels}
    return _axes(X, groups.pop() or ()) if len(groups) == 1 else None


def _lattice(X: Inputs) -> Lattice | None:
    steps, counts = [], []
    for column in X.T:
        values = np.unique(column)
        span = values[-1] - values[0]
        gaps = np.diff(values)
        # Values that rounding has parted are one.
        gaps = gaps[gaps > _OFF_THE_GRID * span / len(X)]
        step = gaps.min() if gaps.size else 1.0
        count = int(np.round(span / step)) + 1
        if count * prod(counts) > _MOST_CELLS * len(X):
            return None
        step = span / (count - 1) if count > 1 else 1.0
        places = (column - values[0]) / step
        if np.max(np.abs(places - np.round(places))) > _OFF_THE_GRID:
            return None
        steps.append(step)
        counts.append(count)
    return Lattice(X.min(axis=0), np.array(steps), tuple(counts))


def _axes(X: Inputs, groups: Groups) -> Axes | None:
    points, cells = [], 1
    for group in groups:
        values = np.unique(X[:, group], axis=0)
        cells *= len(values)
        if cells > _MOST_CELLS * len(X) or len(values) > _LONGEST_AXIS:
            return None
        whole = np.repeat(X[:1], len(values), axis=0)
        whole[:, group] = values
        points.append(whole)
    if sum(len(p) > 1 for p in points) < 2:
        return None
    return Axes(tuple(points), groups)


def is_stationary(kernel: Kernel) -> bool:
    """Whether covariances depend on the difference of two points alone.

    Example:
        >>> is_stationary(2.0 * RBF()), is_stationary(RBF().on(0) * Constant())
        (True, True)
    """
    match kernel:
        case Sum() | Product():
            return all(map(is_stationary, kernel.parts))
        case Scaled() | ActiveDimensions():
            return is_stationary(kernel.kernel)
    return isinstance(kernel, Stationary | Constant)


def factor_columns(kernel: Kernel, columns: tuple[int, ...]) -> Groups | None:
    """Groups of the columns that a kernel sees whose kernels' product it is; None for not known.

    Example:
        >>> factor_columns(RBF(), (0, 1)), factor_columns(Constant(), (0, 1))
        (((0,), (1,)), ())
    """
    match kernel:
        case RBF() | Periodic():
            return tuple((column,) for column in columns)
        case Constant():
            return ()
        case Scaled():
            return factor_columns(kernel.kernel, columns)
        case ActiveDimensions():
            return factor_columns(kernel.kernel, tuple(columns[d] for d in kernel.dimensions))
        case Product():
            return _of_product(kernel, columns)
    return (columns,) if is_stationary(kernel) else None


def _of_product(kernel: Product, columns: tuple[int, ...]) -> Groups | None:
    together: list[set[int]] = []
    for part in kernel.parts:
        groups = factor_columns(part, columns)
        if groups is None:
            return None
        for group in map(set, groups):
            touched = [other for other in together if other & group]
            together = [other for other in together if not other & group]
            together.append(group.union(*touched))
    return tuple(sorted(tuple(sorted(group)) for group in together))


def toeplitz_spectrum(kernel: Kernel, step: Float[Array, "D"], counts: tuple[int, ...]) -> Array:
    """Fourier transform of a stationary kernel on a lattice, wound on a circle of twice its size.

    Along an input of a single point it has length one.
    """
    # Shifts 0 .. g - 1, the one that is never used, and -(g - 1) .. -1.
    shifts = [
        np.concatenate([np.arange(g), [0], np.arange(1 - g, 0)]) if g > 1 else np.zeros(1)
        for g in counts
    ]
    offsets = np.stack(np.meshgrid(*shifts, indexing="ij"), -1).reshape(-1, len(counts))
    values = kernel.gram(jnp.zeros((1, len(counts)), step.dtype), offsets * step)[0]
    return jnp.fft.rfftn(values.reshape(_circle(counts)))


def toeplitz_times(
    spectrum: Array, counts: tuple[int, ...], right: Float[Array, "grid S"]
) -> Float[Array, "grid S"]:
    """Product of the lattice's Gram matrix with columns, by its spectrum."""
    axes, circle = tuple(range(len(counts))), _circle(counts)
    waves = jnp.fft.rfftn(right.reshape(*counts, -1), s=circle, axes=axes)
    whole = jnp.fft.irfftn(spectrum[..., None] * waves, s=circle, axes=axes)
    return whole[tuple(slice(g) for g in counts)].reshape(right.shape)


def _circle(counts: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(2 * g if g > 1 else 1 for g in counts)
