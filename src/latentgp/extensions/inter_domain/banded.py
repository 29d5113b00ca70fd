"""Symmetric positive definite banded matrices: factors, solves and inverses within the band.

A matrix of size M is given by the lower diagonals of its band, shape (band, M): entry (r, j)
is that of row j + r and column j, what lies outside of the matrix is zero. Costs are O(M band^2).
The columns go one after another, each step a few numbers, so that a loop compiles to one kernel.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.typing import Array, Scalar

_UNROLLED = 2  # steps of a loop that are one: more take long to compile


def factor(bands: Float[Array, "band M"]) -> Float[Array, "band M"]:
    """The Cholesky factor L, likewise by its lower diagonals; NaN if there is none.

    Example:
        >>> factor(jnp.array([[4.0, 5.0], [2.0, 0.0]])).tolist()
        [[2.0, 2.0], [1.0, 0.0]]
    """
    width = len(bands)

    def step(pending: Any, column: Any) -> tuple[Any, Any]:
        # pending[s][r]: what earlier columns take off entry r of the s-th column from here.
        here = [column[r] - pending[0][r] for r in range(width)]
        root = jnp.sqrt(here[0])
        found = [root, *(entry / root for entry in here[1:])]
        zero = jnp.zeros_like(root)
        later = [*pending[1:], [zero] * width]
        for s in range(1, width):
            for r in range(width - s):
                later[s - 1][r] = later[s - 1][r] + found[s] * found[s + r]
        return later[: max(width - 1, 1)], jnp.stack(found)

    zero = jnp.zeros((), bands.dtype)
    start = [[zero] * width for _ in range(max(width - 1, 1))]
    _, columns = jax.lax.scan(step, start, bands.T, unroll=_UNROLLED)
    return columns.T


def solve_factor(
    lower: Float[Array, "band M"], right: Float[Array, "M *S"]
) -> Float[Array, "M *S"]:
    """L^-1 times columns."""
    return _substituted(lower[0], _rows(lower), right, reverse=False)


def solve_transposed(
    lower: Float[Array, "band M"], right: Float[Array, "M *S"]
) -> Float[Array, "M *S"]:
    """L^-T times columns."""
    return _substituted(lower[0], lower[1:], right, reverse=True)


def inverse_within(lower: Float[Array, "band M"]) -> Float[Array, "band M"]:
    """Diagonals of (L L')^-1 within the band (Takahashi, Fagan & Chen 1973).

    Example:
        >>> inverse_within(jnp.array([[2.0, 2.0], [1.0, 0.0]])).tolist()
        [[0.3125, 0.25], [-0.125, 0.0]]
    """
    width = len(lower)

    def step(after: Any, column: Any) -> tuple[Any, Any]:
        # after[s][r]: entry (j + 1 + s + r, j + 1 + s) of the inverse.
        scale = 1 / column[0]

        def entry(i: int, k: int) -> Any:
            low, high = min(i, k), max(i, k)
            return after[low - 1][high - low]

        off = [
            -scale * sum(column[k] * entry(i, k) for k in range(1, width)) for i in range(1, width)
        ]
        rest = [column[k] * off[k - 1] for k in range(1, width)]
        found = [scale * (scale - sum(rest)), *off]
        now = [found, *after][: max(width - 1, 1)]
        return now, jnp.stack(found)

    zero = jnp.zeros((), lower.dtype)
    start = [[zero] * width for _ in range(max(width - 1, 1))]
    _, columns = jax.lax.scan(step, start, lower.T, reverse=True, unroll=_UNROLLED)
    inside = np.add.outer(np.arange(width), np.arange(lower.shape[1])) < lower.shape[1]
    return jnp.where(inside, columns.T, 0.0)


def inner(A: Float[Array, "band M"], B: Float[Array, "band M"]) -> Scalar:
    """Trace of A B for symmetric A and B within one band."""
    return jnp.sum(_both_halves(A * B))


def quadratic(A: Float[Array, "band M"], x: Float[Array, "M"]) -> Scalar:
    """Quadratic form x' A x."""
    return inner(A, _outer_within(x, len(A)))


@jax.custom_vjp
def log_determinant(bands: Float[Array, "band M"]) -> Scalar:
    """Logarithm of the determinant."""
    return 2 * jnp.sum(jnp.log(factor(bands)[0]))


def _log_determinant_forward(bands: Any) -> tuple[Any, Any]:
    lower = factor(bands)
    return 2 * jnp.sum(jnp.log(lower[0])), lower


def _log_determinant_backward(lower: Any, cotangent: Any) -> tuple[Any]:
    return (cotangent * _both_halves(inverse_within(lower)),)


log_determinant.defvjp(_log_determinant_forward, _log_determinant_backward)


@jax.custom_vjp
def solved_trace(K: Float[Array, "band M"], P: Float[Array, "band M"]) -> Scalar:
    """Trace of K^-1 P."""
    return inner(inverse_within(factor(K)), P)


def _solved_trace_forward(K: Any, P: Any) -> tuple[Any, Any]:
    # -K^-1 P K^-1 within the band is how the inverse there moves with K in the direction P.
    inverse, moved = jax.jvp(lambda K: inverse_within(factor(K)), (K,), (P,))
    return inner(inverse, P), (inverse, moved)


def _solved_trace_backward(residuals: Any, cotangent: Any) -> tuple[Any, Any]:
    inverse, moved = residuals
    return cotangent * _both_halves(moved), cotangent * _both_halves(inverse)


solved_trace.defvjp(_solved_trace_forward, _solved_trace_backward)


@jax.custom_vjp
def half_worth(A: Float[Array, "band M"], b: Float[Array, "M"]) -> Scalar:
    """(b' A^-1 b - log|A|) / 2."""
    return _half_worth_forward(A, b)[0]


def _half_worth_forward(A: Any, b: Any) -> tuple[Any, Any]:
    lower = factor(A)
    half = solve_factor(lower, b)
    return 0.5 * half @ half - jnp.sum(jnp.log(lower[0])), (lower, half)


def _half_worth_backward(residuals: Any, cotangent: Any) -> tuple[Any, Any]:
    lower, half = residuals
    solved = solve_transposed(lower, half)
    slope = -0.5 * _both_halves(_outer_within(solved, len(lower)) + inverse_within(lower))
    return cotangent * slope, cotangent * solved


half_worth.defvjp(_half_worth_forward, _half_worth_backward)


def _substituted(
    pivots: Float[Array, "M"],
    others: Float[Array, "width M"],
    right: Float[Array, "M *S"],
    reverse: bool,
) -> Float[Array, "M *S"]:
    """Forward or backward substitution; others[r - 1] are the factors of what r rows ago gave."""

    def step(known: Any, at: Any) -> tuple[Any, Any]:
        pivot, own, value = at
        for r, earlier in enumerate(known):
            value = value - own[r] * earlier
        value = value / pivot
        return [value, *known][: len(known)], value

    start = [jnp.zeros(right.shape[1:], right.dtype)] * len(others)
    at = pivots, others.T, right
    return jax.lax.scan(step, start, at, reverse=reverse, unroll=_UNROLLED)[1]


def _rows(lower: Float[Array, "band M"]) -> Float[Array, "width M"]:
    """Entries (j, j - r) of every row j, r from 1."""
    size = lower.shape[1]
    below = [jnp.pad(lower[r], (r, 0))[:size] for r in range(1, len(lower))]
    return jnp.stack(below) if below else lower[1:]


def _outer_within(x: Any, width: int) -> Any:
    """Outer product x x' within the band."""
    return jnp.stack([jnp.pad(x[r:], (0, r)) * x for r in range(width)])


def _both_halves(bands: Any) -> Any:
    """Lower diagonals with those off the diagonal counted twice."""
    return jnp.concatenate([bands[:1], 2 * bands[1:]])
