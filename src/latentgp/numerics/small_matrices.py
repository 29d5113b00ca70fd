"""Matrices of a few rows, very many side by side: element-wise operations in place of LAPACK.

LAPACK is never called for a batch (decision 0018), and here a call for each matrix would cost more
than the work. Loops over the few rows are unrolled, or run a fixed number of times.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentgp.typing import Array, Values

_SWEEPS = 10  # of Jacobi's method, which converges quadratically: 6 are enough for ten rows


def small_cholesky(A: Float[Array, "*N Q Q"]) -> Float[Array, "*N Q Q"]:
    """Lower Cholesky factors; NaN where a matrix is not positive definite.

    Example:
        >>> small_cholesky(4 * jnp.eye(2)[None]).tolist()
        [[[2.0, 0.0], [0.0, 2.0]]]
    """
    size = A.shape[-1]
    columns: list[Array] = []
    for j in range(size):
        rest = A[..., :, j]
        for column in columns:
            rest = rest - column * column[..., j : j + 1]
        scaled = rest / jnp.sqrt(rest[..., j : j + 1])
        columns.append(jnp.where(np.arange(size) >= j, scaled, 0.0))
    return jnp.stack(columns, axis=-1)


def small_solve_lower(
    lower: Float[Array, "*N Q Q"], right: Float[Array, "*N Q S"]
) -> Float[Array, "*N Q S"]:
    """L^-1 right for lower triangular L.

    Example:
        >>> small_solve_lower(2 * jnp.eye(2)[None], jnp.ones((1, 2, 1))).tolist()
        [[[0.5], [0.5]]]
    """
    rows: list[Array] = []
    for i in range(lower.shape[-1]):
        rest = right[..., i, :]
        for j, row in enumerate(rows):
            rest = rest - lower[..., i, j, None] * row
        rows.append(rest / lower[..., i, i, None])
    return jnp.stack(rows, axis=-2)


def small_inverse(A: Float[Array, "*N Q Q"]) -> Float[Array, "*N Q Q"]:
    """Inverses of positive definite matrices.

    Example:
        >>> small_inverse(4 * jnp.eye(2)[None]).tolist()
        [[[0.25, 0.0], [0.0, 0.25]]]
    """
    identity = jnp.broadcast_to(jnp.eye(A.shape[-1], dtype=A.dtype), A.shape)
    half = small_solve_lower(small_cholesky(A), identity)
    return jnp.swapaxes(half, -1, -2) @ half


def small_eigh(A: Float[Array, "*N Q Q"]) -> tuple[Float[Array, "*N Q"], Float[Array, "*N Q Q"]]:
    """Eigenvalues, in no order, and eigenvectors (columns) of symmetric matrices.

    Cyclic Jacobi rotations (Golub & Van Loan 2013, 8.5), ten sweeps. Without a derivative.

    Example:
        >>> values, vectors = small_eigh(jnp.array([[[2.0, 1.0], [1.0, 2.0]]]))
        >>> sorted(values[0].round(6).tolist())
        [1.0, 3.0]
    """
    A = jax.lax.stop_gradient(A)
    size = A.shape[-1]
    vectors = jnp.broadcast_to(jnp.eye(size, dtype=A.dtype), A.shape)
    if size == 1:
        return A[..., 0], vectors
    if size == 2:  # one rotation is all, and takes less time to compile
        one, off, other = A[..., 0, 0], A[..., 0, 1], A[..., 1, 1]
        tangent, c, s = _rotation(one, off, other)
        values = jnp.stack([one - tangent * off, other + tangent * off], axis=-1)
        rows = jnp.stack([c, s], axis=-1), jnp.stack([-s, c], axis=-1)
        return values, jnp.stack(rows, axis=-2)
    pairs = jnp.asarray(np.stack(np.triu_indices(size, 1), axis=1))

    def rotate(index: Int[Array, ""], state: tuple[Array, Array]) -> tuple[Array, Array]:
        A, vectors = state
        p, q = pairs[index % len(pairs)]
        _, cosine, sine = _rotation(A[..., p, p], A[..., p, q], A[..., q, q])
        c, s = cosine[..., None], sine[..., None]

        def turned(M: Array) -> Array:
            """Columns p and q turned."""
            one, other = M[..., :, p], M[..., :, q]
            return M.at[..., :, p].set(c * one - s * other).at[..., :, q].set(s * one + c * other)

        A = turned(jnp.swapaxes(turned(A), -1, -2))
        return A, turned(vectors)

    A, vectors = jax.lax.fori_loop(0, _SWEEPS * len(pairs), rotate, (A, vectors))
    return jnp.diagonal(A, axis1=-2, axis2=-1), vectors


def _rotation(one: Values, off: Values, other: Values) -> tuple[Values, Values, Values]:
    """Tangent, cosine and sine of the angle that makes `off` zero, half a right one at most.

    `one` and `other` are the diagonal's entries in the two columns.
    """
    gap = 0.5 * (other - one)
    sign = jnp.where(gap >= 0, 1.0, -1.0)
    below = jnp.abs(gap) + jnp.hypot(gap, off)
    tangent = jnp.where(off == 0, 0.0, sign * off / jnp.where(below == 0, 1.0, below))
    cosine = 1 / jnp.sqrt(1 + tangent**2)
    return tangent, cosine, cosine * tangent


def small_with_values(
    vectors: Float[Array, "*N Q Q"], values: Float[Array, "*N Q"]
) -> Float[Array, "*N Q Q"]:
    """Symmetric matrices of these eigenvectors (columns) and eigenvalues.

    Example:
        >>> small_with_values(jnp.eye(2)[None], jnp.array([[1.0, 3.0]])).tolist()
        [[[1.0, 0.0], [0.0, 3.0]]]
    """
    return (vectors * values[..., None, :]) @ jnp.swapaxes(vectors, -1, -2)
