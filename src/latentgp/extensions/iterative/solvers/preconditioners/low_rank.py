"""Preconditioners P = Phi Phi' + D of low rank plus a diagonal or blocks."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from latentgp.errors import InputError
from latentgp.extensions.iterative.solvers.operators import Covariance, System, TiledCovariance
from latentgp.extensions.iterative.solvers.preconditioners.base import Preconditioner
from latentgp.extensions.iterative.solvers.preconditioners.roots import (
    DiagonalRoot,
    Root,
    block_root,
)
from latentgp.kernels.features import random_features
from latentgp.modules import Module
from latentgp.numerics.cholesky import jittered_cholesky
from latentgp.numerics.eigen import eigenvectors
from latentgp.typing import Array, PerRow, RandomKey, Scalar, Vectors

# Of the largest prior variance: below it a pivot is rounding.
_ROUNDING = 1e-12


class LowRank(Preconditioner):
    """P = T (I + Q diag(s) Q') T', where T T' = D and Q has orthonormal columns.

    Its root is R = T (I + Q diag(sqrt(1 + s) - 1) Q').
    """

    rest: Root  # the root T of D
    basis: Float[Array, "N R"]  # Q
    excess: Float[Array, "R"]  # s >= 0

    def solve(self, right: Vectors) -> Vectors:
        inner = self._scaled(1 / (1 + self.excess), self.rest.solve(right))
        return self.rest.solve(inner, transposed=True)

    def log_determinant(self) -> Scalar:
        return self.rest.log_determinant() + jnp.sum(jnp.log1p(self.excess))

    def solve_root(self, right: Vectors, *, transposed: bool = False) -> Vectors:
        by = 1 / jnp.sqrt(1 + self.excess)
        if transposed:
            return self.rest.solve(self._scaled(by, right), transposed=True)
        return self._scaled(by, self.rest.solve(right))

    def times_root(self, right: Vectors) -> Vectors:
        return self.rest.times(self._scaled(jnp.sqrt(1 + self.excess), right))

    def _scaled(self, by: Float[Array, "R"], right: Vectors) -> Vectors:
        """(I + Q diag(by - 1) Q') right."""
        return right + self.basis @ ((by - 1)[:, None] * (self.basis.T @ right))


def low_rank(rest: Root, factor: Float[Array, "N R"]) -> LowRank:
    """T T' + Phi Phi' by a factorisation of T^-1 Phi, which keeps its digits where D is small.

    The inverse by Woodbury's formula has a difference of nearly equal numbers there.

    Example:
        >>> P = low_rank(DiagonalRoot(jnp.ones(2)), jnp.array([[1.0], [0.0]]))
        >>> P.solve(jnp.ones((2, 1)))[:, 0].round(6).tolist()
        [0.5, 1.0]
    """
    orthonormal, upper = jnp.linalg.qr(rest.solve(factor))
    left, singular, _ = jnp.linalg.svd(upper, full_matrices=False)
    return LowRank(rest, orthonormal @ left, singular**2)


def with_diagonal(
    system: System, factor: Float[Array, "N R"], left_out: PerRow | None = None
) -> LowRank:
    """S (Phi Phi' + diag(left out)) S + D near a system's S K S + D, the factor Phi Phi' near K."""
    variance = system.added
    if left_out is not None:
        variance = variance + system.scale**2 * jnp.maximum(left_out, 0)
    return low_rank(DiagonalRoot(jnp.sqrt(variance)), system.scale[:, None] * factor)


class Nystrom(Module):
    """K_XU K_UU^-1 K_UX in place of K, U a subset of the rows (Williams & Seeger 2001).

    Example:
        >>> from latentgp.extensions.iterative.solvers import operators
        >>> K = operators.StoredCovariance(jnp.diag(jnp.array([3.0, 1.0])))
        >>> A = operators.noisy_system(K, 1.0)
        >>> Nystrom(jnp.array([0]))(A).solve(jnp.ones((2, 1)))[:, 0].round(6).tolist()
        [0.25, 1.0]
    """

    rows: Int[Array, "M"]  # numbers of the rows U; `random_rows` draws them

    def __call__(self, system: System) -> LowRank:
        return with_diagonal(system, nystrom_factor(system.covariance, self.rows))


class Fitc(Module):
    """Q + diag(K - Q) in place of K, Q that of `Nystrom` (Snelson & Ghahramani 2006).

    Example:
        >>> from latentgp.extensions.iterative.solvers import operators
        >>> K = operators.StoredCovariance(jnp.diag(jnp.array([3.0, 1.0])))
        >>> A = operators.noisy_system(K, 1.0)
        >>> Fitc(jnp.array([0]))(A).solve(jnp.ones((2, 1)))[:, 0].round(6).tolist()
        [0.25, 0.5]
    """

    rows: Int[Array, "M"]  # numbers of the rows U

    def __call__(self, system: System) -> LowRank:
        factor = nystrom_factor(system.covariance, self.rows)
        left_out = system.covariance.diagonal() - jnp.sum(factor**2, axis=1)
        return with_diagonal(system, factor, left_out)


class Pitc(Module):
    """Q + blocks of (K - Q) in place of K (Quiñonero-Candela & Rasmussen 2005)."""

    rows: Int[Array, "M"]  # numbers of the rows U
    # rows of each block, shape (blocks, B), as `blocks_of_rows` gives them
    blocks: Int[Array, "blocks B"]

    def __call__(self, system: System) -> LowRank:
        factor = nystrom_factor(system.covariance, self.rows)
        rest = block_root(system, self.blocks, factor)
        return low_rank(rest, system.scale[:, None] * factor)


def nystrom_factor(covariance: Covariance, rows: Int[Array, "M"]) -> Float[Array, "N M"]:
    """K_XU L^-T with L L' = K_UU, which has jitter where it needs it."""
    across = covariance.columns(rows)
    return across @ jittered_cholesky(across[rows]).factor.inverse.T


def random_rows(key: RandomKey, size: int, number: int) -> Int[Array, "M"]:
    """Different rows out of so many, in random order.

    Example:
        >>> sorted(random_rows(jax.random.key(0), 3, 3).tolist())
        [0, 1, 2]
    """
    return jax.random.choice(key, size, (number,), replace=False)


class PivotedCholesky(Module):
    """L L' in place of K by the largest pivots (Harbrecht, Peters & Schneider 2012).

    Example:
        >>> from latentgp.extensions.iterative.solvers import operators
        >>> K = operators.StoredCovariance(jnp.diag(jnp.array([1.0, 3.0])))
        >>> A = operators.noisy_system(K, 1.0)
        >>> PivotedCholesky(1)(A).solve(jnp.ones((2, 1)))[:, 0].round(6).tolist()
        [1.0, 0.25]
    """

    number: int  # of pivots, M, which are as many evaluations of a column of K

    def __call__(self, system: System) -> LowRank:
        number = min(self.number, system.size)
        return with_diagonal(system, pivoted_cholesky(system.covariance, number))


def pivoted_cholesky(covariance: Covariance, number: int) -> Float[Array, "N M"]:
    """L of the M largest pivots, the largest of what is left over first.

    Columns are zero once nothing but rounding is left over.
    """
    variance = covariance.diagonal()
    tiny = max(_ROUNDING, float(jnp.finfo(variance.dtype).eps)) * jnp.max(variance)

    def pivot(step: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        factor, left_over = state
        row = jnp.argmax(left_over)
        largest = left_over[row]
        column = covariance.columns(row[None])[:, 0] - factor @ factor[row]
        column = jnp.where(largest > tiny, column / jnp.sqrt(jnp.maximum(largest, tiny)), 0.0)
        left_over = (left_over - column**2).at[row].set(0.0)
        return factor.at[:, step].set(column), jnp.maximum(left_over, 0)

    empty = jnp.zeros((covariance.size, number), variance.dtype)
    return jax.lax.fori_loop(0, number, pivot, (empty, variance))[0]


class RandomisedSVD(Module):
    """V diag(l) V' in place of K, its largest eigenvalues by random products (Halko et al. 2011).

    It takes two products of K with M + oversampling columns, and one more a power.
    """

    key: RandomKey  # random key of the products
    number: int  # of eigenvalues that are kept, M
    oversampling: int = 10  # columns beyond these
    powers: int = 1  # products more before the basis is taken, each of which makes it sharper

    def __call__(self, system: System) -> LowRank:
        K = system.covariance
        width = min(self.number + self.oversampling, K.size)
        dtype = system.scale.dtype
        basis = jax.random.normal(self.key, (K.size, width), dtype)
        for _ in range(1 + self.powers):
            basis, _ = jnp.linalg.qr(K.times(basis))
        inner = basis.T @ K.times(basis)
        values, vectors = eigenvectors(0.5 * (inner + inner.T))
        root = jnp.sqrt(jnp.maximum(values, 0))[-self.number :]
        return with_diagonal(system, basis @ (vectors[:, -self.number :] * root))


class Spectral(Module):
    """Phi Phi' in place of K with random Fourier features (Rahimi & Recht 2007).

    Raises:
        InputError: when called, a covariance without a kernel, or a kernel that has no features.
    """

    key: RandomKey  # random key of the frequencies
    number: int  # of features, an even number of at least 2

    def __call__(self, system: System) -> LowRank:
        covariance = system.covariance
        if not isinstance(covariance, TiledCovariance):
            raise InputError(
                f"Spectral has no features of a {type(covariance).__name__} covariance: give "
                "TiledCovariance, which knows its kernel"
            )
        X = covariance.X
        features = random_features(covariance.kernel, self.key, X.shape[1], self.number)
        return with_diagonal(system, features(X))
