"""Numbers by which rows are known again, without the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, UInt

_KEPT = 1 << 20  # eight megabytes


def fingerprints(*columns: Any) -> UInt[np.ndarray, "N"]:
    """A number of 64 bits for each of N rows of arrays of numbers, equal for equal rows.

    Example:
        >>> import numpy as np
        >>> one, two, three = fingerprints(np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0]]))
        >>> bool(one == two), bool(one == three)
        (True, False)
    """
    flat = [np.asarray(c, np.float64).reshape(len(c), -1) for c in columns]
    bits = np.ascontiguousarray(np.concatenate(flat, axis=1) + 0.0).view(np.uint64)
    found = np.zeros(len(bits), np.uint64)
    for column in bits.T:  # multiply and fold, as Steele, Lea & Flood (2014) mix
        found = (found ^ column) * np.uint64(0xBF58476D1CE4E5B9)
        found ^= found >> np.uint64(29)
        found *= np.uint64(0x94D049BB133111EB)
        found ^= found >> np.uint64(32)
    return found


def with_known(
    found: UInt[np.ndarray, "N"], known: UInt[np.ndarray, "known"] | None
) -> UInt[np.ndarray, "more"] | None:
    """The distinct fingerprints of rows and of those that are known; None of more than 2^20."""
    every = None if known is None else np.unique(np.concatenate([known, found]))
    return every if every is not None and len(every) <= _KEPT else None


def are_known(estimator: Any, X: Any, y: Any) -> Bool[np.ndarray, "N"] | None:
    """Which rows an estimator has learned from; None where it does not remember."""
    known = getattr(estimator, "row_fingerprints_", None)
    return None if known is None else np.isin(fingerprints(X, y), known)
