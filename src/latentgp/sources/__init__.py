"""Where rows come from, a block at a time: arrays, or files larger than memory."""

from latentgp.sources.base import RowSource
from latentgp.sources.memory import RowsInMemory

__all__ = ["RowSource", "RowsInMemory"]
