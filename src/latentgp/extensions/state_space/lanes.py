"""Small matrices of very many lanes side by side, unrolled into their entries.

Each entry is an array over the lanes, which a compiler fuses and vectorises; an entry that is the
number 0.0 is known to be zero and costs nothing. Above a few rows unrolled code takes longer to
compile than it saves, and the same functions take arrays of shape (*lanes, rows, columns).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from latentgp.modules import stored_as

MOST_UNROLLED = 4  # rows


@stored_as("Unrolled")
class UnrolledMatrix(eqx.Module):
    """A matrix as rows of entries.

    Example:
        >>> turn = UnrolledMatrix([[0.0, 1.0], [1.0, 0.0]])
        >>> (turn @ UnrolledMatrix([[jnp.arange(3)], [2.0]])).rows[1][0].tolist()
        [0.0, 1.0, 2.0]
    """

    # I rows of J entries, each an array over the lanes or a number
    rows: tuple[tuple[Any, ...], ...]

    def __init__(self, rows: Iterable[Iterable[Any]]):
        self.rows = tuple(tuple(row) for row in rows)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), len(self.rows[0])

    @property
    def mT(self) -> "UnrolledMatrix":  # noqa: N802  (NumPy's name)
        return UnrolledMatrix(zip(*self.rows, strict=True))

    def __matmul__(self, other: "UnrolledMatrix") -> "UnrolledMatrix":
        columns = other.mT.rows
        return UnrolledMatrix([[_dot(row, column) for column in columns] for row in self.rows])

    def __add__(self, other: "UnrolledMatrix") -> "UnrolledMatrix":
        return self._with(other, _plus)

    def __sub__(self, other: "UnrolledMatrix") -> "UnrolledMatrix":
        return self._with(other, lambda a, b: a if _is_zero(b) else a - b)

    def each(self, function: Any) -> "UnrolledMatrix":
        """A function of every entry."""
        return UnrolledMatrix([map(function, row) for row in self.rows])

    def _with(self, other: "UnrolledMatrix", operation: Any) -> "UnrolledMatrix":
        pairs = zip(self.rows, other.rows, strict=True)
        return UnrolledMatrix(
            [[operation(*two) for two in zip(*rows, strict=True)] for rows in pairs]
        )


Matrix: TypeAlias = Any  # Unrolled, or an array of shape (*lanes, rows, columns)


def matrix(entries: Sequence[Sequence[Any]], lanes: Any) -> Matrix:
    """A matrix of numbers, or arrays shaped like the lanes, unrolled if it has few rows."""
    if max(len(entries), len(entries[0])) <= MOST_UNROLLED:
        return UnrolledMatrix(entries)
    flat = [entry for row in entries for entry in row]
    there = [entry for entry in flat if not _is_zero(entry)]
    shape = jnp.broadcast_shapes(lanes.shape, *map(jnp.shape, there))
    values = [jnp.broadcast_to(jnp.asarray(entry, lanes.dtype), shape) for entry in there]
    table = jnp.stack([*values, jnp.zeros(shape, lanes.dtype)], -1)
    places = np.full(len(flat), len(there))
    places[[not _is_zero(entry) for entry in flat]] = np.arange(len(there))
    return table[..., places.reshape(len(entries), len(entries[0]))]


def full(M: Matrix, lanes: Any) -> Matrix:
    """The same with every entry an array over all lanes, as a loop's carry has to be."""
    if not isinstance(M, UnrolledMatrix):
        return jnp.broadcast_to(M, (*lanes.shape, *M.shape[-2:]))
    return M.each(lambda entry: jnp.broadcast_to(jnp.asarray(entry, lanes.dtype), lanes.shape))


def kron(A: UnrolledMatrix, B: UnrolledMatrix) -> UnrolledMatrix:
    """Kronecker product A x B."""
    return UnrolledMatrix(
        [[_times(a, b) for a in upper for b in lower] for upper in A.rows for lower in B.rows]
    )


def block_diagonal(blocks: Sequence[UnrolledMatrix]) -> UnrolledMatrix:
    """Blocks along the diagonal."""
    size, rows, before = sum(block.shape[1] for block in blocks), [], 0
    for block in blocks:
        after = size - before - block.shape[1]
        rows += [[*[0.0] * before, *row, *[0.0] * after] for row in block.rows]
        before += block.shape[1]
    return UnrolledMatrix(rows)


def identity(size: int) -> UnrolledMatrix:
    """The identity."""
    return UnrolledMatrix([[float(i == j) for j in range(size)] for i in range(size)])


def scaled(M: Matrix, factor: Any) -> Matrix:
    """M times a number a lane."""
    if isinstance(M, UnrolledMatrix):
        return M.each(lambda entry: _times(entry, factor))
    return M * jnp.asarray(factor)[..., None, None]


def number(M: Matrix) -> Any:
    """The entry of a matrix of one row and column; of others the first."""
    return M.rows[0][0] if isinstance(M, UnrolledMatrix) else M[..., 0, 0]


def chosen(there: Any, M: Matrix, other: Matrix) -> Matrix:
    """M in some lanes, another in the rest."""
    if isinstance(M, UnrolledMatrix):
        return M._with(
            other, lambda a, b: 0.0 if _is_zero(a) and _is_zero(b) else jnp.where(there, a, b)
        )
    return jnp.where(there[..., None, None], M, other)


def beside(left: Matrix, right: Matrix) -> Matrix:
    """[left, right]."""
    if isinstance(left, UnrolledMatrix):
        return UnrolledMatrix([(*a, *b) for a, b in zip(left.rows, right.rows, strict=True)])
    shape = jnp.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    parts = [jnp.broadcast_to(part, (*shape, *part.shape[-2:])) for part in (left, right)]
    return jnp.concatenate(parts, -1)


def symmetric(M: Matrix) -> Matrix:
    """A symmetric matrix from its lower half."""
    if isinstance(M, UnrolledMatrix):
        size = range(len(M.rows))
        return UnrolledMatrix([[M.rows[max(i, j)][min(i, j)] for j in size] for i in size])
    return 0.5 * (M + M.mT)


def lower_of_rows(M: Matrix) -> Matrix:
    """Lower triangular L with L L' = M M', by modified Gram-Schmidt; M may be deficient.

    Example:
        >>> lower_of_rows(UnrolledMatrix([[3.0, 4.0], [0.0, 1.0]])).rows[0][0].item()
        5.0
    """
    if not isinstance(M, UnrolledMatrix):
        return _lower_of_rows(M)
    rest = [list(row) for row in M.rows]
    columns: list[list[Any]] = []
    for i, row in enumerate(rest):
        square = _dot(row, row)
        if _is_zero(square):
            columns.append([0.0] * len(rest))
            continue
        there = square > 0
        root = jnp.sqrt(jnp.where(there, square, 1.0))
        unit = [entry if _is_zero(entry) else entry / root for entry in row]
        column: list[Any] = [0.0] * i + [jnp.where(there, root, 0.0)]
        for j in range(i + 1, len(rest)):
            along = _dot(rest[j], unit)
            rest[j] = [
                _minus(entry, _times(along, u)) for entry, u in zip(rest[j], unit, strict=True)
            ]
            column.append(along)
        columns.append(column)
    return UnrolledMatrix(columns).mT


def _lower_of_rows(M: Any) -> Any:
    size = M.shape[-2]

    def step(carry: Any, i: Any) -> tuple[Any, Any]:
        row = jax.lax.dynamic_index_in_dim(carry, i, carry.ndim - 2, keepdims=False)
        square = jnp.sum(row**2, -1, keepdims=True)
        root = jnp.sqrt(jnp.where(square > 0, square, 1.0))
        unit = row / root
        along = jnp.einsum("...ij,...j->...i", carry, unit)
        return carry - along[..., None] * unit[..., None, :], along

    _, along = jax.lax.scan(step, M, jnp.arange(size))
    return jnp.tril(jnp.moveaxis(along, 0, -1))


def semidefinite_root(P: Matrix) -> Matrix:
    """Lower triangular L with L L' = P for a P whose pivots may be zero, or less by rounding."""
    if isinstance(P, UnrolledMatrix):
        return UnrolledMatrix(_root_of_entries(P.rows))

    def step(rest: Any, j: Any) -> tuple[Any, Any]:
        column = jax.lax.dynamic_index_in_dim(rest, j, rest.ndim - 1, keepdims=False)
        pivot = jax.lax.dynamic_index_in_dim(column, j, column.ndim - 1)
        scale = jnp.where(pivot > 0, 1 / jnp.sqrt(jnp.where(pivot > 0, pivot, 1.0)), 0.0)
        column = column * scale
        return rest - column[..., :, None] * column[..., None, :], column

    _, columns = jax.lax.scan(step, P, jnp.arange(P.shape[-1]))
    return jnp.tril(jnp.moveaxis(columns, 0, -1))


def _root_of_entries(P: Sequence[Sequence[Any]]) -> list[list[Any]]:
    size = len(P)
    L: list[list[Any]] = [[0.0] * size for _ in range(size)]
    for j in range(size):
        pivot = _minus(P[j][j], _dot(L[j][:j], L[j][:j]))
        if _is_zero(pivot):
            continue
        there = pivot > 0
        root = jnp.sqrt(jnp.where(there, pivot, 1.0))
        L[j][j] = jnp.where(there, root, 0.0)
        for i in range(j + 1, size):
            rest = _minus(P[i][j], _dot(L[i][:j], L[j][:j]))
            L[i][j] = 0.0 if _is_zero(rest) else jnp.where(there, rest / root, 0.0)
    return L


def unit_factors(J: Matrix, right: Matrix) -> tuple[list[Matrix], list[Any], list[Any]]:
    """Columns u_i, numbers d_i and y_i such that J = sum d_i u_i u_i' and right = sum y_i u_i.

    J is symmetric and need not be definite; right is one column. What follows a pivot of zero is
    zero, as in a semi-definite matrix.
    """
    size, rows, rest = J.shape[-1], _entries(J), [row[0] for row in _entries(right)]
    columns, pivots, values = [], [], []
    for k in range(size):
        pivot, value = rows[k][k], rest[k]
        there = pivot != 0
        safe = jnp.where(there, pivot, 1.0)
        column = [0.0] * k + [1.0]
        column += [jnp.where(there, rows[i][k] / safe, 0.0) for i in range(k + 1, size)]
        for i in range(k + 1, size):
            rest[i] = rest[i] - column[i] * value
            for j in range(k + 1, size):
                rows[i][j] = rows[i][j] - column[i] * column[j] * pivot
        columns.append(matrix([[entry] for entry in column], jnp.asarray(pivot)))
        pivots.append(pivot)
        values.append(value)
    return columns, pivots, values


def _entries(M: Matrix) -> list[list[Any]]:
    if isinstance(M, UnrolledMatrix):
        return [list(row) for row in M.rows]
    rows, columns = M.shape[-2:]
    return [[M[..., i, j] for j in range(columns)] for i in range(rows)]


def _is_zero(entry: Any) -> bool:
    return type(entry) is float and entry == 0.0


def _plus(a: Any, b: Any) -> Any:
    return b if _is_zero(a) else a if _is_zero(b) else a + b


def _minus(a: Any, b: Any) -> Any:
    return a if _is_zero(b) else a - b


def _times(a: Any, b: Any) -> Any:
    return 0.0 if _is_zero(a) or _is_zero(b) else a * b


def _dot(a: Sequence[Any], b: Sequence[Any]) -> Any:
    total: Any = 0.0
    for left, right in zip(a, b, strict=True):
        total = _plus(total, _times(left, right))
    return total
