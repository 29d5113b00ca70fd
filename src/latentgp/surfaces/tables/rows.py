"""Tables in files larger than memory: a sample to learn the encoding from, and rows in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
from jaxtyping import Float, Int

from latentgp.errors import InputError
from latentgp.rows.data import Data
from latentgp.surfaces.files.pieces import TableFiles, thinned
from latentgp.surfaces.files.rows import FileSource, located
from latentgp.surfaces.tables.levels import rows_listed
from latentgp.surfaces.tables.values import column_of, numbers_in, pandas_of

Made = TypeVar("Made")


class TableRows(FileSource):
    """Rows of tables with columns of any type, as an encoding that was learned reads them.

    Rows without a target, or of weight zero, are left out. `convert` is given frames of `columns`,
    whose index numbers the rows in their file.
    """

    def __init__(
        self,
        files: TableFiles,
        convert: Callable[[pd.DataFrame], Data],
        columns: list[str],
        *,
        target: str,
        weights: str | None,
    ):
        self.convert, self.target, self.weights = convert, target, weights
        columns = [files.known(name) for name in columns]
        deciding = [target, *([weights] if weights else [])]
        super().__init__(files, columns=columns, deciding=deciding, buffer_rows=1 << 18)

    def _weights(self, batch: pa.RecordBatch, rows: Int[np.ndarray, "N"]) -> Float[np.ndarray, "N"]:
        frame = _frame(batch.select(self._deciding), rows)
        known = column_of(frame, self.target).notna().to_numpy()
        if self.weights is None:
            return known.astype(np.float64)
        weights = np.where(known, numbers_in(column_of(frame, self.weights), "number"), 0.0)
        wrong = ~(weights >= 0)
        if wrong.any():
            raise InputError(
                f"the weights column {self.weights!r} is missing or negative in "
                f"{rows_listed(frame.index[wrong])}: give numbers, not negative"
            )
        return weights

    def _convert(self, batch: pa.RecordBatch, rows: Int[np.ndarray, "N"]) -> Data:
        return self.convert(_frame(batch, rows))


class Part(NamedTuple):
    """Some rows of a table as they are."""

    path: Path  # of their file
    first: int  # number of the first of them in the file, from 0
    done: int  # how many rows of all files there are up to the last of them
    batch: pa.RecordBatch

    def convert(self, convert: Callable[[pd.DataFrame], Made]) -> Made:
        """Result of `convert` on the rows, indexed by number in their file; errors name the row."""
        rows = self.first + np.arange(self.batch.num_rows)
        return located(lambda *of: convert(_frame(*of)), self.batch, rows, self.path)


class Frames:
    """The rows of `TableFiles` as they are, a part at a time, in their order."""

    def __init__(self, path: str | Path, as_text: Iterable[str] = ()):
        self._files = TableFiles(path, as_text)
        self.size = self._files.size

    def __iter__(self) -> Iterator[pd.DataFrame]:
        return (part.convert(lambda frame: frame) for part in self.after(0))

    def identity(self) -> str:
        """Digest of the rows."""
        return str(self._files.stamps())

    def after(self, done: int) -> Iterator[Part]:
        """The parts after those of so many rows, which are not read where a piece has no others."""
        for piece in self._files.pieces:
            row = piece.before
            if row + piece.rows <= done:
                continue
            for batch in self._files.batches(piece, self._files.names):
                new = max(0, done - row)  # the first of the batch that is not done
                first, row = piece.first + row + new - piece.before, row + batch.num_rows
                if row > done:
                    yield Part(piece.path, first, row, batch.slice(new))


def sample_of(files: TableFiles, rows: int) -> pd.DataFrame:
    """About so many rows of a table, evenly spaced over all of its files, or pieces of many."""
    counts = np.array([piece.rows for piece in files.pieces])
    pieces = thinned(counts)
    every, seen, parts = max(1, counts[pieces].sum() // rows), 0, []
    for index in pieces:
        for batch in files.batches(files.pieces[index], files.names):
            parts.append(batch.take(np.arange(-seen % every, batch.num_rows, every)))
            seen += batch.num_rows
    return pandas_of(pa.Table.from_batches(parts)).reset_index(drop=True)


def _frame(batch: pa.RecordBatch, rows: Int[np.ndarray, "N"]) -> pd.DataFrame:
    """Rows as a table whose index numbers them in their file."""
    return pandas_of(batch).set_axis(rows)
