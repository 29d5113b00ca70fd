"""Numbers by which rows are known again."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import UInt

MOST_ROWS = 100_000  # of which fingerprints are kept


def fingerprints(*columns: Any) -> UInt[np.ndarray, "N"]:
    """A number of 64 bits for each row, equal for equal rows.

    Args:
        columns: arrays of N rows each, of numbers.

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
    return found
