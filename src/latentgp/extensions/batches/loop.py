"""The loop around steps on batches: rounds, stopping, progress, checkpoints, resumption.

A round is one call of the compiled scan over a block of batches. While the device works on a
block the next one is read. All that is random follows from the key and the number of the epoch, so
a run that is resumed from a checkpoint goes on with the bits that it would have had. With workers
(`asynchronous`) the rounds are theirs, and all else is the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from latentgp.errors import ProcessLost, check_finite
from latentgp.extensions.batches.asynchronous import Asynchrony, ParameterServer, Rounds
from latentgp.extensions.batches.natural_gradient import (
    BatchInference,
    TwoPartInference,
    run_batches,
)
from latentgp.rows.data import Data
from latentgp.rows.source import RowSource, blocks_of
from latentgp.runtime.checkpoint import state_in, tensors_of
from latentgp.runtime.loop import Algorithm, Steps, run_loop
from latentgp.runtime.mesh import number_of_shards
from latentgp.runtime.processes import broadcast_from_first
from latentgp.runtime.progress import Run, RunControl, RunProgress
from latentgp.typing import RandomKey

_FEW_BATCHES, _MANY_BATCHES = 8, 100
_FEW_NUMBERS, _MANY_NUMBERS = 2_000_000, 10_000_000
_FALL_A_ROW, _FALL = 0.01, 4.0  # nats; standard errors


class Round(NamedTuple):
    """Record of one round of batches."""

    bound: float  # mean of its steps' estimates, in nats
    share: float  # mean step size of its steps
    # mean log density of held-out targets when it was last taken, in nats; NaN without any
    held_out: float
    seconds: float  # since the fit began
    steps: int  # so far
    epoch: int  # its number
    # of its steps, those that changed nothing: no finite update, or an improper posterior
    passed_over: int
    held: int = 0  # of its steps, those in which hyper-parameters stayed, for the same reason

    restart = 0  # a search by batches has no others

    @property
    def value(self) -> float:
        """The bound: the value maximised, by the name it has in a history."""
        return self.bound


class Plan(NamedTuple):
    """Sizes of batches and rounds, and limits of the search."""

    epochs: int  # at most so many passes over the rows
    batches: int  # of an epoch
    batch_size: int  # rows of each
    round_size: int  # batches of a round
    # nats a row by which a window of rounds must raise the bound (or the held-out log density) for
    # the search to go on
    tolerance: float
    patience: int  # rounds of a window at least; it is a quarter of all, as noise takes that long
    scored_every: int  # rounds between two looks at held-out targets

    @classmethod
    def of(
        cls, rows: int, batch_size: int, epochs: int, tolerance: float, patience: int, columns: int
    ) -> Plan:
        """Batches of nearly equal size, at most about as large as asked for.

        Every device has an equal part of each. A round has at most 100 batches, and two million
        numbers in what is as long as its rows and as wide as `columns`, inputs or inducing
        variables, or ten million where 8 batches take more than two: a second's work at most, and
        memory that does not matter. `patience` counts 100 batches each, or epochs where these are
        shorter, and held-out targets are looked at as often.
        """
        batches = math.ceil(rows / batch_size)
        even = math.ceil(rows / batches)
        even += -even % number_of_shards()
        most, numbers = min(_MANY_BATCHES, batches), even * columns
        fitting = max(_FEW_NUMBERS // numbers, min(_FEW_BATCHES, _MANY_NUMBERS // numbers))
        rounds = math.ceil(batches / max(1, min(most, fitting)))
        size = math.ceil(batches / rounds)
        patience = math.ceil(patience * most / size)
        return cls(epochs, batches, even, size, tolerance, patience, math.ceil(most / size))

    @property
    def rows_a_round(self) -> int:
        """Number of rows in all batches of a round, on all devices together."""
        return self.round_size * self.batch_size

    def rounds_of(self, rows: int) -> int:
        """Number of rounds in an epoch of so many rows."""
        return math.ceil(rows / self.rows_a_round)


class BatchSearchResult(NamedTuple):
    """Result of a search by batches."""

    state: Any
    rounds: list[Round]  # all of them
    converged: bool  # whether it stood still
    reason: str  # why it ended, in words
    asynchrony: Asynchrony | None = None  # how workers went; None without any


class BatchSearch(Algorithm[Any]):
    """Runs the search.

    A callback is shown what the view makes of a state. Held-out targets have a mean log density.
    Workers are processes that read batches at their own pace, for an algorithm of two parts; 0
    makes the steps here, in turn.
    """

    phase: ClassVar[str] = "learning from batches"

    def __init__(
        self,
        inference: BatchInference,
        source: RowSource,
        plan: Plan,
        *,
        key: RandomKey,
        control: RunControl,
        view: Callable[[Any], Any] | None = None,
        held_out: Callable[[Any], float] | None = None,
        workers: int = 0,
    ):
        self.inference, self.source, self.plan = inference, source, plan
        self.control = control
        self.view, self.held_out = view or (lambda state: state), held_out
        self.seed = tuple(int(n) for n in np.ravel(jax.random.key_data(key)))
        self.server: ParameterServer | None = None
        if workers:
            assert isinstance(inference, TwoPartInference)
            self.server = ParameterServer(inference, source, plan, self.seed, workers)
        self.rounds: list[Round] = []

    def run(self, state: Any) -> BatchSearchResult:
        """Search from a state, or from where the checkpoint is."""
        self._first = state
        state, reason = run_loop(self, self.control)
        reason = reason or self._ending
        went = self.server and self.server.went
        return BatchSearchResult(state, self.rounds, reason == self._still, reason, went)

    def init(self) -> Any:
        return self._first

    def steps(self, state: Any, run: Run) -> Steps[Any]:
        self._ending = self._stop_if_still() or ""
        take = self.server.steps if self.server else self._steps
        try:
            with closing(take(state, len(self.rounds))) as rounds:
                while not self._ending and (taken := next(rounds, None)) is not None:
                    yield taken[0], self._report(*taken, run.seconds)
                    self._ending = self._stop_if_still() or ""
        except ProcessLost as lost:
            if not self.rounds:
                raise
            self._ending = f"{lost}"
        self._ending = self._ending or f"epochs={self.plan.epochs} were made"

    def _steps(self, state: Any, done: int) -> Rounds:
        """State and information after each of the rounds that are left, with its epoch."""
        run = run_batches.for_rows(self.plan.rows_a_round)
        blocks = self._blocks(done)
        following = next(blocks, None)
        while following is not None:
            block, epoch = following
            state, info = run(self.inference, state, block)
            following = next(blocks, None)
            yield state, info, epoch

    def _blocks(self, done: int) -> Iterator[tuple[Data, int]]:
        """Blocks of the rounds that are left, each read while the device works on the last."""
        plan = self.plan
        rounds, rows = plan.rounds_of(self.source.size), plan.rows_a_round
        for epoch in range(done // rounds, plan.epochs):
            start = done % rounds if epoch == done // rounds else 0
            blocks = blocks_of(
                self.source, (*self.seed, epoch), rows, start, axes=(plan.round_size,)
            )
            for block in blocks:
                yield block, epoch

    def _report(self, state: Any, info: Any, epoch: int, seconds: float) -> RunProgress:
        """Keep a round; its `posterior`, when called, is that of this moment."""
        # Every message is waited for: all goes in one.
        bounds, shares, held, held_out = broadcast_from_first(
            (*map(np.asarray, (info.bound, info.share, info.held)), self._score(state))
        )
        real = bounds[np.isfinite(bounds)]
        check_finite(real.size, "bound", "any batch of a round")
        means = float(real.mean()), float(np.nanmean(shares)), float(held_out)
        counts = int(np.sum(shares == 0)), int(np.sum(held))
        this = Round(*means, seconds, int(state.steps), epoch, *counts)
        self.rounds.append(this)
        epochs = this.steps / self.plan.batches
        values = {
            "epoch": epochs,
            "bound": this.bound,
            "best": max(r.bound for r in self.rounds),
            "held-out log density": this.held_out,
        }
        details = {
            "steps": this.steps,
            "epochs": epochs,
            "held_out": this.held_out,
            "posterior": partial(self.view, state),
        }
        return RunProgress(
            self.phase,
            this.steps,
            self.plan.epochs * self.plan.batches,
            at_most=True,
            values=partial(dict, values),
            details=details,
        )

    def _score(self, state: Any) -> float:
        """Score of the held-out targets, at this state or when it was last computed."""
        if self.held_out is None:
            return float("nan")
        if len(self.rounds) % self.plan.scored_every:
            return self.rounds[-1].held_out
        return self.held_out(self.view(state))

    @property
    def _still(self) -> str:
        """Why a search ends that has converged."""
        rising = "bound" if self.held_out is None else "log density of held-out targets"
        return f"the {rising} stood still"

    def _stop_if_still(self) -> str | None:
        """A reason if the last rounds together are no better than as many before them.

        Every row is read once in any case, and a bound that falls, beyond its noise, is no end.
        """
        window = max(self.plan.patience, len(self.rounds) // 4)
        if len(self.rounds) < max(2 * window, self.plan.rounds_of(self.source.size)):
            return None
        last = self.rounds[-2 * window :]
        steps = last[-1].steps - last[0].steps
        if steps and steps == sum(r.passed_over for r in last[1:]):
            return "no batch led anywhere"
        if self.held_out is None:
            total = self.source.total_weight
            values, tolerance = [r.bound for r in last], self.plan.tolerance * total
            fall = _FALL_A_ROW * total
        else:
            values, tolerance, fall = [r.held_out for r in last], self.plan.tolerance, math.inf
        if not stands_still(np.array(values), tolerance, fall):
            return None
        if steps and 2 * sum(r.held for r in last[1:]) > steps:
            return "most steps on batches could not move the hyper-parameters"
        return self._still

    def to_tensors(self, state: Any) -> dict[str, np.ndarray]:
        if not self.rounds:
            return {}
        return {**tensors_of(state), "rounds": np.array(self.rounds, np.float64)}

    def from_tensors(self, stored: dict[str, np.ndarray]) -> Any:
        table = [row.tolist() for row in stored["rounds"]]
        self.rounds = [Round(*row[:4], *map(int, row[4:])) for row in table]
        return state_in(stored, self._first)


def stands_still(values: Float[np.ndarray, "rounds"], tolerance: float, fall: float) -> bool:
    """Whether the second half of some values is neither better than the first nor worse for sure.

    Example:
        >>> stands_still(np.array([4921.0, 4922.0, 4924.0, -8704.0]), tolerance=0.5, fall=50.0)
        False

    The mean rises by more than the tolerance if it rises; it falls by so much at least, and by four
    standard errors, if it falls.
    """
    before, after = np.split(values, 2)
    rise = after.mean() - before.mean()
    error = math.sqrt(2 / len(before)) * before.std(ddof=1) if len(before) > 1 else 0.0
    return bool(-max(fall, _FALL * error) <= rise <= tolerance)
