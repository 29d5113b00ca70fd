"""Preconditioners that are solved by conjugate gradients: interpolated, and regularised."""

from __future__ import annotations

import itertools
from math import prod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from latentgp.errors import InputError
from latentgp.extensions.iterative.solvers.conjugate_gradients import conjugate_gradients
from latentgp.extensions.iterative.solvers.operators import (
    Covariance,
    LinearOperator,
    ShiftedOperator,
    System,
    TiledCovariance,
)
from latentgp.extensions.iterative.solvers.preconditioners.base import Preconditioner
from latentgp.extensions.iterative.solvers.structured import (
    is_stationary,
    toeplitz_spectrum,
    toeplitz_times,
)
from latentgp.kernels.base import Kernel
from latentgp.modules import Module
from latentgp.typing import Array, Inputs, PerRow, Scalar, Vectors


class Regularised(Module):
    """P = A + shift I, solved by conjugate gradients (Srinivasan et al. 2014)."""

    shift: Scalar | float  # what is added to the diagonal
    tolerance: float = 1e-2  # of the residual of the inner iteration
    max_steps: int = 100  # the most products of the inner iteration

    def __call__(self, operator: LinearOperator) -> IterativePreconditioner:
        shifted = ShiftedOperator(operator, jnp.asarray(self.shift))
        return IterativePreconditioner(shifted, self.tolerance, self.max_steps)


class IterativePreconditioner(Preconditioner):
    """P^-1 by conjugate gradients with P: another matrix at every solve, as it is stopped."""

    is_fixed: ClassVar[bool] = False

    operator: LinearOperator  # P
    tolerance: Any  # of the relative residual
    max_steps: Any  # the most products

    def solve(self, right: Vectors) -> Vectors:
        return self.counted_solve(right)[0]

    def counted_solve(self, right: Vectors) -> tuple[Vectors, Int[Array, ""]]:
        found = conjugate_gradients(
            self.operator, right, tolerance=self.tolerance, max_steps=self.max_steps
        )
        return found.value, found.steps


class Interpolation(Module):
    """W K_UU W' in place of K, U a grid and W sparse (Wilson & Nickisch 2015, SKI).

    Products with K_UU are by fast Fourier transforms, so any stationary kernel will do. The solve
    is an inner iteration; log-determinant and root are refused.

    Raises:
        InputError: when called, a covariance without a kernel, a kernel that is not stationary, or
            a grid of the wrong number of inputs or of fewer than two points along one.
    """

    grid: tuple[int, ...]  # points of the grid along every input, shape (D,)
    # each row takes the nearest point; otherwise it is between the 2^D around it
    nearest: bool = False
    tolerance: float = 1e-2  # of the residual of the inner iteration
    max_steps: int = 100  # the most products of the inner iteration

    def __call__(self, system: System) -> IterativePreconditioner:
        covariance = system.covariance
        if not (isinstance(covariance, TiledCovariance) and is_stationary(covariance.kernel)):
            raise InputError(
                "Interpolation needs a Tiled covariance with a stationary kernel, got "
                f"{type(covariance).__name__}: take Nystrom or PivotedCholesky"
            )
        inputs = covariance.X.shape[1]
        if len(self.grid) != inputs or min(self.grid) < 2:
            raise InputError(
                f"grid is {self.grid} and the inputs have {inputs} columns: give the number of "
                "points along each, at least two"
            )
        K = interpolated(covariance.kernel, covariance.X, self.grid, nearest=self.nearest)
        near = System(K, system.scale, system.added)
        return IterativePreconditioner(near, self.tolerance, self.max_steps)


class InterpolatedCovariance(Covariance):
    """W K_UU W' of a stationary kernel on a grid."""

    points: Int[Array, "N corners"]  # of each row the grid points that it is between, by number
    weights: Float[Array, "N corners"]  # of these
    # Fourier transform of the kernel on the grid, wound on a circle of twice its size
    spectrum: Array
    grid: tuple[int, ...] = eqx.field(static=True)  # points along every input

    @property
    def size(self) -> int:
        return len(self.points)

    def times(self, right: Vectors) -> Vectors:
        spread = self.weights[:, :, None] * right[:, None, :]
        onto = jnp.zeros((prod(self.grid), right.shape[1]), right.dtype).at[self.points].add(spread)
        on_grid = toeplitz_times(self.spectrum, self.grid, onto)
        return jnp.sum(self.weights[:, :, None] * on_grid[self.points], axis=1)

    def diagonal(self) -> PerRow:
        return jax.lax.map(lambda row: self.columns(row[None])[row, 0], jnp.arange(self.size))

    def columns(self, rows: Int[Array, "M"]) -> Float[Array, "N M"]:
        one = jnp.zeros((self.size, len(rows)), self.weights.dtype)
        return self.times(one.at[rows, jnp.arange(len(rows))].set(1.0))


def interpolated(
    kernel: Kernel, X: Inputs, grid: tuple[int, ...], *, nearest: bool
) -> InterpolatedCovariance:
    """The interpolated covariance of rows on a grid that spans them."""
    counts = jnp.asarray(grid)
    low, high = jnp.min(X, axis=0), jnp.max(X, axis=0)
    step = jnp.where(high > low, (high - low) / (counts - 1), 1.0)
    place = (X - low) / step
    if nearest:
        corners = jnp.zeros((1, len(grid)), int)
        below = jnp.clip(jnp.round(place).astype(int), 0, counts - 1)
        weights = jnp.ones((len(X), 1), X.dtype)
    else:
        corners = jnp.asarray(list(itertools.product((0, 1), repeat=len(grid))))
        below = jnp.clip(jnp.floor(place).astype(int), 0, counts - 2)
        along = (place - below)[:, None, :]
        weights = jnp.prod(jnp.where(corners == 1, along, 1 - along), axis=-1)
    strides = jnp.asarray([prod(grid[d + 1 :]) for d in range(len(grid))])
    points = jnp.sum((below[:, None, :] + corners) * strides, axis=-1)
    spectrum = toeplitz_spectrum(kernel, step, grid)
    return InterpolatedCovariance(points, weights, spectrum, grid)
