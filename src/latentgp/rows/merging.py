"""Equal rows of a table, found by fingerprints."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int, UInt

_MULTIPLIERS, _MIXED_AT_ONCE = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB), 2**16


def _distinct(
    table: Float[np.ndarray, "N columns"], leading: int
) -> tuple[Int[np.ndarray, "distinct"], Int[np.ndarray, "N"]]:
    """Index of the first copy of each distinct row, and which of them each row is.

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
    bits: UInt[np.ndarray, "N columns"],
) -> tuple[Int[np.ndarray, "distinct"], Int[np.ndarray, "N"]]:
    """The same in the order of the rows' bytes."""
    rows = bits.view(np.dtype((np.void, bits.dtype.itemsize * bits.shape[1])))[:, 0]
    _, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
    return first, inverse


def _fingerprints(bits: UInt[np.ndarray, "N columns"]) -> UInt[np.ndarray, "N"]:
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
