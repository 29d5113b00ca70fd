"""Arrays of rows: checked where they come in, and evenly spaced ones of them."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import Bool, Int

from latentgp.errors import InputError

# For messages about targets that are text.
FOR_LABELS = "for labels use GPClassifier, or GPOrdinalClassifier if they have an order"
_ROWS_NAMED = 5


def evenly(size: int, at_most: int) -> Int[np.ndarray, "W"]:
    """At most so many evenly spaced numbers of rows."""
    return np.unique(np.linspace(0, size - 1, min(size, at_most)).astype(int))


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
        raise InputError(f"y has infinity in {rows_named(infinite)}; write missing outputs as NaN.")
    return array


def as_rows(name: str, values: Any, size: int) -> np.ndarray:
    """One finite number a row as a float64 array of shape (N,)."""
    array = _as_numbers(name, values)
    if array.shape != (size,):
        raise InputError(f"{name} must have one number a row, shape ({size},), got {array.shape}.")
    check_finite(name, array)
    return array


def as_weights(weights: Any, size: int) -> np.ndarray:
    """Row weights as a float64 array of shape (N,), not negative, not all zero."""
    array = as_rows("weights", weights, size)
    if np.any(array < 0) or not np.any(array > 0):
        raise InputError(
            "weights must not be negative, nor zero in every row; give each row the number of "
            "times it counts."
        )
    return array


def check_finite(name: str, array: np.ndarray) -> None:
    """Raise InputError, naming the rows, where an array holds NaN or infinity."""
    bad = ~np.isfinite(array)
    if bad.any():
        where = rows_named(np.any(bad.reshape(len(array), -1), axis=1))
        raise InputError(f"{name} has NaN or infinity in {where}; drop or fill these rows first.")


def unmasked(values: Any) -> Any:
    """The values, with NaN (None where they are no numbers) for what a NumPy mask hides.

    `np.asarray` would take the mask off and show what is behind it.

    Example:
        >>> unmasked(np.ma.array([1, -9999], mask=[False, True])).tolist()
        [1.0, nan]
    """
    if isinstance(values, list | tuple) and any(map(np.ma.isMaskedArray, values)):
        values = np.ma.stack([np.ma.asarray(row) for row in values])
    if not isinstance(values, np.ma.MaskedArray):
        return values
    if not np.ma.is_masked(values):
        return np.asarray(values)
    if values.dtype.kind in "biuf":
        return np.ma.filled(values.astype(np.float64), np.nan)
    found = np.asarray(values).astype(object)
    found[np.ma.getmaskarray(values)] = None
    return found


def check_not_traced(name: str, values: Any) -> None:
    """Raise InputError where JAX traces what NumPy is to take."""
    leaves = jax.tree.leaves(values) if isinstance(values, eqx.Module) else [values]
    if any(isinstance(leaf, Tracer) for leaf in leaves):
        raise InputError(
            f"{name} is traced by jax.jit, grad or vmap, but this function takes NumPy arrays; use "
            "posterior.as_jax() for predictions there, latentgp.log_evidence for the evidence."
        )


def check_values(name: str, values: Any, accepted: Any, kind: str, advice: str) -> None:
    """Raise InputError, with rows and a value, unless all values of a quantity are accepted."""
    wrong = ~np.atleast_1d(accepted)
    if wrong.any():
        value = np.atleast_1d(values)[wrong][0]
        raise InputError(
            f"{name} must be {kind}, not {value:g} as in {rows_named(wrong)}; {advice}."
        )


def check_shape(name: str, array: Any, shape: tuple[int | str, ...], words: str) -> None:
    """Raise InputError unless an array has a shape, in which a letter stands for any size."""
    sizes = zip(array.shape, shape, strict=False)
    same = all(isinstance(size, str) or own == size for own, size in sizes)
    if len(array.shape) != len(shape) or not same:
        wanted = f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"
        raise InputError(f"{name} must have shape {wanted}, {words}, got {array.shape}.")


def rows_named(chosen: Bool[np.ndarray, "N"]) -> str:
    """Rows where a mask is true, for messages: how many, and the first of them."""
    rows = np.flatnonzero(chosen)
    named = ", ".join(map(str, rows[:_ROWS_NAMED])) + (" ..." if len(rows) > _ROWS_NAMED else "")
    return f"{len(rows)} row(s), counted from 0: {named}"


def _as_numbers(name: str, values: Any) -> np.ndarray:
    check_not_traced(name, values)
    if hasattr(values, "toarray"):
        raise InputError(f"{name} is a sparse matrix; give a dense one with {name}.toarray().")
    try:
        array = np.asarray(unmasked(values))
        if np.iscomplexobj(array):
            raise InputError(f"{name} holds complex numbers; give real ones.")
        array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        advice = f"; {FOR_LABELS}" if name == "y" else ""
        raise InputError(f"{name} must be an array of numbers: {error}{advice}.") from error
    return array
