"""Observations: rows of inputs and targets, with whatever else belongs to a row."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import Bool, Float, Int, UInt

from latentgp.arrays import Array
from latentgp.errors import InputError
from latentgp.sharding import place

# For messages about targets that are text.
FOR_LABELS = "for labels use GPClassifier, or GPOrdinalClassifier if they have an order"
_ROWS_NAMED = 5
_MERGED_AT_MOST = 200_000
_MULTIPLIERS, _MIXED_AT_ONCE = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB), 2**16


class Data(eqx.Module):
    """A table of observations.

    Args:
        X: inputs, shape (N, D), or (N,) for one input; any array-like of numbers.
        y: targets, shape (N,), or (N, P) for likelihoods of P outputs, where NaN is a missing one.
        weights: how often each row counts, shape (N,), not negative. A whole number w equals
            w copies of the row, zero equals its absence.
        side_information: one number a row that the likelihood reads by name, shape (N,), such
            as `noise_variance=` for a Gaussian.

    Raises:
        InputError: shapes that do not agree, no rows, or values that are not finite numbers;
            the message names the argument and the rows.

    Example:
        >>> data = Data([[0.0], [1.0]], [0.5, 0.7], noise_variance=[0.1, 0.2])
        >>> data.X.shape
        (2, 1)
    """

    X: Float[Array, "N D"]
    y: Float[Array, "N *P"]
    weights: Float[Array, "N"] | None
    side_information: dict[str, Float[Array, "N"]]

    def __init__(self, X: Any, y: Any, *, weights: Any = None, **side_information: Any):
        self.X = as_inputs(X)
        self.y = as_targets(y, len(self.X))
        self.weights = None if weights is None else as_weights(weights, len(self.X))
        self.side_information = {
            name: as_rows(name, values, len(self.X)) for name, values in side_information.items()
        }

    @property
    def size(self) -> int:
        """Number of rows N."""
        return self.X.shape[0]

    @property
    def total_weight(self) -> float:
        """How many rows these count as."""
        return float(self.size if self.weights is None else self.weights.sum())

    def select(self, index: Any) -> "Data":
        """The rows at an index (or where a mask is true)."""
        return jax.tree.map(lambda column: column[index], self)

    def merged(self) -> "Data":
        """The same observations with equal rows merged into one that has their weight.

        Rows of weight zero or without any output go, and what is left is put in an order of its
        own, so that a fit depends neither on the order of the rows nor on how a repeated row was
        written down. Where inputs are distinct this order follows from them alone.
        """
        return self.merged_rows()[0]

    def merged_rows(self) -> tuple["Data", Int[np.ndarray, "N"]]:
        """The merged data, and in which of their rows each row is; -1 for one that is gone."""
        says = np.any(np.isfinite(self.y.reshape(self.size, -1)), axis=1)
        says &= self.weights is None or self.weights > 0
        if not says.any():
            raise InputError(
                "y has no number in any row; give rows that have at least one output each."
            )
        data = self if np.all(says) else self.select(says)
        origin = np.cumsum(says) - 1
        origin[~says] = -1
        if data.size > _MERGED_AT_MOST:
            return data, origin
        targets = data.y.reshape(data.size, -1)
        columns = [data.X, targets, *(c[:, None] for c in data.side_information.values())]
        table = np.ascontiguousarray(np.concatenate(columns, axis=1))
        table += 0.0  # makes -0.0 and 0.0 the same bytes
        first, inverse = _distinct(table, data.X.shape[1])
        weights = np.bincount(inverse, weights=data.weights)
        origin[says] = inverse
        weights = None if np.all(weights == 1) else weights.astype(np.float64)
        return data.select(first).reweighted(weights), origin

    def reweighted(self, weights: Float[Array, "N"] | None) -> "Data":
        """The same rows with other weights."""
        return eqx.tree_at(
            lambda data: data.weights, self, weights, is_leaf=lambda leaf: leaf is None
        )

    def to_device(self) -> "Data":
        """The same rows as JAX arrays, over all devices; call it inside the x64 context."""
        return place(self)

    def padded(self, number: int = 1) -> "Data":
        """The same observations in one of few numbers of rows, so that programs serve many sizes.

        Rows that fill up are copies of the last one with weight zero. There are a multiple of 64
        up to 512, above that one of 32 numbers in every octave: at most 3 % more.

        Args:
            number: of devices, by which the rows are divisible too.
        """
        size = _padded_size(self.size)
        more = size + -size % number - self.size
        weights = np.ones(self.size) if self.weights is None else np.asarray(self.weights)
        index = np.concatenate([np.arange(self.size), np.full(more, self.size - 1)])
        return self.select(index).reweighted(np.concatenate([weights, np.zeros(more)]))

    def divisible(self, number: int) -> "Data":
        """The same observations in a number of rows that is a multiple of another.

        The last row is written several times over, each with its part of the weight.
        """
        more = -self.size % number
        if not more:
            return self
        weights = np.ones(self.size) if self.weights is None else np.asarray(self.weights)
        index = np.concatenate([np.arange(self.size), np.full(more, self.size - 1)])
        weights = weights[index]
        weights[self.size - 1 :] /= more + 1
        return self.select(index).reweighted(weights)


def _padded_size(size: int) -> int:
    step = 64 if size <= 512 else 1 << ((size - 1).bit_length() - 6)
    return size + -size % step


def _distinct(
    table: Float[np.ndarray, "N C"], leading: int
) -> tuple[Int[np.ndarray, "K"], Int[np.ndarray, "N"]]:
    """Where each distinct row first is, and which of them a row is.

    They are in an order of their own, that of some leading columns where these differ.
    """
    bits = table.view(np.uint64)
    prints = [_fingerprints(columns) for columns in (bits[:, :leading], bits[:, leading:])]
    first, inverse = _as_wholes(np.stack(prints, axis=1))
    if len(first) < len(bits) and not np.array_equal(bits[first][inverse], bits):
        # Different rows of one fingerprint, about once in a billion tables.
        first, inverse = _as_wholes(bits)
    return first, inverse


def _as_wholes(
    bits: UInt[np.ndarray, "N C"],
) -> tuple[Int[np.ndarray, "K"], Int[np.ndarray, "N"]]:
    """Where each distinct row first is, in the order of their bytes, and which of them a row is."""
    rows = bits.view(np.dtype((np.void, bits.dtype.itemsize * bits.shape[1])))[:, 0]
    _, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
    return first, inverse


def _fingerprints(bits: UInt[np.ndarray, "N C"]) -> UInt[np.ndarray, "N"]:
    """A number of 64 bits for each row, equal for equal rows, by the mixer of Stafford (2011)."""
    half = np.uint64(32)
    salts = np.random.default_rng(0).integers(0, 2**64, size=bits.shape[1], dtype=np.uint64)
    found = np.empty(len(bits), np.uint64)
    rows = max(1, _MIXED_AT_ONCE // bits.shape[1])
    for start in range(0, len(bits), rows):
        mixed = bits[start : start + rows] ^ salts
        for multiplier in _MULTIPLIERS:
            mixed ^= mixed >> half
            mixed *= np.uint64(multiplier)
        mixed ^= mixed >> half
        found[start : start + rows] = mixed.sum(axis=1)
    return found


def as_inputs(X: Any, name: str = "X") -> np.ndarray:
    """Inputs as a float64 array of shape (N, D), checked to be finite numbers."""
    array = _as_numbers(name, X)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] == 0:
        raise InputError(
            f"{name} must have shape (rows, columns) with at least one column, "
            f"got shape {array.shape}; reshape it."
        )
    if array.shape[0] == 0:
        raise InputError(f"{name} has no rows; give at least one.")
    check_finite(name, array)
    return array


def as_targets(y: Any, size: int) -> np.ndarray:
    """Targets as a float64 array of shape (N,), or (N, P) with NaN for what is missing."""
    array = _as_numbers("y", y)
    if array.ndim != 2:
        return as_rows("y", array, size)
    if len(array) != size:
        raise InputError(f"y must have one row for each of X's {size}, got shape {array.shape}.")
    infinite = np.any(np.isinf(array), axis=1)
    if infinite.any():
        raise InputError(
            f"y has infinity in {rows_named(infinite)}; a missing output is written NaN."
        )
    return array


def check_outputs(y: Float[np.ndarray, "N *P"], outputs: tuple[int, ...], likelihood: str) -> None:
    """Raise if targets are not of as many outputs as a likelihood has, () for one number."""
    if y.shape[1:] != outputs:
        wanted = f"(rows, {outputs[0]})" if outputs else "(rows,)"
        raise InputError(
            f"{likelihood} needs y of shape {wanted}, got {y.shape}; change its shape, or choose a "
            "likelihood of as many outputs."
        )


def as_rows(name: str, values: Any, size: int) -> np.ndarray:
    """One finite number a row as a float64 array of shape (N,)."""
    array = _as_numbers(name, values)
    if array.shape != (size,):
        raise InputError(
            f"{name} must have one number a row, shape ({size},), got shape {array.shape}."
        )
    check_finite(name, array)
    return array


def as_weights(weights: Any, size: int) -> np.ndarray:
    """Row weights as a float64 array of shape (N,), not negative, not all zero."""
    array = as_rows("weights", weights, size)
    if np.any(array < 0) or not np.any(array > 0):
        raise InputError(
            "weights must not be negative and at least one must be positive; "
            "give each row the number of times it counts."
        )
    return array


def check_side_information(
    given: Mapping[str, Any], known: tuple[str, ...], likelihood: str
) -> None:
    """Raise if the rows carry something that the likelihood would not read."""
    for name in given:
        if name not in known:
            names = ", ".join(known) or "none"
            raise InputError(
                f"{likelihood} reads no per-row {name!r} (it knows: {names}); "
                "leave it out or choose a likelihood that reads it."
            )


def check_finite(name: str, array: np.ndarray) -> None:
    """Raise InputError, naming the rows, where an array holds NaN or infinity."""
    bad = ~np.isfinite(array)
    if bad.any():
        where = rows_named(np.any(bad.reshape(len(array), -1), axis=1))
        raise InputError(f"{name} has NaN or infinity in {where}; drop or fill these rows first.")


def check_not_traced(name: str, values: Any) -> None:
    """Raise InputError where JAX traces what NumPy is to take."""
    leaves = jax.tree.leaves(values) if isinstance(values, eqx.Module) else [values]
    if any(isinstance(leaf, Tracer) for leaf in leaves):
        raise InputError(
            f"{name} is traced by jax.jit, grad or vmap, but this function takes NumPy arrays; use "
            "posterior.as_jax() for predictions there, latentgp.log_evidence for the evidence."
        )


def rows_named(chosen: Bool[np.ndarray, "N"]) -> str:
    """Where a mask is true, for messages: how many rows, and the first of them."""
    rows = np.flatnonzero(chosen)
    named = ", ".join(map(str, rows[:_ROWS_NAMED])) + (" ..." if len(rows) > _ROWS_NAMED else "")
    return f"{len(rows)} row(s), counted from 0: {named}"


def _as_numbers(name: str, values: Any) -> np.ndarray:
    check_not_traced(name, values)
    if hasattr(values, "toarray"):
        raise InputError(f"{name} is a sparse matrix; give a dense one with {name}.toarray().")
    try:
        array = np.asarray(values)
        if np.iscomplexobj(array):
            raise InputError(f"{name} holds complex numbers; give real ones.")
        array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        advice = f"; {FOR_LABELS}" if name == "y" else ""
        raise InputError(f"{name} must be an array of numbers: {error}{advice}.") from error
    return array
