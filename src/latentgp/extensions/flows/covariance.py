"""Covariance matrices of low rank, plus a diagonal, in blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentgp.errors import refuse
from latentgp.modules import Module
from latentgp.numerics.cholesky import lower_cholesky
from latentgp.numerics.triangular import solve_lower
from latentgp.typing import Array, Point, RandomKey, Samples, Scalar

Method = TypeVar("Method", bound=Callable[..., Any])


def in_its_precision(method: Method) -> Method:
    """NumPy in, NumPy out: of arrays in double precision in JAX's x64 context."""

    @wraps(method)
    def run(self: Any, *arguments: Any) -> Any:
        if not isinstance(self.factor, np.ndarray):
            return method(self, *arguments)
        with jax.enable_x64(self.factor.dtype == np.float64):
            return np.asarray(method(self, *arguments))

    return cast(Method, run)


class Covariance(Module):
    """The covariance matrix F F' + diag(d), with F F' set to zero between blocks.

    With as many blocks as dimensions it is diagonal. Products, draws and the diagonal cost D times
    the rank: no matrix of D x D is made.

    Attributes:
        factor: F, shape (D, R).
        diagonal: d, zero or above, shape (D,).
        block: number of the block that each dimension is in, from 0, shape (D,).
        blocks: how many there are.

    Example:
        >>> Covariance.of(jnp.array([[1.0], [2.0]])).dense().tolist()
        [[1.0, 2.0], [2.0, 4.0]]
    """

    factor: Float[Array, "D R"]
    diagonal: Point
    block: Int[Array, "D"]
    blocks: int = eqx.field(static=True)

    @classmethod
    def of(
        cls,
        factor: Float[Array, "D R"],
        diagonal: Point | None = None,
        sizes: tuple[int, ...] | None = None,
    ) -> Covariance:
        """With no diagonal, and one block, unless these are given.

        Args:
            factor: F.
            diagonal: d; None for zero.
            sizes: of the blocks, which add up to D; None for one.
        """
        sizes, size = sizes or (len(factor),), len(factor)
        block = jnp.repeat(jnp.arange(len(sizes)), jnp.array(sizes), total_repeat_length=size)
        diagonal = jnp.zeros(len(factor), factor.dtype) if diagonal is None else diagonal
        return cls(factor, diagonal, block, len(sizes))

    @classmethod
    def of_variances(cls, variances: Point) -> Covariance:
        """A diagonal matrix."""
        return cls.of(jnp.zeros((len(variances), 0), variances.dtype), variances)

    @in_its_precision
    def __matmul__(self, vector: Point) -> Point:
        """The product with a vector."""
        terms = self.factor * jnp.asarray(vector)[:, None]
        summed = jax.ops.segment_sum(terms, self.block, self.blocks)
        return jnp.sum(self.factor * summed[self.block], axis=1) + self.diagonal * vector

    @property
    @in_its_precision
    def variances(self) -> Point:
        """The diagonal of the whole matrix."""
        return jnp.sum(self.factor**2, axis=1) + self.diagonal

    @in_its_precision
    def dense(self) -> Float[Array, "D D"]:
        """The whole matrix."""
        same = self.block[:, None] == self.block[None, :]
        return jnp.where(same, self.factor @ self.factor.T, 0.0) + jnp.diag(self.diagonal)

    @in_its_precision
    def draw(self, key: RandomKey, number: int) -> Samples:
        """Draws from N(0, F F' + diag(d)), without a factorisation.

        x_d = sum_r F_dr xi_br + sqrt(d_d) e_d, with scalars xi_br ~ N(0, 1) for every block b and
        column r (Galy-Fajou 2022, 6.16, whose elementwise product would give diag(C) alone).
        """
        key_factor, key_diagonal = jax.random.split(key)
        dtype, rank = self.factor.dtype, self.factor.shape[1]
        xi = jax.random.normal(key_factor, (number, self.blocks, rank), dtype)
        own = jax.random.normal(key_diagonal, (number, len(self.factor)), dtype)
        if self.blocks == 1:
            low_rank = xi[:, 0] @ self.factor.T
        else:
            low_rank = jnp.einsum("dr,sdr->sd", self.factor, xi[:, self.block])
        return low_rank + jnp.sqrt(self.diagonal) * own

    @in_its_precision
    def log_density(self, centred: Samples) -> Float[Array, "S"]:
        """Log N(x | 0, F F' + diag(d)) in nats; NaN or infinite where the matrix is singular.

        Where the rank is below D, and d above zero, by the matrix determinant and inversion
        lemmas, without a matrix of D x D.
        """
        size, rank = self.factor.shape
        lemma = self.blocks == 1 and rank < size and bool(np.all(np.asarray(self.diagonal) > 0))
        if not lemma:
            lower = lower_cholesky(self.dense())
            square = jnp.sum(solve_lower(lower, centred.T) ** 2, axis=0)
            return _log_normal(square, lower, jnp.zeros(()), size)
        scaled = self.factor / self.diagonal[:, None]
        lower = lower_cholesky(jnp.eye(rank, dtype=scaled.dtype) + self.factor.T @ scaled)
        explained = solve_lower(lower, scaled.T @ centred.T)
        square = jnp.sum(centred**2 / self.diagonal, axis=1) - jnp.sum(explained**2, axis=0)
        return _log_normal(square, lower, 0.5 * jnp.sum(jnp.log(self.diagonal)), size)


def _log_normal(
    square: Float[Array, "S"], lower: Float[Array, "R R"], rest: Scalar, size: int
) -> Float[Array, "S"]:
    """Log density from squared standard lengths, and half a log-determinant in two parts."""
    half_log_determinant = jnp.sum(jnp.log(jnp.diagonal(lower))) + rest
    return -0.5 * (square + size * jnp.log(2 * jnp.pi)) - half_log_determinant


def block_sizes(structure: Any, dimension: int) -> tuple[int, ...]:
    """Sizes of the blocks, which add up to the dimension.

    Example:
        >>> block_sizes("full", 3), block_sizes("mean-field", 3), block_sizes((1, 2), 3)
        ((3,), (1, 1, 1), (1, 2))
    """
    if structure == "full":
        return (dimension,)
    return (1,) * dimension if structure == "mean-field" else tuple(structure)


def check_rank(owner: Any, dimension: int) -> None:
    """Raise InputError if a rank, if there is one, is above the dimension."""
    name = type(owner).__name__
    sentence = f"{name}.rank must be at most the dimension {dimension}, got {owner.rank}."
    refuse({sentence: (owner.rank or 0) > dimension})


def blocks_by_size(sizes: Sequence[int]) -> list[Int[np.ndarray, "_ _"]]:
    """The dimensions of each block, blocks of one size together.

    Example:
        >>> [own.tolist() for own in blocks_by_size((1, 2, 1))]
        [[[0], [3]], [[1, 2]]]
    """
    starts = np.cumsum(sizes) - sizes
    return [
        starts[np.equal(sizes, size)][:, None] + np.arange(size) for size in dict.fromkeys(sizes)
    ]
