"""Rows that are in memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from latentgp.rows.data import Data
from latentgp.rows.source import (
    RowSource,
    counting_as,
    filled,
    in_order,
    is_held_out,
    refuse_one_side,
    share_of,
)
from latentgp.runtime.hashing import digest


class RowsInMemory(RowSource):
    """The rows of a `Data`."""

    def __init__(self, data: Data):
        self.data = data
        self.size = data.size
        self.total_weight = data.total_weight

    def sample(self, rows: int) -> Data:
        if rows >= self.size:
            return self.data
        return counting_as(self.data.evenly(rows), self.total_weight)

    def split(self, share: float) -> tuple["RowsInMemory", Data]:
        held = is_held_out(0, self.size, share_of(share, self.size))
        refuse_one_side(share, int(np.sum(~held)), int(np.sum(held)))
        return RowsInMemory(self.data.select(~held)), self.data.select(held)

    def identity(self) -> str:
        return digest(self.data)

    def layout(self) -> str:
        return self.identity()

    def epoch(self, seed: tuple[int, ...], rows: int, start: int = 0) -> Iterator[Data]:
        order = np.random.default_rng(seed).permutation(self.size)
        for first in range(start * rows, self.size, rows):
            yield filled(in_order(self.data, order[first : first + rows]), rows)
