"""Triangular matrices: solves, inverses and products that leave out what is zero.

By recursive halving everything but the leaves is a matrix product, of which libraries of small
triangular kernels make less than the large ones deserve (Golub & Van Loan 2013, 1.3).
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.numerics.devices import is_leaf, one_after_another
from latentgp.typing import Array, Square


def solve_lower(
    lower: Square, right: Float[Array, "M *B"], *, transposed: bool = False
) -> Float[Array, "M *B"]:
    """L^-1 right, or L^-T right, for a lower triangular L.

    Example:
        >>> solve_lower(2 * jnp.eye(2), jnp.ones(2)).tolist()
        [0.5, 0.5]
    """
    return _solve(transposed, lower, right)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _solve(transposed: bool, lower: Square, right: Float[Array, "M *B"]) -> Float[Array, "M *B"]:
    solve = partial(jax.scipy.linalg.solve_triangular, lower=True, trans=int(transposed))
    return one_after_another(lambda L, B: solve(L, B))(lower, right)


@_solve.defjvp
def _(transposed: bool, primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple:
    """d(L^-1 b) = L^-1 (db - dL L^-1 b), with the inverse itself: a product can be transposed."""
    (lower, right), (slope, right_slope) = primals, tangents
    solution = _solve(transposed, lower, right)
    inverse = _solve(False, lower, jnp.eye(len(lower), dtype=lower.dtype))
    slope = jnp.tril(slope)
    if transposed:
        return solution, inverse.T @ (right_slope - slope.T @ solution)
    return solution, inverse @ (right_slope - slope @ solution)


def inverse_of_lower(lower: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """L^-1 of a lower triangular matrix.

    Example:
        >>> inverse_of_lower(4 * jnp.eye(2)).tolist()
        [[0.25, 0.0], [0.0, 0.25]]
    """
    size = len(lower)
    if is_leaf(size):
        return solve_lower(lower, jnp.eye(size, dtype=lower.dtype))
    half = size // 2
    first, second = inverse_of_lower(lower[:half, :half]), inverse_of_lower(lower[half:, half:])
    return lower_of_blocks(first, -(second @ lower[half:, :half]) @ first, second)


def lower_product(A: Float[Array, "M M"], B: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """A B of lower triangular matrices: a third of a full product."""
    size = len(A)
    if is_leaf(size):
        return A @ B
    half = size // 2
    corner = A[half:, :half] @ B[:half, :half] + A[half:, half:] @ B[half:, :half]
    first = lower_product(A[:half, :half], B[:half, :half])
    return lower_of_blocks(first, corner, lower_product(A[half:, half:], B[half:, half:]))


def congruence(lower: Square, symmetric: Square, *, transposed: bool = False) -> Square:
    """L S L', or L' S L, of a lower triangular and a symmetric matrix: a third of two products.

    Example:
        >>> L, S = jnp.array([[1.0, 0.0], [2.0, 1.0]]), jnp.array([[2.0, 1.0], [1.0, 3.0]])
        >>> congruence(L, S).tolist(), congruence(L, S, transposed=True).tolist()
        ([[2.0, 5.0], [5.0, 15.0]], [[18.0, 7.0], [7.0, 3.0]])
    """
    factor = jax.lax.optimization_barrier(lower.T) if transposed else lower
    product = _congruence(factor, symmetric, transposed)
    return 0.5 * (product + product.T)


def _congruence(T: Float[Array, "M M"], S: Float[Array, "M M"], upper: bool) -> Float[Array, "M M"]:
    """T S T'. In "one" half of its rows T has a single block, in the "other" it has two."""
    size = len(S)
    if is_leaf(size):
        return (T @ S) @ T.T
    halves = slice(0, size // 2), slice(size // 2, size)
    one, other = halves[::-1] if upper else halves
    corner = T[other, one]
    near, far = corner @ S[one, one], T[other, other] @ S[other, one]
    cross = (near + far) @ T[one, one].T
    rest = (0.5 * near + far) @ corner.T
    first = _congruence(T[one, one], S[one, one], upper)
    second = _congruence(T[other, other], S[other, other], upper) + rest + rest.T
    if upper:
        return jnp.block([[second, cross], [cross.T, first]])
    return jnp.block([[first, cross.T], [cross, second]])


def transpose_times_itself(lower: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """L' L of a lower triangular matrix, by recursive halving: a third of a full product.

    XLA's product with a transposed left operand takes twice as long on a CPU as one with a
    transposed right operand, so L is transposed first, once and for good.
    """
    return _times_transpose(jax.lax.optimization_barrier(lower.T))


def _times_transpose(upper: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """U U' of an upper triangular matrix."""
    size = upper.shape[0]
    if is_leaf(size):
        return upper @ upper.T
    half = size // 2
    corner, last = upper[:half, half:], upper[half:, half:]
    cross = corner @ last.T
    first = _times_transpose(upper[:half, :half]) + corner @ corner.T
    return jnp.block([[first, cross], [cross.T, _times_transpose(last)]])


def lower_of_blocks(
    first: Float[Array, "N N"], corner: Float[Array, "B N"], second: Float[Array, "B B"]
) -> Float[Array, "M M"]:
    """[[first, 0], [corner, second]]."""
    above = jnp.zeros((first.shape[0], second.shape[0]), first.dtype)
    return jnp.block([[first, above], [corner, second]])
