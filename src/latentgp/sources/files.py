"""Rows in Parquet or CSV files, read through PyArrow a piece at a time."""

import difflib
import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from latentgp.data import Data
from latentgp.errors import InputError
from latentgp.sources.base import (
    MOST_HELD_OUT,
    RowSource,
    counting_as,
    cut_into_blocks,
    is_held_out,
    joined,
)

if TYPE_CHECKING:
    import pyarrow as pa

_ENDINGS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv"}
_PIECE_ROWS = 65_536
_CSV_BYTES = 8 << 20
_SAMPLED_AT_MOST = 2_000_000


class Piece(NamedTuple):
    """What is read in one go: a row group of a Parquet file, or a whole CSV file.

    Attributes:
        path: of the file.
        group: number of the row group; 0 of a CSV file.
        first: number of its first row in the file, from 0.
        rows: how many it has.
        before: how many rows there are in the pieces before it.
    """

    path: Path
    group: int
    first: int
    rows: int
    before: int


class FileSource(RowSource):
    """Rows of files of one kind, of which each process reads a part.

    A subclass says what becomes of the columns.

    Every epoch goes through the pieces (row groups of Parquet, files of CSV) in another order, and
    rows are mixed in a buffer of bounded size.

    Args:
        path: a file ending in .parquet, .pq or .csv, or a folder of files of one kind.
        buffer_rows: how many rows are mixed at a time, which bounds the memory.
    """

    is_everywhere: ClassVar[bool] = False

    def __init__(self, path: str | Path, *, buffer_rows: int):
        if buffer_rows < 1:
            raise InputError(f"buffer_rows must be at least 1, got {buffer_rows}.")
        self.path, self.buffer_rows = Path(path), buffer_rows
        self.kind, self.paths = _files_of(self.path)
        self.names = self._agreed_columns()
        self.columns: list[str] = list(self.names)
        self.check: Callable[[Data], None] | None = None
        self._share, self._held_out = 0.0, False
        self._part: tuple[int, int] | None = None

    @abstractmethod
    def _convert(self, batch: "pa.RecordBatch", path: Path, first: int) -> Data:
        """Some rows that were read, the first of which has a number in its file."""

    @abstractmethod
    def _csv_options(self) -> dict[str, Any]:
        """How PyArrow is to convert the columns of CSV files."""

    def _open(self) -> None:
        """Find the pieces, and how many rows there are."""
        self.pieces = self._count()
        if not any(piece.rows for piece in self.pieces):
            raise InputError(f"{self.path} has no rows; give at least one.")
        self._measure()

    def _known(self, name: str) -> str:
        """A column's name, if there is such a column."""
        if name not in self.names:
            near = difflib.get_close_matches(name, self.names, n=3) or list(self.names)[:10]
            raise InputError(
                f"there is no column {name!r} in {self.path}: name one of {', '.join(near)}"
            )
        return name

    @property
    def _is_plain(self) -> bool:
        """Whether every row of the files is a row, of weight one."""
        return not self._share

    def _measure(self) -> None:
        """Find out how many rows there are, and what they count as."""
        if self._is_plain:
            self.size = sum(piece.rows for piece in self.pieces)
            self.total_weight = float(self.size)
            return
        self.size, self.total_weight = 0, 0.0
        for data in self._read(self.pieces):
            self.size += data.size
            self.total_weight += data.total_weight

    def part(self, index: int, count: int) -> "FileSource":
        """Neighbouring rows: of a row group that two processes share, each reads all."""
        rows = sum(piece.rows for piece in self.pieces)
        source = copy(self)
        source._part = index * rows // count, (index + 1) * rows // count
        return source

    def checked(self, check: Callable[[Data], None]) -> "FileSource":
        source = copy(self)
        source.check = check
        return source

    def split(self, share: float) -> tuple["FileSource", Data]:
        rest, held = copy(self), copy(self)
        rest._share = held._share = share
        held._held_out = True
        rest._measure()
        kept, number = [], 0
        for data in held._read(self.pieces):
            kept.append(data)
            number += data.size
            if number >= MOST_HELD_OUT:
                break
        if not kept or not rest.size:
            raise InputError(f"held_out={share} leaves no rows on one side; change it.")
        return rest, joined(kept).select(slice(MOST_HELD_OUT))

    def identity(self) -> str:
        files = [(str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in self.paths]
        return hashlib.sha256(f"{files} {self.columns} {self._share}".encode()).hexdigest()

    def sample(self, rows: int) -> Data:
        pieces = self.pieces[:: max(1, -(-self.size // _SAMPLED_AT_MOST))]
        whole, here = (sum(piece.rows for piece in some) for some in (self.pieces, pieces))
        every = max(1, here * self.size // (whole * rows))  # of those that are not held out
        kept, first = [], 0
        for data in self._read(pieces):
            kept.append(data.select(slice(-first % every, None, every)))
            first += data.size
        return counting_as(joined(kept), self.total_weight)

    def epoch(self, seed: tuple[int, ...], rows: int, start: int = 0) -> Iterator[Data]:
        generator = np.random.default_rng(seed)
        order = generator.permutation(len(self.pieces))
        buffers = self._buffers([self.pieces[n] for n in order])
        mixed = (buffer.select(generator.permutation(buffer.size)) for buffer in buffers)
        for number, block in enumerate(cut_into_blocks(mixed, rows)):
            if number >= start:
                yield block

    def _buffers(self, pieces: Sequence[Piece]) -> Iterator[Data]:
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

    def _read(self, pieces: Sequence[Piece]) -> Iterator[Data]:
        """The rows of some pieces, a part at a time, checked."""
        low, high = self._part or (0, sum(piece.rows for piece in self.pieces))
        for piece in pieces:
            if not low < piece.before + piece.rows or not piece.before < high:
                continue
            row = piece.first
            for batch in self._batches(piece):
                number = piece.before + row - piece.first
                own = slice(max(low - number, 0), max(high - number, 0))
                data = self._own(batch, own, piece.path, row, number)
                if data is not None:
                    yield data
                row += batch.num_rows
            if row != piece.first + piece.rows:
                raise InputError(
                    f"{piece.path} has changed since it was opened: {row - piece.first} rows where "
                    f"there were {piece.rows}; open it again."
                )

    def _own(
        self, batch: "pa.RecordBatch", own: slice, path: Path, first: int, number: int
    ) -> Data | None:
        """Of rows that were read those of this source, if there are any."""
        part = batch.slice(own.start, min(own.stop, batch.num_rows) - own.start)
        if own.start >= batch.num_rows or not part.num_rows:
            return None
        data = self._as_data(part, path, first + own.start)
        if self._share:
            held = is_held_out(number + own.start, data.size, self._share)
            data = data.select(held == self._held_out)
        return data if data.size else None

    def _batches(self, piece: Piece) -> Iterator["pa.RecordBatch"]:
        import pyarrow as pa

        try:
            if self.kind == "parquet":
                yield from _parquet(piece.path).iter_batches(
                    _PIECE_ROWS, row_groups=[piece.group], columns=self.columns
                )
            else:
                yield from self._csv(piece.path)
        except (pa.ArrowException, OSError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise _unreadable(piece.path, error) from error

    def _csv(self, path: Path) -> Any:
        from pyarrow import csv

        options = csv.ConvertOptions(include_columns=self.columns, **self._csv_options())
        reading = csv.ReadOptions(block_size=_CSV_BYTES, use_threads=False)
        return csv.open_csv(path, read_options=reading, convert_options=options)

    def _as_data(self, batch: "pa.RecordBatch", path: Path, first: int) -> Data:
        try:
            data = self._convert(batch, path, first)
            if self.check is not None:
                self.check(data)
        except InputError as error:
            raise InputError(f"{path}, rows {first} and on: {error}") from error
        return data

    def _agreed_columns(self) -> dict[str, "pa.DataType"]:
        """Names and types of the columns, which all files have alike."""
        known = {field.name: field.type for field in self._schema(self.paths[0])}
        for path in self.paths[1:]:
            here = {field.name: field.type for field in self._schema(path)}
            for name in [*known, *here]:
                if known.get(name) != here.get(name):
                    raise InputError(
                        f"column {name!r} is {known.get(name, 'absent')} in {self.paths[0]} and "
                        f"{here.get(name, 'absent')} in {path}; make the files alike."
                    )
        return known

    def _schema(self, path: Path) -> Any:
        import pyarrow as pa
        from pyarrow import csv

        try:
            if self.kind == "parquet":
                return _parquet(path).schema_arrow
            with csv.open_csv(path) as reader:
                return reader.schema
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _unreadable(path, error) from error

    def _count(self) -> list[Piece]:
        pieces, before = [], 0
        for path in self.paths:
            first = 0
            for group, rows in enumerate(self._groups(path)):
                pieces.append(Piece(path, group, first, rows, before))
                first, before = first + rows, before + rows
        return pieces

    def _groups(self, path: Path) -> list[int]:
        """How many rows each piece of a file has."""
        if self.kind == "csv":
            whole = Piece(path, 0, 0, 0, 0)
            return [sum(batch.num_rows for batch in self._batches(whole))]
        metadata = _parquet(path).metadata
        return [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]


class FileRows(FileSource):
    """Rows of a Parquet or CSV file of numbers, or of a folder of them, larger than memory.

    Every epoch goes through the pieces (row groups of Parquet, files of CSV) in another order, and
    rows are mixed in a buffer of bounded size. Files that are sorted by the target should have
    small row groups, or a buffer of many of them. The same seed gives the same blocks.

    Args:
        path: a file ending in .parquet, .pq or .csv, or a folder of files of one kind.
        target: the column to predict.
        inputs: the columns to predict from; None takes all that are not named otherwise.
        weights: a column of row weights.
        buffer_rows: how many rows are mixed at a time, which bounds the memory.
        side_information: columns of what the likelihood reads a row, by its name for it.

    Raises:
        InputError: no such file or column, files whose columns differ, a column that is not of
            numbers; while reading, a value that is not a finite number, with its file and row.

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
        super().__init__(path, buffer_rows=buffer_rows)
        self.target, self.weights = target, weights
        self.side_information = dict(side_information)
        apart = [target, *([weights] if weights else []), *side_information.values()]
        if inputs is None:
            inputs = [name for name in self.names if name not in apart]
        self.inputs = tuple(inputs)
        if not self.inputs:
            raise InputError(f"{self.path} has no column to predict from; add one.")
        self.columns = [self._known(name) for name in (*self.inputs, *apart)]
        for name in self.columns:
            self._refuse_text(name, self.names[name])
        self._open()

    @property
    def _is_plain(self) -> bool:
        return super()._is_plain and self.weights is None

    def _csv_options(self) -> dict[str, Any]:
        import pyarrow as pa

        return {
            "column_types": dict.fromkeys(self.columns, pa.float64()),
            "true_values": ["true", "True", "TRUE"],
        }

    def _convert(self, batch: "pa.RecordBatch", path: Path, first: int) -> Data:
        columns = {}
        for name in self.columns:
            column = batch.column(name)
            values = column.cast("float64", safe=False).to_numpy(zero_copy_only=False)
            bad = np.flatnonzero(~np.isfinite(values))
            if bad.size:
                raise InputError(
                    f"column {name!r} is missing or not finite in row {first + bad[0]}, counted "
                    "from 0; drop or fill such rows first."
                )
            columns[name] = values
        return Data(
            np.stack([columns[name] for name in self.inputs], axis=1),
            columns[self.target],
            weights=None if self.weights is None else columns[self.weights],
            **{name: columns[column] for name, column in self.side_information.items()},
        )

    def _refuse_text(self, name: str, kind: "pa.DataType") -> None:
        from pyarrow import types

        numeric = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
        if not (numeric or types.is_decimal(kind)):
            raise InputError(
                f"column {name!r} of {self.path} is of {kind}, not of numbers; encode it, or "
                "name the inputs without it."
            )


def _files_of(path: Path) -> tuple[str, list[Path]]:
    """The files of a path, in the order of their names, and their kind."""
    if not path.exists():
        raise InputError(f"{path} does not exist: pass the path of a file or folder")
    files = [path]
    if path.is_dir():
        files = sorted(f for f in path.rglob("*") if f.suffix.lower() in _ENDINGS and f.is_file())
        if not files:
            raise InputError(f"{path} holds no file ending in .parquet, .pq or .csv")
    kinds = {_ENDINGS.get(f.suffix.lower()) for f in files}
    if None in kinds:
        raise InputError(f"{path} does not end in .csv, .parquet or .pq: pass one of these")
    if len(kinds) > 1:
        raise InputError(f"{path} holds both Parquet and CSV files; keep one kind.")
    return str(kinds.pop()), files


def _parquet(path: Path) -> Any:
    import pyarrow.parquet

    return pyarrow.parquet.ParquetFile(path)


def _unreadable(path: Path, error: Exception) -> InputError:
    reason = " ".join(str(error).split())
    return InputError(f"{path} cannot be read: {reason}; mend or replace the file.")
