"""Structured covariances of inducing variables: what their structure makes cheap."""

# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)

from abc import abstractmethod
from math import prod

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import block_diag
from jaxtyping import Float

from latentgp.numerics.cholesky import lower_cholesky
from latentgp.numerics.triangular import solve_lower
from latentgp.typing import Array, Scalar


class Operator(eqx.Module):
    """A positive definite M x M matrix, differentiable in what it is made of."""

    @property
    @abstractmethod
    def size(self) -> int:
        """M."""

    @abstractmethod
    def matrix(self) -> Float[Array, "M M"]:
        """All its entries."""

    def diagonal(self) -> Float[Array, "M"]:
        """Its entries on the diagonal."""
        return jnp.diagonal(self.matrix())

    @abstractmethod
    def inverse(self) -> Float[Array, "M M"]:
        """All entries of its inverse."""

    @abstractmethod
    def log_determinant(self) -> Scalar:
        """Logarithm of the determinant."""

    @abstractmethod
    def over(self, scale: Scalar) -> "Operator":
        """The matrix divided by a positive number."""

    def solved_trace(self, P: Float[Array, "M M"]) -> Scalar:
        """Trace of K^-1 P, P symmetric."""
        return jnp.sum(self.inverse() * P)


class Diagonal(Operator):
    """A diagonal matrix."""

    values: Float[Array, "M"]

    @property
    def size(self) -> int:
        return self.values.shape[0]

    def matrix(self) -> Float[Array, "M M"]:
        return jnp.diag(self.values)

    def inverse(self) -> Float[Array, "M M"]:
        return jnp.diag(1 / self.values)

    def log_determinant(self) -> Scalar:
        return jnp.sum(jnp.log(self.values))

    def over(self, scale: Scalar) -> "Diagonal":
        return Diagonal(self.values / scale)

    def solved_trace(self, P: Float[Array, "M M"]) -> Scalar:
        return jnp.sum(jnp.diagonal(P) / self.values)


class DiagonalPlusLowRank(Operator):
    """Diagonal plus B C^-1 B', B of few columns: O(M) but for its entries."""

    values: Float[Array, "M"]
    columns: Float[Array, "M R"]
    inner: Float[Array, "R R"]

    @property
    def size(self) -> int:
        return self.values.shape[0]

    def matrix(self) -> Float[Array, "M M"]:
        half = solve_lower(lower_cholesky(self.inner), self.columns.T)
        return jnp.diag(self.values) + half.T @ half

    def inverse(self) -> Float[Array, "M M"]:
        half = self._half()
        return jnp.diag(1 / self.values) - half.T @ half

    def log_determinant(self) -> Scalar:
        roots = lower_cholesky(self._capacity()), lower_cholesky(self.inner)
        more, less = (2 * jnp.sum(jnp.log(jnp.diagonal(root))) for root in roots)
        return jnp.sum(jnp.log(self.values)) + more - less

    def over(self, scale: Scalar) -> "DiagonalPlusLowRank":
        return DiagonalPlusLowRank(self.values / scale, self.columns, self.inner * scale)

    def solved_trace(self, P: Float[Array, "M M"]) -> Scalar:
        half = self._half()
        return jnp.sum(jnp.diagonal(P) / self.values) - jnp.sum((half @ P) * half)

    def _capacity(self) -> Float[Array, "R R"]:
        return self.inner + self.columns.T @ (self.columns / self.values[:, None])

    def _half(self) -> Float[Array, "R M"]:
        return solve_lower(
            lower_cholesky(self._capacity()), (self.columns / self.values[:, None]).T
        )


class Full(Operator):
    """A matrix without structure."""

    values: Float[Array, "M M"]

    @property
    def size(self) -> int:
        return self.values.shape[0]

    def matrix(self) -> Float[Array, "M M"]:
        return self.values

    def inverse(self) -> Float[Array, "M M"]:
        half = solve_lower(lower_cholesky(self.values), jnp.eye(self.size, dtype=self.values.dtype))
        return half.T @ half

    def log_determinant(self) -> Scalar:
        return 2 * jnp.sum(jnp.log(jnp.diagonal(lower_cholesky(self.values))))

    def over(self, scale: Scalar) -> "Full":
        return Full(self.values / scale)


class Banded(Operator):
    """A symmetric matrix that is zero off a band; row r of `bands` is its r-th lower diagonal."""

    bands: Float[Array, "band M"]

    @property
    def size(self) -> int:
        return self.bands.shape[1]

    def matrix(self) -> Float[Array, "M M"]:
        row, column = np.indices((self.size, self.size))
        shift, first = np.abs(row - column), np.minimum(row, column)
        inside = shift < len(self.bands)
        return jnp.where(inside, self.bands[np.where(inside, shift, 0), first], 0.0)

    def diagonal(self) -> Float[Array, "M"]:
        return self.bands[0]

    def inverse(self) -> Float[Array, "M M"]:
        return Full(self.matrix()).inverse()

    def log_determinant(self) -> Scalar:
        return Full(self.matrix()).log_determinant()

    def over(self, scale: Scalar) -> "Banded":
        return Banded(self.bands / scale)


class BlockDiagonal(Operator):
    """Blocks along the diagonal: those of the terms of a sum of kernels."""

    blocks: tuple[Operator, ...]

    @property
    def size(self) -> int:
        return sum(block.size for block in self.blocks)

    def matrix(self) -> Float[Array, "M M"]:
        return block_diag(*(block.matrix() for block in self.blocks))

    def inverse(self) -> Float[Array, "M M"]:
        return block_diag(*(block.inverse() for block in self.blocks))

    def log_determinant(self) -> Scalar:
        return jnp.sum(jnp.stack([block.log_determinant() for block in self.blocks]))

    def over(self, scale: Scalar) -> "BlockDiagonal":
        return BlockDiagonal(tuple(block.over(scale) for block in self.blocks))

    def solved_trace(self, P: Float[Array, "M M"]) -> Scalar:
        start, traces = 0, []
        for block in self.blocks:
            own = slice(start, start + block.size)
            traces.append(block.solved_trace(P[own, own]))
            start += block.size
        return jnp.sum(jnp.stack(traces))


class Kronecker(Operator):
    """A Kronecker product: that of the parts of a product of kernels of single columns."""

    factors: tuple[Operator, ...]

    @property
    def size(self) -> int:
        return prod(factor.size for factor in self.factors)

    def matrix(self) -> Float[Array, "M M"]:
        return _product([factor.matrix() for factor in self.factors])

    def inverse(self) -> Float[Array, "M M"]:
        return _product([factor.inverse() for factor in self.factors])

    def log_determinant(self) -> Scalar:
        size = self.size
        each = [factor.log_determinant() * (size // factor.size) for factor in self.factors]
        return jnp.sum(jnp.stack(each))

    def over(self, scale: Scalar) -> "Kronecker":
        first, *others = self.factors
        return Kronecker((first.over(scale), *others))

    def solved_trace(self, P: Float[Array, "M M"]) -> Scalar:
        for factor in self.factors:
            own, rest = factor.size, P.shape[0] // factor.size
            P = jnp.einsum("ij,iajb->ab", factor.inverse(), P.reshape(own, rest, own, rest))
        return P[0, 0]


def _product(matrices: list[Float[Array, "_ _"]]) -> Float[Array, "M M"]:
    product = matrices[0]
    for matrix in matrices[1:]:
        product = jnp.kron(product, matrix)
    return product
