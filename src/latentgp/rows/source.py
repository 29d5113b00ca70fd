"""Sources of rows for inference from batches."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from functools import cached_property, partial
from queue import Full, Queue
from threading import Event, Thread
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from latentgp.errors import InputError
from latentgp.rows.data import Data
from latentgp.runtime.devices import fits_accelerator
from latentgp.runtime.hashing import digest
from latentgp.runtime.mesh import ALIGNMENT, number_of_shards, shard_own_rows, shard_rows
from latentgp.typing import Array

Part = TypeVar("Part")


class RowSource(ABC):
    """Rows that are read in epochs, each row once an epoch, in blocks of equal size.

    Attributes:
        size: number of rows.
        total_weight: what they count as.
    """

    size: int
    total_weight: float
    is_everywhere: ClassVar[bool] = True  # every process has all rows

    @abstractmethod
    def sample(self, rows: int) -> Data:
        """Sample of so many rows, weighted to count as all; always the same."""

    def checked(self, check: Callable[[Data], None]) -> "RowSource":
        """Source that runs a check on its rows as they are read."""
        return self

    def part(self, index: int, count: int) -> "RowSource":
        """Share of the rows for one of several processes, nearly equal; all if in memory."""
        return self

    @abstractmethod
    def split(self, share: float) -> tuple["RowSource", Data]:
        """The rows without a share of them, and that share: some 20,000 at most, from all over.

        Raises:
            InputError: no row is left on one side.
        """

    @abstractmethod
    def identity(self) -> str:
        """Digest of the rows, and of all that fixes their order but the seed."""

    @abstractmethod
    def layout(self) -> str:
        """Layout of the rows in words: the same wherever the same rows are read."""

    @abstractmethod
    def epoch(self, seed: tuple[int, ...], rows: int, start: int = 0) -> Iterator[Data]:
        """All rows in an order fixed by the seed, in blocks of so many; the last one padded.

        Args:
            seed: the same gives the same blocks.
            rows: of a block. Those that fill up the last one have weight zero.
            start: how many blocks are left out at the beginning.
        """

    def resident_blocks(
        self, seed: tuple[int, ...], rows: int, start: int, axes: tuple[int, ...]
    ) -> Iterator[Data] | None:
        """Blocks of `blocks_of`, if the rows stay on an accelerator."""
        return None


_MOST_HELD_OUT = 20_000


class RowsInMemory(RowSource):
    """The rows of a `Data`."""

    def __init__(self, data: Data):
        self.data, self.size, self.total_weight = data, data.size, data.total_weight
        self._last: tuple[tuple[int, ...], Array] | None = None  # seed and order of an epoch

    def sample(self, rows: int) -> Data:
        if rows >= self.size:
            return self.data
        return counting_as(self.data.evenly(rows), self.total_weight)

    def split(self, share: float) -> tuple["RowsInMemory", Data]:
        held = is_held_out(0, self.size, share_of(share, self.size))
        refuse_one_side(share, int(np.sum(~held)), int(np.sum(held)))
        return RowsInMemory(self.data.select(~held)), self.data.select(held)

    def identity(self) -> str:
        return digest(self.data)

    def layout(self) -> str:
        return self.identity()

    def epoch(self, seed: tuple[int, ...], rows: int, start: int = 0) -> Iterator[Data]:
        for order in self._orders(seed, rows, start):
            yield filled(in_order(self.data, order), rows)

    def resident_blocks(
        self, seed: tuple[int, ...], rows: int, start: int, axes: tuple[int, ...]
    ) -> Iterator[Data] | None:
        data = self._resident
        if data is None:
            return None
        orders = self._orders(seed, rows, start)
        return (_gathered(data, np.resize(order, rows), len(order), axes) for order in orders)

    @cached_property
    def _resident(self) -> Data | None:
        """The rows on an accelerator: copies of a block take longer than the steps on it."""
        size = sum(column.nbytes for column in jax.tree.leaves(self.data))
        if number_of_shards() > 1 or not fits_accelerator(size):
            return None
        return jax.device_put(filled(self.data, self.size))

    def _orders(self, seed: tuple[int, ...], rows: int, start: int) -> Iterator[Array]:
        last = self._last
        if last is None or last[0] != seed:
            last = self._last = seed, np.random.default_rng(seed).permutation(self.size)
        order = last[1]
        for first in range(start * rows, self.size, rows):
            yield order[first : first + rows]


def is_held_out(first: int, rows: int, share: float) -> Bool[np.ndarray, "N"]:
    """Mask of the rows, by number, in a pseudo-random share of all."""
    number = np.arange(first, first + rows, dtype=np.uint64)
    return (number * np.uint64(2_654_435_761)) % np.uint64(1 << 32) < share * (1 << 32)


def share_of(asked: float, rows: int) -> float:
    """Share that is held out: less than given if rows are many."""
    return min(asked, _MOST_HELD_OUT / rows)


def refuse_one_side(asked: float, left: int, held: int) -> None:
    """Raise if rows that were split are all on one side."""
    if not left or not held:
        raise InputError(
            f"held_out={asked:g} leaves {left} of {left + held} rows to learn from; give more "
            "rows, or another share."
        )


def in_order(data: Data, order: Int[np.ndarray, "order"]) -> Data:
    """Rows of an order, in memory that a CPU's programs take as it is (`shard_rows`).

    A copy costs little itself; that its memory is met for the first time is what takes long.
    """

    def gather(column: Array) -> np.ndarray:
        shape = (len(order), *column.shape[1:])
        raw = np.empty(math.prod(shape) * column.itemsize + ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        found = raw[start : start + raw.size - ALIGNMENT].view(column.dtype).reshape(shape)
        # With mode="raise" it would be copied once more.
        return np.take(np.asarray(column), order, axis=0, out=found, mode="clip")

    return jax.tree.map(gather, data)


def filled(data: Data, rows: int) -> Data:
    """A block with weights, filled up with rows of weight zero."""
    missing = rows - data.size
    weights = np.ones(data.size) if data.weights is None else np.asarray(data.weights)
    if missing:
        data = data.select(np.concatenate([np.arange(data.size), np.zeros(missing, int)]))
        weights = np.concatenate([weights, np.zeros(missing)])
    return data.reweighted(weights)


def counting_as(data: Data, total: Float[np.ndarray, ""] | float) -> Data:
    """The same rows, weighted to count as `total` rows."""
    weights = np.ones(data.size) if data.weights is None else np.asarray(data.weights)
    return data.reweighted(weights * (total / weights.sum()))


def blocks_of(
    source: RowSource, seed: tuple[int, ...], rows: int, start: int = 0, axes: tuple[int, ...] = ()
) -> Iterator[Data]:
    """An epoch on the devices, in blocks of so many rows of all processes together.

    All processes get as many blocks, whatever part of the rows is theirs; arguments are those of
    `RowSource.epoch`, and lengths of axes before that of the rows, which they cut a block into.
    """
    shared = 1 if source.is_everywhere else jax.process_count()
    own = rows // shared
    put = shard_rows if source.is_everywhere else shard_own_rows

    def cut(column: np.ndarray) -> Any:
        cut = column.reshape(*axes, -1, *column.shape[1:])
        return put(cut, axis=len(axes), shared=True)

    resident = source.resident_blocks(seed, rows, start, axes)
    if resident is not None:
        yield from resident
        return
    reading = read_ahead(source.epoch(seed, own, start))
    block = None
    for _ in range(start, -(-source.size // rows)):
        following = next(reading, None)
        if following is None:
            following = block or filled(source.sample(1).select([0]), own)
            following = following.reweighted(np.zeros(own))
        block = following
        yield jax.tree.map(cut, block)
    reading.close()


@partial(jax.jit, static_argnums=3)
def _gathered(data: Data, order: Int[Array, "B"], real: int, axes: tuple[int, ...]) -> Data:
    """Rows of an order, the first ones real and those after them of weight zero."""
    block = jax.tree.map(lambda column: column[order], data)
    block = block.reweighted(jnp.where(jnp.arange(len(order)) < real, block.weights, 0.0))
    return jax.tree.map(lambda column: column.reshape(*axes, -1, *column.shape[1:]), block)


def read_ahead(parts: Iterator[Part], depth: int = 2) -> Generator[Part, None, None]:
    """The same parts, read by a thread of their own while the last ones are worked on."""
    waiting: Queue[Any] = Queue(depth)
    ended = Event()

    def read() -> None:
        try:
            if all(_put(waiting, (part, None), ended) for part in parts):
                _put(waiting, (None, None), ended)
        except BaseException as error:
            _put(waiting, (None, error), ended)

    thread = Thread(target=read, daemon=True)
    thread.start()
    try:
        while True:
            part, error = waiting.get()
            if error is not None:
                raise error
            if part is None:
                return
            yield part
    finally:
        ended.set()
        thread.join()


def _put(waiting: "Queue[Any]", item: Any, ended: Event) -> bool:
    """Whether the item found a place before it was of no use any more."""
    while not ended.is_set():
        try:
            waiting.put(item, timeout=0.1)
        except Full:
            continue
        return True
    return False
