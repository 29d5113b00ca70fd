"""Tables in Parquet or CSV files, read through PyArrow a piece at a time."""

import difflib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from latentgp.errors import InputError
from latentgp.sources.csv_files import Header, batches_of, contents_of, header_of, wider

if TYPE_CHECKING:
    import pyarrow as pa

KIND_OF_ENDING = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}
_PIECE_ROWS = 65_536


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


class _Content(NamedTuple):
    """How many rows each piece of a file has, and the types of its columns."""

    rows: list[int]
    types: dict[str, "pa.DataType"]


class TableFiles:
    """Tables of the same columns in files of one kind.

    Types of columns are those that hold what is in all files: a CSV file is read through to know.

    Args:
        path: a file ending in .parquet, .pq or .csv, or a folder of files of one kind.

    Raises:
        InputError: no such file, or one that cannot be read.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.kind, self.paths = _files_of(self.path)
        self._headers: dict[Path, Header] = {}
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
                f"there is no column {name!r} in {self.path}: name one of {', '.join(near)}"
            )
        return name

    @cached_property
    def pieces(self) -> list[Piece]:
        """What is read in one go, in the order of the files."""
        pieces, before = [], 0
        for path, content in self._contents.items():
            first = 0
            for group, rows in enumerate(content.rows):
                pieces.append(Piece(path, group, first, rows, before))
                first, before = first + rows, before + rows
        return pieces

    @property
    def size(self) -> int:
        """How many rows there are."""
        return self.pieces[-1].before + self.pieces[-1].rows

    @cached_property
    def types(self) -> dict[str, "pa.DataType"]:
        """The type of each column, which holds what all files have."""
        known: dict[str, Any] = {}
        origin: dict[str, Path] = {}
        for path, content in self._contents.items():
            for name, kind in content.types.items() if sum(content.rows) else ():
                both = wider(known.get(name, kind), kind)
                if both is None:
                    raise InputError(
                        f"column {name!r} is {known[name]} in {origin[name]} and {kind} in {path}; "
                        "make the files alike."
                    )
                if both != known.get(name):
                    known[name], origin[name] = both, path
        return known

    def stamps(self) -> list[tuple[str, int, int]]:
        """What tells these files from others, and from what becomes of them."""
        return [(str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in self.paths]

    def batches(self, piece: Piece, columns: list[str]) -> Iterator["pa.RecordBatch"]:
        """The rows of a piece, a part at a time.

        Raises:
            InputError: it cannot be read, or has changed since it was opened.
        """
        import pyarrow as pa

        types = {name: self.types[name] for name in columns}
        read = 0
        try:
            if self.kind == "csv":
                text = {n: pa.string() if pa.types.is_null(t) else t for n, t in types.items()}
                batches = batches_of(piece.path, self._headers[piece.path], text)
            else:
                batches = _parquet(piece.path).iter_batches(
                    _PIECE_ROWS, row_groups=[piece.group], columns=columns
                )
            for batch in batches:
                read += batch.num_rows
                yield _cast(batch, types) if self.kind == "parquet" else batch
        except (pa.ArrowException, OSError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise _unreadable(piece.path, error) from error
        if read != piece.rows:
            raise InputError(
                f"{piece.path} has changed since it was opened: {read} rows where there were "
                f"{piece.rows}; open it again."
            )

    @cached_property
    def _contents(self) -> dict[Path, _Content]:
        contents = {path: self._content_of(path) for path in self.paths}
        if not any(sum(content.rows) for content in contents.values()):
            raise InputError(f"{self.path} has no rows; give at least one.")
        return contents

    def _content_of(self, path: Path) -> _Content:
        import pyarrow as pa

        try:
            if self.kind == "csv":
                rows, types = contents_of(path, self._headers[path])
                return _Content([rows], types)
            file = _parquet(path)
            groups = range(file.metadata.num_row_groups)
            return _Content(
                [file.metadata.row_group(n).num_rows for n in groups],
                {field.name: field.type for field in file.schema_arrow},
            )
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _unreadable(path, error) from error

    def _names_of(self, path: Path) -> list[str]:
        import pyarrow as pa

        try:
            if self.kind == "csv":
                self._headers[path] = header_of(path)
                names = self._headers[path].names
            else:
                names = list(_parquet(path).schema_arrow.names)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _unreadable(path, error) from error
        if not names:
            raise InputError(f"{path} is empty; give a file with names of columns and rows.")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InputError(f"{path} has more than one column named {twice[0]!r}; rename them.")
        return names


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
    kinds = {KIND_OF_ENDING.get(f.suffix.lower()) for f in files}
    if None in kinds:
        raise InputError(f"{path} does not end in .csv, .parquet or .pq: pass one of these")
    if len(kinds) > 1:
        raise InputError(f"{path} holds both Parquet and CSV files; keep one kind.")
    return str(kinds.pop()), files


def _parquet(path: Path) -> Any:
    import pyarrow.parquet

    return pyarrow.parquet.ParquetFile(path)


def _cast(batch: "pa.RecordBatch", types: dict[str, "pa.DataType"]) -> "pa.RecordBatch":
    """The batch in columns of these types."""
    import pyarrow as pa

    fields = [field.with_type(types[field.name]) for field in batch.schema]
    schema = pa.schema(fields, batch.schema.metadata)
    return batch if schema.equals(batch.schema) else batch.cast(schema, safe=False)


def _unreadable(path: Path, error: Exception) -> InputError:
    reason = " ".join(str(error).split())
    return InputError(f"{path} cannot be read: {reason}; mend or replace the file.")
