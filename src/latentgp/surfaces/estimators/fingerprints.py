"""Numbers by which rows are known again, without the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import UInt

_KEPT = 256
_NONE = np.uint64(2**64 - 1)


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


def sketch(found: UInt[np.ndarray, "N"], known: Any = None) -> UInt[np.ndarray, "known"]:
    """The 256 least distinct fingerprints, of rows whose sketch is `known` too (Broder 1997)."""
    every = np.unique(found if known is None else np.concatenate([found, known]))[:_KEPT]
    return np.concatenate([every, np.full(_KEPT - len(every), _NONE)])


def share_known(found: UInt[np.ndarray, "N"], known: UInt[np.ndarray, "known"]) -> float | None:
    """Estimated share of rows that are among those of a sketch; None where none tells.

    Example:
        >>> import numpy as np
        >>> rows = fingerprints(np.arange(4000.0))
        >>> share_known(rows[:2000], sketch(rows)), share_known(rows[2000:], sketch(rows[:2000]))
        (1.0, 0.0)
    """
    telling = found[found <= known[-1]]
    return float(np.mean(np.isin(telling, known))) if len(telling) else None
