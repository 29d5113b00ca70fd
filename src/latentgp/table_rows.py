"""Tables in files larger than memory: a sample to learn the encoding from, and rows in batches."""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latentgp.data import Data
from latentgp.errors import InputError
from latentgp.sources.files import FileSource, Piece
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

    def _convert(self, batch: "pa.RecordBatch", path: Path, first: int) -> Data:
        return self.convert(batch.to_pandas())

    def _csv_options(self) -> dict[str, Any]:
        """Whole numbers in the first lines may be followed by fractions."""
        import pyarrow as pa

        whole = {name: pa.float64() for name, k in self.names.items() if pa.types.is_integer(k)}
        return {
            "null_values": list(MISSING_MARKERS),
            "strings_can_be_null": True,
            "column_types": {**self.names, **whole},
        }


class Frames(TableRows):
    """The rows of tables as they are: of none is anything made.

    Args:
        path: a file ending in .parquet, .pq or .csv, or a folder of files of one kind.
    """

    def __init__(self, path: str | Path):
        super().__init__(path, _not_converted)

    def _measure(self) -> None:
        self.size = sum(piece.rows for piece in self.pieces)
        self.total_weight = float(self.size)

    def __iter__(self) -> Iterator["pd.DataFrame"]:
        for piece in self.pieces:
            yield from self.of_piece(piece)

    def of_piece(self, piece: Piece) -> Iterator["pd.DataFrame"]:
        """The rows of one piece, a part at a time, in their order."""
        for batch in self._batches(piece):
            if batch.num_rows:
                yield batch.to_pandas()


def sample_of(path: str | Path, rows: int) -> "pd.DataFrame":
    """About so many rows of a table, from all over its files."""
    import pandas as pd

    source = Frames(path)
    step = -(-len(source.pieces) // _MOST_PIECES)
    pieces = source.pieces[::step]
    each = -(-rows // len(pieces))
    parts = []
    for piece in pieces:
        for frame in islice(source.of_piece(piece), 1):
            parts.append(frame.iloc[:: max(1, len(frame) // each)])
    return pd.concat(parts, ignore_index=True)


def _not_converted(frame: "pd.DataFrame") -> Data:
    raise InputError("These rows are looked at only; give an encoding to convert them.")
