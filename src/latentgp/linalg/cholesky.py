"""Cholesky factors with their inverses, and the one owner of jitter."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from latentgp.arrays import Array

_LEAF = 512
_LADDER_FACTOR = 10.0
_MAXIMAL_JITTER = 1e-2


class Factor(NamedTuple):
    """A lower Cholesky factor L and its inverse.

    On CPUs and GPUs alike one inversion and matrix products afterwards beat triangular solves
    with many right-hand sides.
    """

    lower: Float[Array, "M M"]
    inverse: Float[Array, "M M"]

    @property
    def half_log_determinant(self) -> Float[Array, ""]:
        """Half the log-determinant of L L'."""
        return jnp.sum(jnp.log(jnp.diagonal(self.lower)))

    def inverse_of_product(self) -> Float[Array, "M M"]:
        """(L L')^-1."""
        return transpose_times_itself(self.inverse)


class JitteredFactor(NamedTuple):
    """A factor of K + jitter I, with the jitter that was needed (absolute; zero if none)."""

    factor: Factor
    jitter: Float[Array, ""]


def cholesky(A: Float[Array, "M M"]) -> Factor:
    """Factor of a positive definite matrix together with its inverse.

    A matrix that is not positive definite gives NaN.

    Example:
        >>> import jax.numpy as jnp
        >>> cholesky(4 * jnp.eye(2)).lower.tolist()
        [[2.0, 0.0], [0.0, 2.0]]
    """
    lower = jnp.linalg.cholesky(A, symmetrize_input=False)
    return Factor(lower, inverse_of_lower(lower))


def jittered_cholesky(K: Float[Array, "M M"]) -> JitteredFactor:
    """Factor of a covariance matrix, with jitter climbing a ladder inside jit.

    The first rung is none. A rung is accepted if every pivot is at least sqrt(eps) / 2 times
    the mean of the diagonal, so what is accepted is safe to invert; the next rungs are
    sqrt(eps) times that mean and powers of ten of it, up to one hundredth. A well-conditioned
    matrix is factorised exactly as it is.
    """
    scale = jnp.mean(jnp.diagonal(K))
    unit = float(np.sqrt(np.finfo(K.dtype).eps))
    rungs = [0.0, *(unit * _LADDER_FACTOR**np.arange(20))]
    ladder = jnp.array([r for r in rungs if r <= _MAXIMAL_JITTER], K.dtype)

    def attempt(rung: Int[Array, ""]) -> tuple[Float[Array, "M M"], Bool[Array, ""]]:
        lower = jnp.linalg.cholesky(
            K + ladder[rung] * scale * jnp.eye(K.shape[0], dtype=K.dtype), symmetrize_input=False
        )
        # A comparison with NaN is false, so a failed factorisation is never accepted.
        return lower, jnp.min(jnp.diagonal(lower)) ** 2 >= 0.5 * unit * scale

    def climb(state):
        rung = state[0] + 1
        return rung, *attempt(rung)

    first = (jnp.zeros((), jnp.int32), *attempt(jnp.zeros((), jnp.int32)))
    rung, lower, _ = jax.lax.while_loop(
        lambda state: ~state[2] & (state[0] < ladder.size - 1), climb, first
    )
    return JitteredFactor(Factor(lower, inverse_of_lower(lower)), ladder[rung] * scale)


def inverse_of_lower(lower: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """Inverse of a lower triangular matrix, by recursive halving into matrix products."""
    size = lower.shape[0]
    if size <= _LEAF:
        identity = jnp.eye(size, dtype=lower.dtype)
        return jax.scipy.linalg.solve_triangular(lower, identity, lower=True)
    half = size // 2
    first, second = inverse_of_lower(lower[:half, :half]), inverse_of_lower(lower[half:, half:])
    corner = -(second @ lower[half:, :half]) @ first
    zeros = jnp.zeros((half, size - half), lower.dtype)
    return jnp.block([[first, zeros], [corner, second]])


def transpose_times_itself(lower: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """L' L of a lower triangular matrix, by recursive halving: a third of a full product."""
    size = lower.shape[0]
    if size <= _LEAF:
        return lower.T @ lower
    half = size // 2
    corner, last = lower[half:, :half], lower[half:, half:]
    cross = corner.T @ last
    first = transpose_times_itself(lower[:half, :half]) + corner.T @ corner
    return jnp.block([[first, cross], [cross.T, transpose_times_itself(last)]])
