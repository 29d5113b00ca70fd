"""Cholesky factors with their inverses, and jitter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from latentgp.modules import stored
from latentgp.numerics import triangular
from latentgp.numerics.devices import is_leaf, one_after_another
from latentgp.typing import Array, Square

_LADDER_FACTOR, _MAXIMAL_JITTER = 10.0, 1e-2

Result = TypeVar("Result")


@stored
class Factor(NamedTuple):
    """A lower Cholesky factor L and its inverse.

    On CPUs and GPUs one inversion and matrix products beat triangular solves for many columns.
    """

    lower: Float[Array, "M M"]
    inverse: Float[Array, "M M"]

    @property
    def half_log_determinant(self) -> Float[Array, ""]:
        """Half the log-determinant of L L'."""
        return jnp.sum(jnp.log(jnp.diagonal(self.lower)))

    def inverse_of_product(self) -> Float[Array, "M M"]:
        """(L L')^-1."""
        return triangular.transpose_times_itself(self.inverse)


class JitteredFactor(NamedTuple):
    """A factor of K + jitter I, with the jitter that was needed (absolute; zero if none)."""

    factor: Factor
    jitter: Float[Array, ""]


@jax.custom_jvp
def lower_cholesky(A: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """The lower factor alone, by LAPACK; NaN where A is not positive definite.

    Example:
        >>> lower_cholesky(4 * jnp.eye(2)).tolist()
        [[2.0, 0.0], [0.0, 2.0]]
    """
    return _cholesky_of_one(A)


@one_after_another
def _cholesky_of_one(A: Float[Array, "M M"]) -> Float[Array, "M M"]:
    return jnp.linalg.cholesky(A, symmetrize_input=False)


@lower_cholesky.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (A,), (slope,) = primals, tangents
    lower = lower_cholesky(A)
    return lower, _lower_along(lower, slope)


def _lower_along(lower: Float[Array, "M M"], slope: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """DL = L Phi(L^-1 dA L^-T), Phi the lower triangle with half the diagonal (Murray 2016, 8)."""
    inverse = triangular.solve_lower(lower, jnp.eye(len(lower), dtype=lower.dtype))
    inner = inverse @ (0.5 * (slope + slope.T)) @ inverse.T
    return lower @ (jnp.tril(inner) - 0.5 * jnp.diag(jnp.diagonal(inner)))


def cholesky(A: Float[Array, "M M"]) -> Factor:
    """Factor of a positive definite matrix together with its inverse, by recursive halving.

    Everything but the leaves is a matrix product: with the leading half's factor and inverse
    known, L_21 = A_21 L_11^-T, L_22 is the factor of A_22 - L_21 L_21', and the inverse's corner
    is -L_22^-1 L_21 L_11^-1 (Golub & Van Loan 2013, 4.2.9).

    A matrix that is not positive definite gives NaN.

    Example:
        >>> import jax.numpy as jnp
        >>> cholesky(4 * jnp.eye(2)).lower.tolist()
        [[2.0, 0.0], [0.0, 2.0]]
    """
    size = A.shape[0]
    if is_leaf(size):
        lower = lower_cholesky(A)
        return Factor(lower, triangular.inverse_of_lower(lower))
    half = size // 2
    first = cholesky(A[:half, :half])
    corner = A[half:, :half] @ first.inverse.T
    second = cholesky(A[half:, half:] - corner @ corner.T)
    inverse_corner = -(second.inverse @ corner) @ first.inverse
    inverse = triangular.lower_of_blocks(first.inverse, inverse_corner, second.inverse)
    return Factor(triangular.lower_of_blocks(first.lower, corner, second.lower), inverse)


def climb_jitter(
    attempt: Callable[[Float[Array, "*Q"]], tuple[Result, Bool[Array, ""]]],
    scale: Float[Array, "*Q"],
) -> tuple[Result, Float[Array, "*Q"]]:
    """Try ever larger jitter, inside jit, until an attempt says that its result can be used.

    The rungs are none, then sqrt(eps) and powers of ten of it up to one hundredth, relative to a
    scale, the mean of the diagonal; several matrices, one scale each, climb together. Gives the
    first result accepted (the last one tried if none was), and its absolute jitter.
    """
    unit = float(np.sqrt(np.finfo(scale.dtype).eps))
    rungs = [0.0, *(unit * _LADDER_FACTOR ** np.arange(20))]
    ladder = jnp.array([rung for rung in rungs if rung <= _MAXIMAL_JITTER], scale.dtype)

    def climb(state):
        rung = state[0] + 1
        return rung, *attempt(ladder[rung] * scale)

    # The first attempt is made by the loop too, so that it is compiled once.
    shapes = jax.eval_shape(attempt, scale)
    nothing, refused = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    rung, result, _ = jax.lax.while_loop(
        lambda state: ~state[2] & (state[0] < ladder.size - 1),
        climb,
        (jnp.full((), -1, jnp.int32), nothing, refused),
    )
    return result, ladder[rung] * scale


def is_safe(lower: Float[Array, "M M"], scale: Float[Array, ""]) -> Bool[Array, ""]:
    """Whether every pivot of a factor is at least sqrt(eps) / 2 of the scale; false for NaN."""
    unit = float(np.sqrt(np.finfo(scale.dtype).eps))
    # Not by the least of them: of 4,096 numbers or more the CPU's minimum passes over NaN.
    return jnp.all(jnp.diagonal(lower) ** 2 >= 0.5 * unit * scale)


@jax.custom_jvp
def differentiable_cholesky(K: Float[Array, "M M"]) -> tuple[Float[Array, "M M"], Float[Array, ""]]:
    """The lower factor of a covariance matrix, and the jitter it needs, which has no derivative.

    For derivatives in reverse: the jitter is chosen by a loop, which has none.
    """
    return _jittered(lower_cholesky, K, None)


@differentiable_cholesky.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Any, Any]:
    (K,), (slope,) = primals, tangents
    lower, jitter = differentiable_cholesky(K)
    return (lower, jitter), (_lower_along(lower, slope), jnp.zeros_like(jitter))


def jittered_cholesky(K: Square, scale: Float[Array, ""] | None = None) -> JitteredFactor:
    """Factor of a covariance matrix, with as much jitter as makes it safe to invert.

    A well-conditioned matrix is factorised exactly as it is. Jitter is relative to `scale`, the
    mean of the diagonal unless given: of a conditional covariance that of the prior, because its
    rounding errors are.
    """
    return JitteredFactor(*_jittered(cholesky, K, scale))


def jittered_lower(K: Square, scale: Float[Array, ""] | None = None) -> Square:
    """The lower factor of `jittered_cholesky` without its inverse: for draws, in half the time."""
    return _jittered(lower_cholesky, K, scale)[0]


def _jittered(factorise: Callable[[Square], Any], K: Square, scale: Any) -> tuple[Any, Array]:
    scale = jnp.mean(jnp.diagonal(K)) if scale is None else scale
    identity = jnp.eye(K.shape[0], dtype=K.dtype)

    def attempt(jitter: Float[Array, ""]) -> tuple[Any, Bool[Array, ""]]:
        factor = factorise(K + jitter * identity)
        return factor, is_safe(jax.tree.leaves(factor)[0], scale)  # the lower one, or that alone

    return climb_jitter(attempt, scale)
