"""Rows in Parquet or CSV files, of which each process reads a part."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import jax
import numpy as np
import pandas as pd
import pyarrow as pa
from jaxtyping import Bool, Float, Int

from latentgp.errors import InputError
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
from latentgp.surfaces.files.pieces import Piece, TableFiles, thinned

Made = TypeVar("Made")
_COUNTED_AT_ONCE = 1 << 20


class _Own(NamedTuple):
    """Rows of a batch that belong to a source."""

    batch: pa.RecordBatch
    rows: Int[np.ndarray, "N"]  # their numbers in the file
    weights: Float[np.ndarray, "N"]  # how often each counts
    chosen: Int[np.ndarray, "B"]  # which of them belong to the source


class FileSource(RowSource):
    """Rows of files of one kind, of which each process reads a part.

    A subclass selects the rows, by the `deciding` columns (none where every row counts once), and
    converts the columns. Rows of weight zero are dropped; InputError if no row counts.
    """

    is_everywhere: ClassVar[bool] = False

    def __init__(
        self, files: TableFiles, *, columns: list[str], deciding: list[str], buffer_rows: int
    ):
        if buffer_rows < 1:
            raise InputError(f"buffer_rows must be at least 1, got {buffer_rows}.")
        self.files, self.buffer_rows = files, buffer_rows
        self.columns, self._deciding = columns, deciding
        self.check: Callable[[Data], None] | None = None
        self._share, self._held_out = 0.0, False
        self._part: tuple[int, int] | None = None
        self._measure()
        if not self.size:
            raise InputError(
                f"{files.path} has no row that counts by {' and '.join(deciding)}; fill them in."
            )

    @abstractmethod
    def _weights(self, batch: pa.RecordBatch, rows: Int[np.ndarray, "N"]) -> Float[np.ndarray, "N"]:
        """Weights of rows, given by number in their file, by the deciding columns."""

    @abstractmethod
    def _convert(self, batch: pa.RecordBatch, rows: Int[np.ndarray, "N"]) -> Data:
        """Rows of given numbers in their file, all of which count."""

    def _measure(self) -> None:
        """Count the rows of each piece, and what they count as."""
        worth = np.array([self._worth(piece) for piece in self.files.pieces])
        self._counts = worth[:, 0].astype(int)
        self.size, self.total_weight = int(self._counts.sum()), float(worth[:, 1].sum())

    def _worth(self, piece: Piece) -> tuple[float, float]:
        """Number of rows of a piece that are in this source, and their total weight."""
        if not self._deciding:
            rows = self._number_wanted(piece.before, piece.rows)
            return rows, rows
        own = [(len(o.chosen), o.weights[o.chosen].sum()) for o in self._own(piece, self._deciding)]
        return sum(rows for rows, _ in own), float(sum(weight for _, weight in own))

    def part(self, index: int, count: int) -> "FileSource":
        """Neighbouring rows: of a row group that two processes share, each reads all."""
        source = copy(self)
        source._part = index * self.size // count, (index + 1) * self.size // count
        return source

    def checked(self, check: Callable[[Data], None]) -> "FileSource":
        source = copy(self)
        source.check = check
        return source

    def split(self, share: float) -> tuple["FileSource", Data]:
        rest, held = copy(self), copy(self)
        rest._share = held._share = share_of(share, self.size)
        held._held_out = True
        rest._measure()
        held._measure()
        refuse_one_side(share, rest.size, held.size)
        return rest, joined(list(held._read(range(len(self._counts)))))

    def identity(self) -> str:
        settings = self.columns, self._deciding, self._share, self.buffer_rows
        return digest(self.files.stamps(), settings)

    def layout(self) -> str:
        return f"{self.files.layout()} {self.columns} {self._counts.tolist()} {self.total_weight}"

    def sample(self, rows: int) -> Data:
        source = copy(self)
        source._part = None  # of all rows, whichever part this is
        pieces = thinned(self._counts)
        every = max(1, self._counts[pieces].sum() // rows)
        return counting_as(joined(list(source._read(pieces, every))), self.total_weight)

    def epoch(self, seed: tuple[int, ...], rows: int, start: int = 0) -> Iterator[Data]:
        generator = np.random.default_rng(seed)
        buffers = self._buffers(generator.permutation(len(self._counts)))
        mixed = (in_order(buffer, generator.permutation(buffer.size)) for buffer in buffers)
        yield from islice(cut_into_blocks(mixed, rows), start, None)

    def _buffers(self, pieces: Iterable[int]) -> Iterator[Data]:
        """Rows in the order of the pieces, as many at a time as are mixed."""
        held, number = [], 0
        for data in self._read(pieces):
            held.append(data)
            number += data.size
            if number >= self.buffer_rows:
                yield joined(held)
                held, number = [], 0
        if held:
            yield joined(held)

    def _read(self, pieces: Iterable[int], every: int = 1) -> Iterator[Data]:
        """Each row (or one of so many) of some pieces, a part at a time, checked."""
        low, high = self._part or (0, self.size)
        before, seen = np.cumsum(self._counts) - self._counts, 0
        for index in pieces:
            piece, number = self.files.pieces[index], before[index]
            if number >= high or number + self._counts[index] <= low:
                continue
            for own in self._own(piece, self.columns):
                chosen = own.chosen[max(low - number, 0) : max(high - number, 0)]
                number += len(own.chosen)
                some = chosen[-seen % every :: every]
                seen += len(chosen)
                if len(some):
                    yield located(self._checked, own.batch.take(some), own.rows[some], piece.path)

    def _own(self, piece: Piece, columns: list[str]) -> Iterator[_Own]:
        read = 0
        for batch in self.files.batches(piece, columns):
            rows = piece.first + read + np.arange(batch.num_rows)
            weights = located(self._weights, batch, rows, piece.path)
            wanted = self._wanted(piece.before + read, batch.num_rows)
            yield _Own(batch, rows, weights, np.flatnonzero((weights > 0) & wanted))
            read += batch.num_rows

    def _wanted(self, first: int, rows: int) -> Bool[np.ndarray, "N"]:
        """Whether each of some rows is on this side of what is held out."""
        return is_held_out(first, rows, self._share) == self._held_out

    def _number_wanted(self, first: int, rows: int) -> int:
        """Number of rows on this side; a damaged file may claim trillions."""
        if not self._share:
            return 0 if self._held_out else rows
        parts = range(first, first + rows, _COUNTED_AT_ONCE)
        ends = (min(_COUNTED_AT_ONCE, first + rows - part) for part in parts)
        return sum(int(np.sum(self._wanted(*part))) for part in zip(parts, ends, strict=True))

    def _checked(self, batch: pa.RecordBatch, rows: Int[np.ndarray, "N"]) -> Data:
        data = self._convert(batch, rows)
        if self.check is not None:
            self.check(data)
        return data


class FileRows(FileSource):
    """Rows of a Parquet or CSV file of numbers, or of a folder of them, larger than memory.

    Every epoch goes through the pieces (row groups of Parquet, files of CSV) in another order, and
    rows are mixed in a buffer of bounded size. Files that are sorted by the target should have
    small row groups, or a buffer of many of them. The same seed gives the same blocks.

    Args:
        path: a file ending in .parquet, .pq or .csv, or a folder of files of one kind.
        target: the column to predict.
        inputs: the columns to predict from; None takes all that are not named otherwise, nor a
            table's index.
        weights: a column of row weights.
        buffer_rows: how many rows are mixed at a time, which bounds the memory.
        side_information: columns of what the likelihood reads a row, by its name for it.

    Raises:
        InputError: no such file or column, files whose columns differ, a column that is not of
            numbers, only weights of zero; while reading, a value that is not a finite number, with
            its file and row.

    Example:
        >>> import numpy as np, pandas, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> table = pandas.DataFrame({"x": np.arange(5.0), "y": np.ones(5)})
        >>> table.to_parquet(folder + "/part.parquet")
        >>> rows = FileRows(folder, target="y")
        >>> rows.size, rows.inputs
        (5, ('x',))
    """

    def __init__(
        self,
        path: str | Path,
        *,
        target: str,
        inputs: Sequence[str] | None = None,
        weights: str | None = None,
        buffer_rows: int = 1 << 19,
        **side_information: str,
    ):
        files = TableFiles(path)
        self.target, self.weights, self.side_information = target, weights, side_information
        deciding = [weights] if weights else []
        apart = [target, *deciding, *side_information.values()]
        if inputs is None:
            inputs = [name for name in files.names if name not in (*apart, *files.index_names)]
        self.inputs = tuple(inputs)
        if not self.inputs:
            raise InputError(f"{files.path} has no column to predict from; add one.")
        columns = [files.known(name) for name in (*self.inputs, *apart)]
        for name in columns:
            _refuse_text(files, name)
        super().__init__(files, columns=columns, deciding=deciding, buffer_rows=buffer_rows)

    def identity(self) -> str:
        roles = self.inputs, self.target, self.weights, self.side_information
        return digest(super().identity(), roles)

    def _weights(self, batch: pa.RecordBatch, rows: Int[np.ndarray, "N"]) -> Float[np.ndarray, "N"]:
        if self.weights is None:
            return np.ones(len(rows))
        weights = _numbers(batch, self.weights)
        if np.any(weights < 0):
            raise InputError(f"column {self.weights!r} is negative; give weights of at least 0.")
        return weights

    def _convert(self, batch: pa.RecordBatch, rows: Int[np.ndarray, "N"]) -> Data:
        columns = {name: _numbers(batch, name) for name in self.columns}
        return Data(
            np.stack([columns[name] for name in self.inputs], axis=1),
            columns[self.target],
            weights=None if self.weights is None else columns[self.weights],
            **{name: columns[column] for name, column in self.side_information.items()},
        )


def _numbers(batch: pa.RecordBatch, name: str) -> Float[np.ndarray, "N"]:
    """A column of numbers, checked to be finite."""
    values = batch.column(name).cast("float64", safe=False).to_numpy(zero_copy_only=False)
    if not np.all(np.isfinite(values)):
        raise InputError(f"column {name!r} is missing or not finite; drop or fill such rows first.")
    return values


def _refuse_text(files: TableFiles, name: str) -> None:
    """Raise if a column is none of numbers, with the first text in it."""
    kind, types = files.types[name], pa.types
    numeric = types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null
    if any(is_of(kind) for is_of in numeric):
        return
    where = _first_text(files, name) if kind in (pa.string(), pa.large_string()) else ""
    raise InputError(
        f"column {name!r} of {files.path} is of {kind}, not of numbers{where}; encode it, or name "
        "the inputs without it."
    )


def _first_text(files: TableFiles, name: str) -> str:
    """The first entry of a column of text that is not a number, in words."""
    for piece in files.pieces:
        row = piece.first
        for batch in files.batches(piece, [name]):
            texts = batch.column(0).to_pandas()
            numbers: Any = pd.to_numeric(texts, errors="coerce")
            wrong = np.flatnonzero(numbers.isna() & texts.notna())
            if wrong.size:
                return f" ({texts[wrong[0]]!r} in row {row + wrong[0]} of {piece.path}, from 0)"
            row += batch.num_rows
    return ""


def located(
    make: Callable[[pa.RecordBatch, Int[np.ndarray, "N"]], Made],
    batch: pa.RecordBatch,
    rows: Int[np.ndarray, "N"],
    path: Path,
) -> Made:
    """Result of `make`; an error names the file and the first row that raises it."""
    try:
        return make(batch, rows)
    except InputError as error:
        first, end = 0, len(rows)
        while end - first > 1:
            middle = (first + end) // 2
            if _reason(make, batch.slice(first, middle - first), rows[first:middle]):
                end = middle
            else:
                first = middle
        reason = _reason(make, batch.slice(first, 1), rows[first:end]) or error
        raise InputError(f"{path}, row {rows[first]} (from 0) by itself: {reason}") from error


def _reason(make: Callable[..., Any], *of: Any) -> InputError | None:
    """Why something cannot be made."""
    try:
        make(*of)
    except InputError as error:
        return error
    return None


def cut_into_blocks(parts: Iterable[Data], rows: int) -> Iterator[Data]:
    """Rows in blocks of one size from parts of any size; the last block is padded."""
    left: Data | None = None
    for part in parts:
        left = part if left is None else joined([left, part])
        first = 0
        while left.size - first >= rows:
            yield filled(left.select(slice(first, first + rows)), rows)
            first += rows
        left = left.select(slice(first, None))
    if left is not None and left.size:
        yield filled(left, rows)


def joined(parts: Sequence[Data]) -> Data:
    """Rows one after another."""
    return parts[0] if len(parts) == 1 else jax.tree.map(lambda *c: np.concatenate(c), *parts)
