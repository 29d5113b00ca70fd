"""What a source of rows gives to inference from batches."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

from latentgp.data import Data


class RowSource(ABC):
    """Rows that are read in epochs, each row once an epoch, in blocks of equal size.

    Attributes:
        size: number of rows.
        total_weight: what they count as.
    """

    size: int
    total_weight: float

    @abstractmethod
    def sample(self, rows: int) -> Data:
        """So many rows (or all, if there are fewer), weighted to count as all; always the same."""

    @abstractmethod
    def epoch(self, seed: tuple[int, ...], rows: int, start: int = 0) -> Iterator[Data]:
        """All rows in an order of the seed's own, in blocks of so many; the last filled up.

        Args:
            seed: the same gives the same blocks.
            rows: of a block. Those that fill up the last one have weight zero.
            start: how many blocks are left out at the beginning.
        """


def filled(data: Data, rows: int) -> Data:
    """A block with weights, filled up with rows of weight zero."""
    missing = rows - data.size
    weights = np.ones(data.size) if data.weights is None else np.asarray(data.weights)
    if missing:
        data = data.select(np.concatenate([np.arange(data.size), np.zeros(missing, int)]))
        weights = np.concatenate([weights, np.zeros(missing)])
    return data.reweighted(weights)


def counting_as(data: Data, total: Float[np.ndarray, ""] | float) -> Data:
    """The same rows, weighted to count as `total` rows."""
    weights = np.ones(data.size) if data.weights is None else np.asarray(data.weights)
    return data.reweighted(weights * (total / weights.sum()))
