"""Structured covariances of inducing variables: what their structure makes cheap."""

# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)

from abc import abstractmethod
from functools import reduce
from math import prod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import block_diag
from jaxtyping import Float

from latentgp.numerics.cholesky import lower_cholesky
from latentgp.numerics.triangular import solve_lower
from latentgp.typing import Array, Scalar


class Operator(eqx.Module):
    """A positive definite M x M matrix, differentiable in what it is made of.

    All but `matrix` are defaults, for overriding where a structure makes them cheaper; `over` is of
    matrices that are linear in their fields.
    """

    @property
    def size(self) -> int:
        """M."""
        return jax.eval_shape(self.matrix).shape[0]

    @abstractmethod
    def matrix(self) -> Float[Array, "M M"]:
        """All its entries."""

    def diagonal(self) -> Float[Array, "M"]:
        """Its entries on the diagonal."""
        return jnp.diagonal(self.matrix())

    def inverse(self) -> Float[Array, "M M"]:
        """All entries of its inverse."""
        lower = lower_cholesky(self.matrix())
        half = solve_lower(lower, jnp.eye(len(lower), dtype=lower.dtype))
        return half.T @ half

    def log_determinant(self) -> Scalar:
        """Logarithm of the determinant."""
        return 2 * jnp.sum(jnp.log(jnp.diagonal(lower_cholesky(self.matrix()))))

    def over(self, scale: Scalar) -> "Operator":
        """The matrix divided by a positive number."""
        return jax.tree.map(lambda values: values / scale, self)

    def solved_trace(self, P: Float[Array, "M M"]) -> Scalar:
        """Trace of K^-1 P, P symmetric."""
        return jnp.sum(self.inverse() * P)


class Diagonal(Operator):
    """A diagonal matrix."""

    values: Float[Array, "M"]

    def matrix(self) -> Float[Array, "M M"]:
        return jnp.diag(self.values)

    def inverse(self) -> Float[Array, "M M"]:
        return jnp.diag(1 / self.values)

    def log_determinant(self) -> Scalar:
        return jnp.sum(jnp.log(self.values))

    def solved_trace(self, P: Float[Array, "M M"]) -> Scalar:
        return jnp.sum(jnp.diagonal(P) / self.values)


class DiagonalPlusLowRank(Operator):
    """Diagonal plus B C^-1 B', B of few columns: O(M) but for its entries."""

    values: Float[Array, "M"]
    columns: Float[Array, "M R"]
    inner: Float[Array, "R R"]

    def matrix(self) -> Float[Array, "M M"]:
        half = solve_lower(lower_cholesky(self.inner), self.columns.T)
        return jnp.diag(self.values) + half.T @ half

    def inverse(self) -> Float[Array, "M M"]:
        half = self._half()
        return jnp.diag(1 / self.values) - half.T @ half

    def log_determinant(self) -> Scalar:
        roots = self._capacity(), lower_cholesky(self.inner)
        more, less = (2 * jnp.sum(jnp.log(jnp.diagonal(root))) for root in roots)
        return jnp.sum(jnp.log(self.values)) + more - less

    def over(self, scale: Scalar) -> "DiagonalPlusLowRank":
        return DiagonalPlusLowRank(self.values / scale, self.columns, self.inner * scale)

    def solved_trace(self, P: Float[Array, "M M"]) -> Scalar:
        half = self._half()
        return jnp.sum(jnp.diagonal(P) / self.values) - jnp.sum((half @ P) * half)

    def _capacity(self) -> Float[Array, "R R"]:
        """Lower factor of C + B' diagonal^-1 B."""
        return lower_cholesky(self.inner + self.columns.T @ (self.columns / self.values[:, None]))

    def _half(self) -> Float[Array, "R M"]:
        return solve_lower(self._capacity(), (self.columns / self.values[:, None]).T)


class Full(Operator):
    """A matrix without structure."""

    values: Float[Array, "M M"]

    def matrix(self) -> Float[Array, "M M"]:
        return self.values


class Banded(Operator):
    """A symmetric matrix that is zero off a band; row r of `bands` is its r-th lower diagonal."""

    bands: Float[Array, "band M"]

    def matrix(self) -> Float[Array, "M M"]:
        width, size = self.bands.shape
        row, column = np.indices((size, size))
        shift, first = np.abs(row - column), np.minimum(row, column)
        return jnp.where(shift < width, self.bands[np.where(shift < width, shift, 0), first], 0.0)

    def diagonal(self) -> Float[Array, "M"]:
        return self.bands[0]


class BlockDiagonal(Operator):
    """Blocks along the diagonal: those of the terms of a sum of kernels."""

    blocks: tuple[Operator, ...]

    def matrix(self) -> Float[Array, "M M"]:
        return block_diag(*(block.matrix() for block in self.blocks))

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

    def matrix(self) -> Float[Array, "M M"]:
        return reduce(jnp.kron, [factor.matrix() for factor in self.factors])

    def log_determinant(self) -> Scalar:
        size = prod(factor.size for factor in self.factors)
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
