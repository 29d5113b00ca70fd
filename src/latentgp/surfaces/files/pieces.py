"""Tables in Parquet or CSV files, read through PyArrow a piece at a time."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Int

from latentgp.errors import InputError, in_a_line, warn_user
from latentgp.surfaces.files.csv import Contents, Header, batches_of, contents_of, header_of, wider

KIND_OF_ENDING = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}
_PIECE_ROWS = 65_536
_SAMPLED_AT_MOST, _SAMPLED_PIECES = 2_000_000, 50
_Stamp = tuple[int, int]  # size and time of the last change


class Piece(NamedTuple):
    """Unit of reading: a row group of a Parquet file, or a whole CSV file."""

    path: Path  # of the file
    group: int  # number of the row group; 0 of a CSV file
    first: int  # number of its first row in the file, from 0
    rows: int  # how many it has
    before: int  # how many rows there are in the pieces before it


class TableFiles:
    """Tables of the same columns in files of one kind.

    Types of columns are those that hold what is in all files: a CSV file is read through to know.
    Its columns named in `as_text` are text, whatever they look like; so are codes like 01067.
    """

    def __init__(self, path: str | Path, as_text: Iterable[str] = ()):
        self.path, self._as_text = Path(path), set(as_text)
        self.kind, self.paths = _files_of(self.path)
        self._headers: dict[Path, Header] = {}
        self._opened: dict[Path, tuple[_Stamp, Any]] = {}
        self.names = self._names_of(self.paths[0])
        for path in self.paths[1:]:
            for name in set(self.names) ^ set(self._names_of(path)):
                raise InputError(
                    f"column {name!r} is in one of {self.paths[0]} and {path} only; make the files "
                    "alike."
                )

    def known(self, name: str) -> str:
        """A column's name, if there is such a column."""
        if name not in self.names:
            near = difflib.get_close_matches(name, self.names, n=3) or self.names[:10]
            raise InputError(
                f"there is no column {name!r} in {self.path}: name one of "
                f"{in_a_line(', '.join(near))}"
            )
        return name

    @cached_property
    def pieces(self) -> list[Piece]:
        """Pieces in the order of the files."""
        pieces, before = [], 0
        for path, content in self._contents.items():
            first = 0
            for group, rows in enumerate(content.rows):
                pieces.append(Piece(path, group, first, rows, before))
                first, before = first + rows, before + rows
        return pieces

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.pieces[-1].before + self.pieces[-1].rows

    @cached_property
    def types(self) -> dict[str, pa.DataType]:
        """The type of each column, which holds what all files have."""
        known, origin = dict[str, Any](), dict[str, Path]()
        codes = {name for content in self._contents.values() for name in content.codes}
        as_text = codes | self._as_text if self.kind == "csv" else set()
        for path, content in self._contents.items():
            for name, kind in content.types.items() if sum(content.rows) else ():
                kind = pa.string() if name in as_text else kind
                both = wider(known.get(name, kind), kind)
                if both is None:
                    raise InputError(
                        f"column {name!r} is {known[name]} in {origin[name]} and {kind} in {path}; "
                        "make the files alike."
                    )
                if both != known.get(name):
                    known[name], origin[name] = both, path
        return known

    @cached_property
    def index_names(self) -> list[str]:
        """Columns that pandas wrote as the index of its tables."""
        if self.kind == "csv":
            return []
        with _reading(self.paths[0]):
            metadata = self._parquet(self.paths[0]).schema_arrow.pandas_metadata or {}
            return [name for name in metadata.get("index_columns", []) if isinstance(name, str)]

    def stamps(self) -> list[tuple[str, _Stamp]]:
        """Identity of the files: changes whenever one of them does."""
        return [(str(path), _stamp(path)) for path in self.paths]

    def layout(self) -> list[tuple[str, int]]:
        """Numbers of rows of all pieces by file name, whatever folder they are in."""
        within = self.path if self.path.is_dir() else self.path.parent
        return [(str(piece.path.relative_to(within)), piece.rows) for piece in self.pieces]

    def batches(self, piece: Piece, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Rows of a piece, a part at a time; InputError if it cannot be read, or has changed."""
        types = {name: self.types[name] for name in columns}
        read = 0
        with _reading(piece.path):
            if self.kind == "csv":
                text = {n: pa.string() if pa.types.is_null(t) else t for n, t in types.items()}
                batches = batches_of(piece.path, self._headers[piece.path], text)
            else:
                batches = self._parquet(piece.path).iter_batches(
                    _PIECE_ROWS, row_groups=[piece.group], columns=columns
                )
            for batch in batches:
                read += batch.num_rows
                yield _cast(batch, types) if self.kind == "parquet" else batch
        if read != piece.rows:
            raise InputError(
                f"{piece.path} has changed since it was opened: {read} rows where there were "
                f"{piece.rows}; open it again."
            )

    def _parquet(self, path: Path) -> Any:
        """A file, whose footer is read once: of many row groups it is long."""
        stamp = _stamp(path)
        before, metadata = self._opened.get(path, (stamp, None))
        if before != stamp:
            raise InputError(f"{path} has changed since it was opened; open it again.")
        file = pq.ParquetFile(path, metadata=metadata)
        self._opened[path] = stamp, file.metadata
        return file

    @cached_property
    def _contents(self) -> dict[Path, Contents]:
        contents = {path: self._content_of(path) for path in self.paths}
        if not any(sum(content.rows) for content in contents.values()):
            raise InputError(f"{self.path} has no rows; give at least one.")
        return contents

    def _content_of(self, path: Path) -> Contents:
        with _reading(path):
            if self.kind == "csv":
                return contents_of(path, self._headers[path])
            file = self._parquet(path)
            groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
            types = {field.name: field.type for field in file.schema_arrow}
            return Contents([group.num_rows for group in groups], types)

    def _names_of(self, path: Path) -> list[str]:
        with _reading(path):
            if self.kind == "csv":
                self._headers[path] = header_of(path)
                names = self._headers[path].names
            else:
                names = list(self._parquet(path).schema_arrow.names)
        if not names:
            raise InputError(f"{path} is empty; give a file with names of columns and rows.")
        refuse_duplicates(names, path)
        return names


def refuse_duplicates(names: Iterable[str], where: str | Path) -> None:
    """Raise InputError where two columns have one name."""
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    if twice:
        names = in_a_line(", ".join(map(repr, twice[:5])))
        raise InputError(f"{where} has more than one column named {names}: rename them")


def kind_of(path: Path) -> str:
    """Kind of a file by its ending; InputError of any other."""
    kind = KIND_OF_ENDING.get(path.suffix.lower())
    if kind is None:
        raise InputError(f"{path} does not end in .csv, .parquet or .pq: pass one of these")
    return kind


def _files_of(path: Path) -> tuple[str, list[Path]]:
    """The files of a path, in the order of their names, and their kind."""
    if not path.exists():
        raise InputError(f"{path} does not exist: pass the path of a file or folder")
    files = [path]
    if path.is_dir():
        known = (f for f in path.rglob("*") if f.suffix.lower() in KIND_OF_ENDING)
        files = sorted(f for f in known if f.is_file())
        if not files:
            raise InputError(f"{path} holds no file ending in .parquet, .pq or .csv")
    kinds = set(map(kind_of, files))
    if len(kinds) > 1:
        raise InputError(f"{path} holds both Parquet and CSV files; keep one kind.")
    folders = (folder for f in files for folder in f.relative_to(path).parent.parts)
    named = next((folder for folder in folders if "=" in folder), None)
    if named is not None:
        warn_user(
            f"{path} has folders such as {named}, whose names are not read: if that is a column to "
            "learn from, write it into the files"
        )
    return kinds.pop(), files


def thinned(rows: Int[np.ndarray, "rows"]) -> Int[np.ndarray, "S"]:
    """Pieces with any rows that a sample is of; of many millions some, evenly spaced."""
    pieces = np.flatnonzero(rows)
    step = min(rows.sum() // _SAMPLED_AT_MOST, len(pieces) // _SAMPLED_PIECES)
    return pieces[:: max(1, step)]


def _stamp(path: Path) -> _Stamp:
    return path.stat().st_size, path.stat().st_mtime_ns


def _cast(batch: pa.RecordBatch, types: dict[str, pa.DataType]) -> pa.RecordBatch:
    fields = [pa.field(name, types[name]) for name in batch.schema.names]
    schema = pa.schema(fields, batch.schema.metadata)
    return batch if schema.equals(batch.schema) else batch.cast(schema, safe=False)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Raise what readers raise as the user's error."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # whatever readers make of damaged files
        reason = in_a_line(error)
        raise InputError(f"{path} cannot be read: {reason}; mend or replace the file.") from error
