"""Rows that are in memory."""

from collections.abc import Iterator

import numpy as np

from latentgp.data import Data
from latentgp.sources.base import RowSource, counting_as, filled


class RowsInMemory(RowSource):
    """The rows of a `Data`."""

    def __init__(self, data: Data):
        self.data = data
        self.size = data.size
        self.total_weight = data.total_weight

    def sample(self, rows: int) -> Data:
        if rows >= self.size:
            return self.data
        chosen = np.linspace(0, self.size - 1, rows).astype(int)
        return counting_as(self.data.select(chosen), self.total_weight)

    def epoch(self, seed: tuple[int, ...], rows: int, start: int = 0) -> Iterator[Data]:
        order = np.random.default_rng(seed).permutation(self.size)
        for first in range(start * rows, self.size, rows):
            yield filled(self.data.select(order[first : first + rows]), rows)
