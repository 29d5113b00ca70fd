"""Progress of long work: limits, callback, the line that is shown."""

from __future__ import annotations

import dataclasses
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import numpy as np

from latentgp.errors import RunAborted
from latentgp.runtime.checkpoint import Checkpoint
from latentgp.runtime.interrupts import current_interrupts
from latentgp.runtime.processes import broadcast_from_first, is_first_process
from latentgp.runtime.run_log import current_log
from latentgp.runtime.switch import RunProgress, current_switch

Callback = Callable[[RunProgress], Any]
ItemT = TypeVar("ItemT")

_SILENT_SECONDS, _SECONDS_A_LINE = 1.0, 10.0

_LOGGED = "phase", "step", "total", "seconds", "seconds_left"

ASKED = "the callback asked for it"
ABORTED = "it was aborted"
INTERRUPTED = "it was interrupted"


class RunControl(NamedTuple):
    """Control of a run: callback, limits, progress line, checkpoint.

    The callback is told of every evaluation, round or piece; true ends the work with what there is.
    """

    started: float  # when the fit began, of `time.perf_counter`
    callback: Callback | None = None
    max_seconds: float | None = None  # from there on; a sampler makes some draws in any case
    verbose: int = 0  # 1 shows a progress line for anything longer than a second
    checkpoint: Checkpoint = Checkpoint()  # kept up to date, and resumed from if it is there

    @property
    def seconds(self) -> float:
        """Since the fit began, less those that it was paused."""
        return current_switch().clock() - self.started


class ProgressLine:
    """One line on standard error, for what takes longer than a second.

    In a terminal it is written over. Elsewhere (a log, a notebook that runs as a job) a line is
    added every ten seconds.
    """

    def __init__(self, verbose: int):
        self._verbose = verbose and is_first_process()
        self._status: Any = None
        self._console: Any = None
        self._written = -np.inf

    def show(self, text: str | Callable[[], str], seconds: float) -> None:
        """Write it over, or add it, given for how long there has been work."""
        if not self._verbose or seconds < _SILENT_SECONDS:
            return
        if self._console is None:
            from rich.console import Console

            self._console = Console(stderr=True)
        if not self._console.is_terminal and seconds - self._written < _SECONDS_A_LINE:
            return
        text = text() if callable(text) else text
        if not self._console.is_terminal:
            self._written = seconds
            with suppress(BrokenPipeError):  # a log that nobody reads any more
                print(text, file=sys.stderr, flush=True)
            return
        if self._status is None:
            self._status = self._console.status("")
            self._status.start()
        self._status.update(text)

    def close(self) -> None:
        """Clear the line; what is shown later is a new one."""
        if self._status is not None:
            self._status.stop()
            self._status = None


StateT = TypeVar("StateT")


class Resumable(ABC, Generic[StateT]):
    """Work whose state can be written to a checkpoint and read from it."""

    @abstractmethod
    def to_tensors(self, state: StateT) -> dict[str, np.ndarray]:
        """What is written of a state; empty where there is nothing to keep."""

    @abstractmethod
    def from_tensors(self, stored: dict[str, np.ndarray]) -> StateT:
        """The state of a checkpoint.

        KeyError or ValueError if the tensors are not those of such a state.
        """


class Run(Generic[StateT]):
    """A run of chains, batches or evaluations: shown, logged, saved, and ended by what controls it.

    `resumable` makes tensors of the states that steps end with; None for work that is not saved.
    RunAborted if the run is aborted, or interrupted, before its first step.
    """

    def __init__(self, control: RunControl, resumable: Resumable[StateT] | None = None):
        self.control, self._resumable = control, resumable
        self._interrupts = current_interrupts()
        self._line, self._before = ProgressLine(control.verbose), 0.0
        self._switch, self._log = current_switch(), current_log()
        self._phase = ""
        self._since: tuple[int, float] | None = None  # a step, and the seconds gone then
        self._compiled = False
        self._switch.check()
        if self._interrupts.happened and not self._interrupts.steps:
            raise RunAborted("The run was interrupted before its first step.")

    @property
    def seconds(self) -> float:
        """Since the fit began, those before it was resumed included."""
        return self.control.seconds + self._before

    @property
    def aborted(self) -> bool:
        """Whether the run has been asked to end, by its switch or by Ctrl-C."""
        return self._switch.aborted or self._interrupts.happened

    def begins(self, phase: str, made: int = 0) -> None:
        """A phase begins, with steps made before."""
        self._phase, self._since, self._compiled = phase, (made, self.seconds), False
        self._line.show(f"{phase}: getting ready", self.seconds)
        if self._log is not None:
            self._log.add("phase", phase=phase, seconds=self.seconds)
        self._switch.at(RunProgress(phase, made, None, self.seconds, None), 0)
        self._switch.check()

    def resumed(self) -> StateT | None:
        """The state that the checkpoint has, as `Checkpoint.read`; None without one.

        Its seconds count for the run.
        """
        assert self._resumable is not None
        made = self._resumable.from_tensors
        found = self.control.checkpoint.read(lambda kept: (made(kept), kept.get("seconds", [0.0])))
        if found is None:
            return None
        state, seconds = found
        self._before += float(seconds[-1])  # of a search those of every evaluation
        return state

    def save(self, state: StateT | None) -> None:
        """Write the checkpoint, whole or not at all, if there is something to keep."""
        checkpoint, resumable = self.control.checkpoint, self._resumable
        if checkpoint.path is None or resumable is None or state is None:
            return
        tensors = resumable.to_tensors(state)
        if tensors:
            checkpoint.write({"seconds": np.array([self.seconds]), **tensors})

    def made(self, step: RunProgress, state: StateT | None = None) -> str | None:
        """Why the run is to end after a step, in words; None if it goes on.

        The step is shown and logged, the callback told, and the checkpoint written if it is due;
        where the run is paused, it waits here. The first of several processes decides for all.
        """
        if step.phase != self._phase:
            self._phase, self._since = step.phase, None
        seconds, left = self.seconds, self._seconds_left(step)
        step = dataclasses.replace(step, seconds=seconds, seconds_left=left)
        self._line.show(step.in_words, seconds)
        self._interrupts.steps += 1
        self._switch.at(dataclasses.replace(step, values=dict, details={}), 1)
        if self._log is not None:
            told = {name: getattr(step, name) for name in _LOGGED}
            self._log.add("step", **told, values=step.values())
        limit, asked = self.control.max_seconds, self._told(step)
        self._wait(state)
        over = limit is not None and self.seconds > limit
        due = state is not None and self.control.checkpoint.is_due()
        told = broadcast_from_first((asked, over, due, self.aborted))
        asked, over, due, aborted = map(bool, told)
        if due:
            self.save(state)
        if asked:
            return ASKED
        if aborted:
            return INTERRUPTED if self._interrupts.happened else ABORTED
        return f"max_seconds={limit:g} had passed" if over else None

    def _told(self, progress: RunProgress) -> bool:
        """Tell the callback; gives whether it asks for the end."""
        callback = self.control.callback
        try:
            return callback is not None and bool(callback(progress))
        except KeyboardInterrupt:
            if not self._interrupts.keeps_results or jax.process_count() > 1:
                raise
            self._interrupts.happened = True
            return False

    def _seconds_left(self, step: RunProgress) -> float | None:
        """Seconds of the steps that are left, were they as long as those so far.

        The first step compiles programs: it counts for as long as there is no other.
        """
        now, since = (step.step, self.seconds), self._since
        if since is None or not self._compiled:
            self._since, self._compiled = now, True
        if step.total is None or since is None or step.step <= since[0]:
            return None
        each = (now[1] - since[1]) / (now[0] - since[0])
        left = max(0.0, each * (step.total - step.step))
        limit = self.control.max_seconds
        return left if limit is None else min(left, max(0.0, limit - self.seconds))

    def _wait(self, state: StateT | None) -> None:
        """Where the switch says pause, save what there is and wait."""
        if not self._switch.paused:
            return
        self.save(state)
        if self._log is not None:
            self._log.add("pause", seconds=self.seconds)
        self._switch.wait()
        if self._log is not None:
            self._log.add("resume", seconds=self.seconds)

    def passed(self, step: RunProgress) -> None:
        """A step is made without a result yet; RunAborted if the run is aborted or interrupted."""
        if self.made(step) in (ABORTED, INTERRUPTED):
            raise RunAborted(
                f"The run was aborted while {step.phase}, after {step.unit} {step.step:,}, so "
                "there is no result; start it again."
            )

    def close(self) -> None:
        """Clear the progress line."""
        self._line.close()


def stepwise(items: Sequence[ItemT], phase: str, unit: str, verbose: int = 0) -> Iterator[ItemT]:
    """Items in turn, each a step that is shown, logged, and can be paused or aborted after.

    The phase is what is done to them, such as "cross-validating", the unit what one of them is,
    such as "fold". RunAborted if the run is aborted.

    Example:
        >>> [2 * number for number in stepwise([1, 2], "doubling", "number")]
        [2, 4]
    """
    run = Run(RunControl(time.perf_counter(), verbose=verbose))
    run.begins(phase)
    try:
        for made, item in enumerate(items, 1):
            yield item
            run.passed(RunProgress(phase, made, len(items), unit=unit))
    finally:
        run.close()
