"""A kernel that is known at some points only, by its Gram matrix."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError
from latentgp.kernels.base import Kernel, contains
from latentgp.kernels.index import IndexKernel, Invariant, numbers_of
from latentgp.rows.arrays import as_inputs
from latentgp.runtime.x64 import double_precision
from latentgp.typing import Array, in_double_precision

_ASYMMETRIC = 1e-8  # of the largest entry
_INDEFINITE = 1e-7  # of the largest variance, a row


class Precomputed(IndexKernel, Invariant):
    """A stored Gram matrix: the one input column has the numbers of its rows, from 0.

    Nothing of it is learned; `Constant(1.0) * Precomputed(K)` learns its scale, `WeightedSum` those
    of several. Methods through inducing points have no use for it, as these lie between rows.

    Args:
        matrix: covariances of all points with the first N, shape (points, N): the square Gram
            matrix of all points, or that of N points above covariances of others with these.
        variances: prior variances of the points, shape (points,); the diagonal unless given, as it
            has to be where points > N. Covariances between two others are not known: NaN.

    Raises:
        InputError: a matrix that is not square (without `variances`), finite, symmetric and
            positive semi-definite; variances that are not its diagonal.

    Example:
        >>> import latentgp as lgp, numpy as np
        >>> K = np.array([[1.0, 0.5], [0.5, 1.0]])
        >>> Precomputed(K).gram(np.array([[0.0], [1.0]]), np.array([[1.0]])).tolist()
        [[0.5], [1.0]]
    """

    things: ClassVar[str] = "points"
    remedy: ClassVar[str] = "the input is the number of a row of the matrix"
    matrix: Float[Array, "points N"] = eqx.field(converter=in_double_precision)
    variances: Float[Array, "points"] = eqx.field(converter=in_double_precision)

    def __init__(self, matrix: Any, variances: Any = None):
        self.matrix = matrix
        square = np.ndim(matrix) == 2 and np.shape(matrix)[0] == np.shape(matrix)[1]
        if variances is None and not square:
            raise InputError(
                f"Precomputed needs a square Gram matrix, got shape {np.shape(matrix)}; give the "
                "covariances of all pairs of points, or variances= beside those with the first."
            )
        self.variances = np.diagonal(np.asarray(matrix)) if variances is None else variances

    @property
    def size(self) -> int:
        return len(self.matrix)

    def __check_init__(self) -> None:
        if not (isinstance(self.matrix, np.ndarray) and isinstance(self.variances, np.ndarray)):
            return
        if self.matrix.ndim != 2 or self.variances.shape != self.matrix.shape[:1]:
            raise InputError(
                "Precomputed needs a matrix of shape (R, N) and R variances, got shapes "
                f"{self.matrix.shape} and {self.variances.shape}; give one variance a row."
            )
        points, known = self.matrix.shape
        if points < known:
            raise InputError(
                f"Precomputed has {points} rows and {known} columns; give the Gram matrix of all "
                "points that have a column."
            )
        check_gram(self.matrix[:known])
        if np.any(self.variances < 0) or not np.all(np.isfinite(self.variances)):
            raise InputError(
                "Precomputed.variances must be finite and not negative; give k(x, x) of each point."
            )
        scale = np.max(self.variances, initial=0.0)
        off = np.abs(np.diagonal(self.matrix) - self.variances[:known])
        if np.any(off > _ASYMMETRIC * scale):
            raise InputError(
                f"Precomputed.variances differ from the diagonal of the matrix by {off.max():.3g}; "
                "leave them out, or give that diagonal first."
            )

    @classmethod
    @double_precision
    def of(cls, kernel: Kernel, X: Any) -> "Precomputed":
        """The Gram matrix of a kernel at inputs of shape (N, D), computed once.

        Example:
            >>> import latentgp as lgp, numpy as np
            >>> Precomputed.of(lgp.Linear(), np.array([[1.0], [2.0]])).matrix.tolist()
            [[1.0, 2.0], [2.0, 4.0]]
        """
        X = as_inputs(X)
        kernel.check_inputs(X.shape[1])
        gram = np.asarray(jax.jit(type(kernel).symmetric_gram)(kernel, X))
        return cls(0.5 * (gram + gram.T))

    def extended(self, cross: Any, variances: Any) -> "Precomputed":
        """With further points, whose numbers follow those there are.

        Args:
            cross: covariances with the first N points, shape (S, N).
            variances: prior variances, shape (S,).

        Raises:
            InputError: shapes that do not fit, or variances that are negative.

        Example:
            >>> kernel = Precomputed([[1.0]]).extended([[0.5]], [2.0])
            >>> kernel.diagonal(np.array([[1.0]])).tolist()
            [2.0]
        """
        cross, variances = np.asarray(cross, np.float64), np.asarray(variances, np.float64)
        known = self.matrix.shape[1]
        if cross.ndim != 2 or cross.shape[1] != known or variances.shape != cross.shape[:1]:
            raise InputError(
                f"Further points need covariances with the first {known} points, shape (S, {known})"
                f", and S variances, got shapes {cross.shape} and {variances.shape}."
            )
        matrix = np.concatenate([self.matrix, cross])
        return Precomputed(matrix, np.concatenate([self.variances, variances]))

    def gram(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        matrix = jnp.asarray(jax.lax.stop_gradient(self.matrix))
        rows, columns = numbers_of(X)[:, None], numbers_of(Z)[None, :]
        found = matrix.at[rows, columns].get(mode="fill", fill_value=jnp.nan)
        if matrix.shape[0] == matrix.shape[1]:
            return found
        mirrored = matrix.at[columns, rows].get(mode="fill", fill_value=jnp.nan)
        found = jnp.where(columns < matrix.shape[1], found, mirrored)
        return jnp.where(rows == columns, self.diagonal(X)[:, None], found)

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "N"]:
        variances = jnp.asarray(jax.lax.stop_gradient(self.variances))
        return variances.at[numbers_of(X)].get(mode="fill", fill_value=jnp.nan)


def is_tabulated(kernel: Any) -> bool:
    """Whether a kernel, or a part of it, is known at some points only."""
    return contains(kernel, Precomputed)


def check_gram(matrix: Float[np.ndarray, "N N"]) -> None:
    """Raise InputError unless a matrix is finite, symmetric and positive semi-definite."""
    if not np.all(np.isfinite(matrix)):
        raise InputError("The Gram matrix has entries that are not finite; leave those points out.")
    if not matrix.size:
        return
    off = np.max(np.abs(matrix - matrix.T))
    if off > _ASYMMETRIC * np.max(np.abs(matrix)):
        raise InputError(
            f"The Gram matrix is not symmetric: entries differ from their mirror images by up to "
            f"{off:.3g}; give 0.5 * (K + K.T) if that is rounding."
        )
    tolerance = max(_INDEFINITE * len(matrix) * np.max(np.diagonal(matrix)), 0.0)
    try:
        np.linalg.cholesky(matrix + tolerance * np.eye(len(matrix)))
    except np.linalg.LinAlgError:
        smallest = np.linalg.eigvalsh(matrix)[0]
        if np.any(matrix) and smallest < -tolerance:
            raise InputError(
                f"The Gram matrix is indefinite: its smallest eigenvalue is {smallest:.3g}; give a "
                "matrix of covariances, or clip its eigenvalues at zero first."
            ) from None
