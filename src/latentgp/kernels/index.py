"""Kernels over indices, such as those of areas: no point lies between two of them."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentgp.errors import InputError
from latentgp.kernels.base import Kernel
from latentgp.typing import Array


class IndexKernel(Kernel):
    """Base of kernels whose one input column has indices, from 0; `gram` reads `numbers_of`."""

    things: ClassVar[str]  # what has an index
    remedy: ClassVar[str]  # for an index that there is none of

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of things."""

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        return self.gram(x[None], z[None])[0, 0]

    def check_inputs(self, columns: int) -> None:
        check_one_column(self, columns, "whole numbers from 0")

    def check_points(self, X: Float[np.ndarray, "N D"]) -> None:
        numbers = X[:, 0]
        wrong = (numbers != np.round(numbers)) | (numbers < 0) | (numbers >= self.size)
        if np.any(wrong):
            raise InputError(
                f"{type(self).__name__} knows the {self.things} 0 to {self.size - 1}, got "
                f"{numbers[wrong][:3].tolist()}; {self.remedy}."
            )


class Invariant(eqx.Module):
    """Arrays that no hyper-parameter changes: the components of a posterior share them."""


def check_one_column(kernel: Kernel, columns: int, what: str) -> None:
    """Raise InputError unless a kernel of one column is given one."""
    if columns != 1:
        name = type(kernel).__name__
        raise InputError(
            f"{name} reads one column, of {what}, got {columns} columns; use {name}(...)"
            ".on(column) beside others."
        )


def numbers_of(X: Float[Array, "N D"]) -> Int[Array, "N"]:
    """Indices of rows; of a point between two, such as one that is no row, the nearest."""
    return jnp.round(jax.lax.stop_gradient(X[:, 0])).astype(int)
