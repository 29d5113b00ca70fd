"""Directions of random features: F vectors in E coordinates, each N(0, I) by itself.

Of independent ones the error of the features' Gram matrix falls as F^-1/2. Orthogonal ones, and
those of a low-discrepancy sequence, have the same law one by one and less error together.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Key

from latentgp.errors import InputError
from latentgp.modules import stored
from latentgp.typing import Array

_LEAST_SIZE = 64  # of Hadamard matrices

DirectionKind = Literal["fourier", "orthogonal", "structured", "quasi-monte-carlo"]


class Directions(eqx.Module):
    """A linear map from E coordinates to F inner products."""

    @property
    @abstractmethod
    def number(self) -> int:
        """Number of directions F."""

    @abstractmethod
    def __call__(self, points: Float[Array, "N E"]) -> Float[Array, "N F"]:
        """Inner products of every row with every direction."""


@stored
class DirectionMatrix(Directions):
    """Directions as rows of a matrix, which can be learned."""

    matrix: Float[Array, "F E"]

    @property
    def number(self) -> int:
        return self.matrix.shape[0]

    def __call__(self, points: Float[Array, "N E"]) -> Float[Array, "N F"]:
        return points @ self.matrix.T


@stored
class HadamardDirections(Directions):
    """Structured orthogonal directions, S H D_1 H D_2 H D_3 (Yu et al. 2016, section 4).

    H is a Hadamard matrix over the square root of its size n, the power of two from E and 64, below
    which the directions have too few places; D_i are signs and S lengths of Gaussian vectors. O(F)
    numbers in place of F E, and O(n^1/2) products of numbers for each direction in place of E.
    """

    signs: Float[Array, "B 3 padded"]  # for each of B blocks of directions
    lengths: Float[Array, "F"]

    @property
    def number(self) -> int:
        return self.lengths.shape[0]

    def __call__(self, points: Float[Array, "N E"]) -> Float[Array, "N F"]:
        size = self.signs.shape[-1]
        padded = jnp.pad(points, ((0, 0), (0, size - points.shape[1])))
        turned = jnp.broadcast_to(padded, (len(self.signs), *padded.shape))
        for step in range(3):
            turned = _hadamard(turned * self.signs[:, step, None])
        flat = jnp.moveaxis(turned, 0, 1).reshape(len(points), -1)
        return flat[:, : self.number] * self.lengths


def _hadamard(values: Float[Array, "*N padded"]) -> Float[Array, "*N padded"]:
    """Product with a Hadamard matrix of orthonormal rows, by those of half its bits."""
    size = values.shape[-1]
    rows = 1 << (size.bit_length() // 2)
    left, right = (jnp.asarray(_hadamard_matrix(n), values.dtype) for n in (rows, size // rows))
    square = values.reshape(*values.shape[:-1], rows, size // rows)
    return (left @ square @ right).reshape(values.shape)


def _hadamard_matrix(size: int) -> Float[np.ndarray, "padded padded"]:
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.kron(matrix, np.array([[1.0, 1.0], [1.0, -1.0]]))
    return matrix / np.sqrt(size)


def draw_directions(
    key: Key[Array, ""], coordinates: int, number: int, kind: DirectionKind = "fourier"
) -> Directions:
    """Directions, F in E coordinates, whose law, one by one, is N(0, I).

    "fourier" draws them independently (Rahimi & Recht 2007), and may have a traced key,
    "orthogonal" makes those of each block of E orthogonal (Yu et al. 2016, theorem 1), "structured"
    does so by products with Hadamard matrices (section 4), "quasi-monte-carlo" takes a scrambled
    Sobol sequence (Yang et al. 2014). InputError of another kind.
    """
    if kind not in get_args(DirectionKind):
        known = ", ".join(f'"{name}"' for name in get_args(DirectionKind))
        raise InputError(f"The kind of random features must be one of {known}, got {kind!r}.")
    if kind == "fourier":
        return DirectionMatrix(jax.random.normal(key, (number, coordinates)))
    # In NumPy: each of JAX's operations would be compiled for a few numbers.
    bits = [int(word) for word in np.ravel(jax.random.key_data(key))]
    dtype, generator = jnp.result_type(float), np.random.default_rng(bits)
    if kind == "quasi-monte-carlo":
        from scipy.stats import norm, qmc  # takes long to import

        sobol = qmc.Sobol(coordinates, rng=generator)
        # In an order of its own: directions of several parts are put together one by one.
        order = generator.permutation(number)
        uniform = sobol.random_base2(max(number - 1, 1).bit_length())[:number][order]
        tiny = np.finfo(np.float64).eps
        return DirectionMatrix(norm.ppf(np.clip(uniform, tiny, 1 - tiny)).astype(dtype))
    least = max(coordinates, _LEAST_SIZE)
    size = 1 << (least - 1).bit_length() if kind == "structured" else coordinates
    lengths = np.sqrt(generator.chisquare(size, number)).astype(dtype)
    blocks = -(-number // size)
    if kind == "structured":
        signs = generator.choice([-1.0, 1.0], (blocks, 3, size)).astype(dtype)
        return HadamardDirections(signs, lengths)
    turns, triangle = np.linalg.qr(generator.normal(size=(blocks, size, size)))
    # With these signs the turns have the uniform law.
    turns = turns * np.sign(np.diagonal(triangle, axis1=1, axis2=2))[:, None, :]
    rows = turns.reshape(-1, size)[:number]
    return DirectionMatrix((rows * lengths[:, None]).astype(dtype))
