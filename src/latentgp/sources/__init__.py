"""Where rows come from, a block at a time: arrays, or files larger than memory."""

from latentgp.sources.base import RowSource, read_ahead
from latentgp.sources.files import FileRows
from latentgp.sources.memory import RowsInMemory

__all__ = ["FileRows", "RowSource", "RowsInMemory", "read_ahead"]
