"""Gram matrices in place of inputs: `kernel="precomputed"`, in scikit-learn's manner."""

from __future__ import annotations

from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError
from latentgp.kernels import Constant, Kernel, Precomputed
from latentgp.kernels.precomputed import check_gram
from latentgp.rows.arrays import check_finite, unmasked

PRECOMPUTED = "precomputed"
_ALIKE = 1e-8  # of variances that count as equal
_FEWEST = 16  # further points that programs are compiled for
TreeT = TypeVar("TreeT")


def is_precomputed(kernel: Any) -> bool:
    """Whether an estimator was asked for Gram matrices in place of inputs."""
    return isinstance(kernel, str) and kernel == PRECOMPUTED


def checked_gram(X: Float[np.ndarray, "N N"]) -> Float[np.ndarray, "N N"]:
    """The Gram matrix of the rows of a fit.

    Raises:
        InputError: it is not square, symmetric and positive semi-definite, or zero.
    """
    if X.shape[0] != X.shape[1]:
        raise InputError(
            f'kernel="precomputed" fits a square Gram matrix of all pairs of rows, got shape '
            f"{X.shape}; give k(x_i, x_j) as X[i, j]."
        )
    check_gram(X)
    if not np.any(np.diagonal(X) > 0):
        raise InputError("The Gram matrix is zero; give one that has variances on its diagonal.")
    return X


def gram_kernel(gram: Float[np.ndarray, "N N"]) -> Kernel:
    """The kernel of a Gram matrix, with its scale as a variance that is learned."""
    scale = float(np.mean(np.diagonal(gram)))
    return Constant(scale) * Precomputed(gram / scale)


def checked_cross(
    X: Any, gram: Float[np.ndarray, "N N"]
) -> tuple[Float[np.ndarray, "S N"], Float[np.ndarray, "S"]]:
    """Covariances of new rows with those of the fit, and the new rows' own variances.

    Args:
        X: shape (S, N), or (S, N + 1) with the variances k(x, x) last.
        gram: of the fit.

    Raises:
        InputError: another shape, or variances that cannot be known.
    """
    X = np.asarray(unmasked(X), np.float64)
    number = len(gram)
    if X.ndim != 2 or X.shape[1] not in (number, number + 1):
        raise InputError(
            f'kernel="precomputed" predicts from covariances with the {number} rows of the fit, '
            f"shape (S, {number}), or (S, {number + 1}) with k(x, x) last, got shape {X.shape}."
        )
    check_finite("X", X)
    if X.shape[1] > number:
        if np.any(X[:, number] < 0):
            raise InputError("The last column of X, k(x, x), must not be negative.")
        return X[:, :number], X[:, number]
    diagonal = np.diagonal(gram)
    if np.ptp(diagonal) <= _ALIKE * np.max(diagonal):
        return X, np.full(len(X), diagonal[0])
    fitted = {row.tobytes(): variance for row, variance in zip(gram + 0.0, diagonal, strict=True)}
    variances = [fitted.get(row.tobytes()) for row in X + 0.0]
    unknown = [place for place, variance in enumerate(variances) if variance is None]
    if unknown:
        raise InputError(
            f"The variances k(x, x) of new rows such as {unknown[0]} are not known, as those of "
            f"the fit differ; give X of shape (S, {number + 1}) with k(x, x) in the last column."
        )
    return X, np.array(variances, np.float64)


def with_points(
    posterior: TreeT, cross: Float[np.ndarray, "S N"], variances: Float[np.ndarray, "S"]
) -> tuple[TreeT, Float[np.ndarray, "S 1"]]:
    """A posterior whose kernels know further points, and the inputs that name these.

    Covariances between two further points stay unknown.
    """
    # As many points as a program is compiled for; the fillers are asked about by nobody.
    fillers = max(_FEWEST, 1 << max(len(cross) - 1, 0).bit_length()) - len(cross)
    cross = np.concatenate([cross, np.zeros((fillers, cross.shape[1]))])
    variances = np.concatenate([variances, np.ones(fillers)])

    def extended(node: Any) -> Any:
        if not isinstance(node, Precomputed):
            return node
        leading = node.variances.shape[:-1]
        more = np.broadcast_to(cross, (*leading, *cross.shape))
        own = np.broadcast_to(variances, (*leading, *variances.shape))
        parts = (
            np.concatenate([node.matrix, more], axis=-2),
            np.concatenate([node.variances, own], axis=-1),
        )
        return eqx.tree_at(lambda kernel: (kernel.matrix, kernel.variances), node, parts)

    found = jax.tree.map(extended, posterior, is_leaf=lambda node: isinstance(node, Precomputed))
    numbers = cross.shape[1] + np.arange(len(cross) - fillers, dtype=np.float64)
    return found, numbers[:, None]
