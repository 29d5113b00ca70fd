"""Asynchronous steps on batches: workers read at parameters that may be stale by the step.

The parameter server is this process (Cutajar et al. 2017, appendix F). A worker is sent the
parameters with the number of a batch, and answers with what the batch says there; the server steps
along it from wherever the parameters are by then. Workers are in no order and wait for nobody. One
worker alone makes the steps of the synchronous loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from latentgp.diagnostics import Finding
from latentgp.errors import ProcessLost, refuse
from latentgp.extensions.batches.natural_gradient import BatchInfo, TwoPartInference
from latentgp.extensions.batches.workers import Workers
from latentgp.modules import stored
from latentgp.rows.data import Data
from latentgp.rows.source import RowSource
from latentgp.runtime.mesh import number_of_shards

if TYPE_CHECKING:
    from latentgp.extensions.batches.loop import Plan

Batch = tuple[int, int]  # epoch, number within it
Rounds = Generator[tuple[Any, BatchInfo, int], None, None]


@stored
@dataclass(frozen=True)
class Asynchrony(Finding):
    """Record of an asynchronous search.

    Attributes:
        workers: number of them.
        lost: how often one died.
        steps: made by what they answered.
        mean_staleness: steps between a worker's reading of the parameters and the step along what
            it answered, on average.
        largest_staleness: the most of these.
    """

    name: ClassVar[str] = "asynchrony"

    workers: int
    lost: int = 0
    steps: int = 0
    mean_staleness: float = 0.0
    largest_staleness: int = 0

    def stepped(self, stale: int) -> Asynchrony:
        """With one more step, along an answer that was so many steps old."""
        steps = self.steps + 1
        mean = self.mean_staleness + (stale - self.mean_staleness) / steps
        largest = max(stale, self.largest_staleness)
        return replace(self, steps=steps, mean_staleness=mean, largest_staleness=largest)

    @property
    def verdict(self) -> str:
        """Summary in a sentence."""
        return (
            f"{self.workers} workers made {self.steps} steps, along gradients that were "
            f"{self.mean_staleness:.1f} steps old on average and {self.largest_staleness} at most."
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Problem and remedy in a sentence, if any."""
        if not self.lost:
            return ()
        return (
            f"Workers died {self.lost} times, and others took over their batches; look for what "
            "ended them (too little memory, perhaps).",
        )


class BatchReader:
    """Worker's part: reads a batch and estimates the step at given parameters.

    Rows in memory are read at random. Of files the worker reads all, and passes over the batches
    of others.
    """

    def __init__(
        self, inference: TwoPartInference, source: RowSource, batch_size: int, seed: tuple[int, ...]
    ):
        # Without JAX's arrays, which are unpacked in single precision.
        self.inference = _on_host(inference)
        self.source, self.batch_size, self.seed = source, batch_size, seed
        self.double = jnp.result_type(float) == jnp.float64
        self._next: Batch = -1, 0
        self._rows: Iterator[Data] = iter(())

    def __call__(self, request: tuple[Any, Batch]) -> Any:
        """Estimate from a batch, in NumPy; None if its rows have no weight."""
        seen, batch = request
        with jax.enable_x64(self.double):
            rows = self._read(batch)
            assert rows.weights is not None
            weight = np.sum(rows.weights)
            return _on_host(_estimate(self.inference, seen, rows, weight)) if weight > 0 else None

    def _read(self, batch: Batch) -> Data:
        epoch, number = batch
        ahead = number - self._next[1]
        if self.source.is_everywhere or epoch != self._next[0] or ahead < 0:
            self._rows = self.source.epoch((*self.seed, epoch), self.batch_size, number)
            ahead = 0
        self._next = epoch, number + 1
        return next(islice(self._rows, ahead, None))


class ParameterServer:
    """Rounds of steps along what workers answer, and how they `went` so far.

    Raises:
        InputError: rows are spread over devices, or several processes make the fit.
    """

    def __init__(
        self,
        inference: TwoPartInference,
        source: RowSource,
        plan: Plan,
        seed: tuple[int, ...],
        workers: int,
    ):
        one = "Workers read batches for one process on one device; leave devices or workers out."
        refuse({one: number_of_shards() > 1 or jax.process_count() > 1})
        self.inference, self.plan = inference, plan
        self.rounds = plan.rounds_of(source.size)
        self.batches = -(-source.size // plan.batch_size)
        self.went = Asynchrony(workers)
        self._reader = BatchReader(inference, source, plan.batch_size, seed)
        self._again: deque[Batch] = deque()  # batches over which a worker died

    def steps(self, state: Any, done: int) -> Rounds:
        """State and information after each of the rounds that are left, with its epoch.

        Rounds that are `done` were made before. ProcessLost is raised once no worker is left, after
        the round that was begun.
        """
        workers = Workers(self.went.workers, self._reader)
        batches = self._batches(done)
        try:
            for number in range(done, self.plan.epochs * self.rounds):
                epoch, place = divmod(number, self.rounds)
                size = min(self.plan.round_size, self.batches - place * self.plan.round_size)
                infos: list[BatchInfo] = []
                try:
                    while len(infos) < size:
                        self._ask(workers, batches, state)
                        state = self._stepped(workers, state, infos)
                    self._ask(workers, batches, state)  # they work on while a round is told of
                except ProcessLost:
                    self.went = replace(self.went, lost=workers.lost)
                    if infos:
                        yield state, _stacked(infos), epoch
                    raise
                yield state, _stacked(infos), epoch
        finally:
            workers.close()

    def _batches(self, done: int) -> Iterator[Batch]:
        """The batches that are left, in order."""
        first, place = divmod(done, self.rounds)
        start = place * self.plan.round_size
        for epoch in range(first, self.plan.epochs):
            yield from ((epoch, number) for number in range(start, self.batches))
            start = 0

    def _ask(self, workers: Workers, batches: Iterator[Batch], state: Any) -> None:
        """Give every worker that is free a batch, with the parameters of this moment."""
        seen = None
        while workers.free:
            batch = self._again.popleft() if self._again else next(batches, None)
            if batch is None:
                return
            seen = seen or _on_host(self.inference.seen(state))
            # Its number makes its key: requests at one state draw apart.
            sent = seen._replace(steps=seen.steps + workers.busy)
            workers.ask((sent, batch), (batch, seen))

    def _stepped(self, workers: Workers, state: Any, infos: list[BatchInfo]) -> Any:
        """The state after the next answer, whose information is added."""
        answer = workers.answer()
        batch, seen = answer.label
        self.went = replace(self.went, lost=workers.lost)
        if answer.lost:
            self._again.append(batch)
            return state
        if answer.value is None:
            unknown = jnp.full((), jnp.nan)
            infos.append(BatchInfo(unknown, unknown, jnp.zeros((), bool)))
            return state
        self.went = self.went.stepped(int(state.steps) - int(seen.steps))
        state, info = _moved(self.inference, state, seen, answer.value)
        infos.append(info)
        return state


@jax.jit
def _estimate(inference: TwoPartInference, seen: Any, batch: Data, weight: Any) -> Any:
    return inference.estimate(seen, batch, weight)


@jax.jit
def _moved(inference: TwoPartInference, state: Any, seen: Any, read: Any) -> tuple[Any, BatchInfo]:
    return inference.moved(state, inference.restated(read, seen, state))


def _stacked(infos: list[BatchInfo]) -> BatchInfo:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *infos)


def _on_host(tree: Any) -> Any:
    """Arrays in NumPy, except random keys."""

    def fetch(leaf: Any) -> Any:
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return leaf
        return np.asarray(leaf)

    return jax.tree.map(fetch, tree)
