"""Tables in files larger than memory: a sample to learn the encoding from, and rows in batches."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from latentgp.data import Data
from latentgp.errors import InputError
from latentgp.sources.files import FileSource
from latentgp.tables import MISSING_MARKERS

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_MOST_PIECES = 50


class TableRows(FileSource):
    """Rows of tables with columns of any type, as an encoding that was learned reads them.

    Args:
        path: a file ending in .parquet, .pq or .csv, or a folder of files of one kind.
        convert: what becomes of some rows.
        columns: which columns it needs; None takes all.
        buffer_rows: how many rows are mixed at a time, which bounds the memory.
    """

    def __init__(
        self,
        path: str | Path,
        convert: Callable[["pd.DataFrame"], Data],
        columns: list[str] | None = None,
        *,
        buffer_rows: int = 1 << 18,
    ):
        super().__init__(path, buffer_rows=buffer_rows)
        self.convert = convert
        if columns is not None:
            self.columns = [self._known(name) for name in columns]
        self._open()

    @property
    def _is_plain(self) -> bool:
        return False  # rows without a target are left out

    def frames(self) -> Iterator["pd.DataFrame"]:
        """The tables' rows as they are, a part at a time, in their order."""
        for piece in self.pieces:
            for batch in self._batches(piece):
                if batch.num_rows:
                    yield batch.to_pandas()

    def _convert(self, batch: "pa.RecordBatch", path: Path, first: int) -> Data:
        return self.convert(batch.to_pandas())

    def _csv_options(self) -> dict[str, Any]:
        return csv_options(self.names)


def csv_options(names: dict[str, "pa.DataType"]) -> dict[str, Any]:
    """How CSV is converted: whole numbers in the first lines may be followed by fractions."""
    import pyarrow as pa

    kinds = {n: pa.float64() if pa.types.is_integer(kind) else kind for n, kind in names.items()}
    return {
        "null_values": list(MISSING_MARKERS),
        "strings_can_be_null": True,
        "column_types": kinds,
    }


def sample_of(path: str | Path, rows: int) -> "pd.DataFrame":
    """About so many rows of a table, from all over its files."""
    import pandas as pd

    source = _Glance(path)
    step = -(-len(source.pieces) // _MOST_PIECES)
    pieces = source.pieces[::step]
    each = -(-rows // len(pieces))
    parts = []
    for piece in pieces:
        frame = next(iter(source._batches(piece))).to_pandas()
        parts.append(frame.iloc[:: max(1, len(frame) // each)])
    return pd.concat(parts, ignore_index=True)


class _Glance(TableRows):
    """Files of which no row is converted."""

    def __init__(self, path: str | Path):
        super().__init__(path, _not_converted)

    def _measure(self) -> None:
        self.size = sum(piece.rows for piece in self.pieces)
        self.total_weight = float(self.size)


def _not_converted(frame: "pd.DataFrame") -> Data:
    raise InputError("These rows are looked at only; give an encoding to convert them.")


def frames_of(path: str | Path) -> Iterator["pd.DataFrame"]:
    """The rows of tables as they are, a part at a time, in their order."""
    return _Glance(path).frames()


def number_of_rows(path: str | Path) -> int:
    """How many rows the files of a table have."""
    return int(np.sum([piece.rows for piece in _Glance(path).pieces]))
