"""Sources of rows, read a block at a time: arrays, or files larger than memory."""

from latentgp.rows.from_files import FileRows
from latentgp.rows.source import RowsInMemory, RowSource, read_ahead

__all__ = ["FileRows", "RowSource", "RowsInMemory", "read_ahead"]
