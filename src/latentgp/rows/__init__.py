"""Rows, and sources of rows that are read a block at a time."""

from latentgp.rows.source import RowsInMemory, RowSource, read_ahead

__all__ = ["RowSource", "RowsInMemory", "read_ahead"]
