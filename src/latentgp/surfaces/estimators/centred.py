"""Rows of a source whose targets have a constant taken off."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from latentgp.rows.data import Data
from latentgp.rows.source import RowSource


class CentredRows(RowSource):
    """The rows of another source, with a constant, the centre, taken off their targets."""

    def __init__(self, rows: RowSource, centre: float):
        self.rows, self.centre = rows, centre
        self.size, self.total_weight = rows.size, rows.total_weight
        self.is_everywhere = rows.is_everywhere  # type: ignore[misc]  # that of any kind of source

    def sample(self, rows: int) -> Data:
        return self.rows.sample(rows).shifted(-self.centre)

    def checked(self, check: Callable[[Data], None]) -> "CentredRows":
        return CentredRows(self.rows.checked(check), self.centre)

    def part(self, index: int, count: int) -> "CentredRows":
        return CentredRows(self.rows.part(index, count), self.centre)

    def split(self, share: float) -> tuple["CentredRows", Data]:
        rest, held_out = self.rows.split(share)
        return CentredRows(rest, self.centre), held_out.shifted(-self.centre)

    def identity(self) -> str:
        return f"{self.rows.identity()} less {self.centre}"

    def layout(self) -> str:
        return f"{self.rows.layout()} less {self.centre}"

    def epoch(self, seed: tuple[int, ...], rows: int, start: int = 0) -> Iterator[Data]:
        return (block.shifted(-self.centre) for block in self.rows.epoch(seed, rows, start))
