"""Subsets of rows: those that are watched, and blocks of near ones."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from latentgp.rows.arrays import evenly

_WATCHED_ROWS, _WATCHED_NUMBERS = 200, 1 << 23


def watched_rows(size: int, numbers: int) -> Int[np.ndarray, "W"]:
    """Evenly spaced rows whose latents are kept draw by draw; all rows if that is cheap.

    They are at least 200, more while the `numbers` kept of each are at most eight million in all.
    """
    return evenly(size, max(_WATCHED_ROWS, _WATCHED_NUMBERS // numbers))


def blocks_of_rows(X: Float[np.ndarray, "N D"], size: int) -> Int[np.ndarray, "blocks B"]:
    """Rows near each other, at most so many in a block: halves of the widest column, repeated.

    Inputs are in length-scales if columns differ. N fills up the short blocks.

    Example:
        >>> blocks_of_rows(np.array([[3.0], [0.0], [2.0], [1.0], [4.0]]), 3).tolist()
        [[1, 3, 5], [2, 0, 4]]
    """
    done: list[np.ndarray] = []
    waiting = [np.arange(len(X))]
    while waiting:
        rows = waiting.pop(0)
        if len(rows) <= size:
            done.append(rows)
            continue
        widest = np.argmax(np.ptp(X[rows], axis=0))
        rows = rows[np.argsort(X[rows, widest], kind="stable")]
        waiting += [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
    width = max(map(len, done))
    return np.stack([np.pad(r, (0, width - len(r)), constant_values=len(X)) for r in done])
