"""Kernels over indices, such as those of areas: no point lies between two of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from latentgp.errors import InputError
from latentgp.kernels.base import Kernel
from latentgp.modules import Module
from latentgp.typing import Array


class IndexKernel(Kernel):
    """Base of kernels whose one input column has indices, from 0.

    An author writes `gram` and `diagonal` by `numbers_of`.
    """

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        return self.gram(x[None], z[None])[0, 0]

    def check_inputs(self, columns: int) -> None:
        if columns != 1:
            name = type(self).__name__
            raise InputError(
                f"{name} reads one column, of whole numbers from 0, got {columns} columns; use "
                f"{name}(...).on(column) beside others."
            )


class Invariant(Module):
    """Arrays that no hyper-parameter changes: the components of a posterior share them."""


def numbers_of(X: Float[Array, "N D"]) -> Int[Array, "N"]:
    """Indices of rows; of a point between two, such as one that is no row, the nearest."""
    return jnp.round(jax.lax.stop_gradient(X[:, 0])).astype(int)
