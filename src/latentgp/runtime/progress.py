"""Progress of long work: limits, callback, the line that is shown."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from latentgp.errors import RunAborted
from latentgp.runtime.checkpoint import Checkpoint
from latentgp.runtime.interrupts import current_interrupts
from latentgp.runtime.processes import broadcast_from_first, is_first_process
from latentgp.runtime.run_log import current_log
from latentgp.runtime.switch import RunProgress, current_switch

# Told of a `Progress`, a `BatchProgress` or a `ChainProgress`.
Callback = Callable[[Any], bool | None]
ItemT = TypeVar("ItemT")


_SILENT_SECONDS, _SECONDS_A_LINE = 1.0, 10.0
_IN_NATS = {"bound", "best", "free energy"}

ASKED = "the callback asked for it"
ABORTED = "it was aborted"
INTERRUPTED = "it was interrupted"


class RunControl(NamedTuple):
    """Control of a run: callback, limits, progress line, checkpoint.

    Attributes:
        started: when the fit began, of `time.perf_counter`.
        callback: told of every evaluation, round or piece; true ends the work with what there is.
        max_seconds: from there on, None for no limit; a sampler makes some draws in any case.
        verbose: 0 silent, 1 a progress line for anything longer than a second.
        checkpoint: a file kept up to date, and resumed from if it is there.
    """

    started: float
    callback: Callback | None = None
    max_seconds: float | None = None
    verbose: int = 0
    checkpoint: Checkpoint = Checkpoint()

    @property
    def seconds(self) -> float:
        """Since the fit began, less those that it was paused."""
        switch = current_switch()
        paused = 0.0 if switch is None else switch.seconds_paused
        return time.perf_counter() - self.started - paused


Text = str | Callable[[], str]


def _words(text: Text) -> str:
    return text if isinstance(text, str) else text()


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

    def show(self, text: Text, seconds: float) -> None:
        """Write it over, or add it, given for how long there has been work."""
        if not self._verbose or seconds < _SILENT_SECONDS:
            return
        if self._console is None:
            from rich.console import Console

            self._console = Console(stderr=True)
        if not self._console.is_terminal:
            if seconds - self._written >= _SECONDS_A_LINE:
                self._written = seconds
                with suppress(BrokenPipeError):  # a log that nobody reads any more
                    print(_words(text), file=sys.stderr, flush=True)
            return
        if self._status is None:
            self._status = self._console.status("")
            self._status.start()
        self._status.update(_words(text))

    def close(self) -> None:
        """Clear the line; what is shown later is a new one."""
        if self._status is not None:
            self._status.stop()
            self._status = None


class Step(NamedTuple):
    """A step of a run, as it is shown and logged.

    Attributes:
        phase: what is running.
        unit: what a step is, such as "evaluation".
        made: steps made so far.
        total: steps that there are, or at most are; None if that is not known.
        values: called for what is reported of the step, by name, where somebody asks.
        at_most: whether there may be fewer.
    """

    phase: str
    unit: str
    made: int
    total: int | None = None
    values: Callable[[], Mapping[str, float]] = dict
    at_most: bool = False

    def in_words(self, seconds: float, left: float | None) -> str:
        """Phase, step, values and seconds."""
        parts = [f"{self.phase}: {self.unit} {self.made:,}"]
        if self.total is not None:
            parts[0] += f" of {'at most ' if self.at_most else ''}{self.total:,}"
        for name, value in self.values().items():
            if np.isfinite(value):
                nats = name in _IN_NATS
                parts.append(f"{name} {value:,.2f} nats" if nats else f"{name} {value:.3f}")
        parts.append(f"{seconds:.0f} s")
        if left is not None:
            parts.append(f"{'at most ' if self.at_most else ''}about {left:.0f} s left")
        return ", ".join(parts)


class Run:
    """A run of chains, batches or evaluations: shown, logged, saved, and ended by what controls it.

    Args:
        control: callback, limit, progress line, checkpoint.

    Raises:
        RunAborted: the run is aborted, or interrupted, before its first step.
    """

    def __init__(self, control: RunControl):
        self.control = control
        self._interrupts = current_interrupts()
        self._line, self._before = ProgressLine(control.verbose), 0.0
        self._switch, self._log = current_switch(), current_log()
        self._phase = ""
        self._since: tuple[int, float] | None = None  # a step, and the seconds gone then
        self._compiled = False
        if self._switch is not None:
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
        switched = self._switch is not None and self._switch.aborted
        return switched or self._interrupts.happened

    def went_on_after(self, seconds: float) -> None:
        """Count the seconds of the run that is resumed."""
        self._before += seconds

    def begins(self, phase: str, made: int = 0) -> None:
        """A phase begins, with steps made before."""
        self._phase, self._since, self._compiled = phase, (made, self.seconds), False
        self._line.show(f"{phase}: getting ready", self.seconds)
        if self._log is not None:
            self._log.add("phase", phase=phase, seconds=self.seconds)
        if self._switch is not None:
            self._switch.begins(RunProgress(phase, made, None, self.seconds, None))

    def made(
        self, step: Step, progress: Any = None, save: Callable[[], None] | None = None
    ) -> str | None:
        """Why the run is to end after a step, in words; None if it goes on.

        The step is shown and logged, the callback told, and the checkpoint written if it is due;
        where the run is paused, it waits here. The first of several processes decides for all.

        Args:
            step: what was made.
            progress: passed to the callback.
            save: writes the checkpoint.
        """
        if step.phase != self._phase:
            self._phase, self._since = step.phase, None
        left = self._seconds_left(step)
        self._line.show(partial(step.in_words, self.seconds, left), self.seconds)
        told = RunProgress(step.phase, step.made, step.total, self.seconds, left)
        self._interrupts.steps += 1
        if self._switch is not None:
            self._switch.stepped(told)
        if self._log is not None:
            self._log.add("step", **told._asdict(), values=step.values())
        limit, asked = self.control.max_seconds, self._told(progress)
        self._wait(save)
        over = limit is not None and self.seconds > limit
        due = save is not None and self.control.checkpoint.is_due()
        asked, over, due, aborted = map(
            bool, broadcast_from_first((asked, over, due, self.aborted))
        )
        if due and save is not None:
            save()
        if asked:
            return ASKED
        if aborted:
            return INTERRUPTED if self._interrupts.happened else ABORTED
        return f"max_seconds={limit:g} were over" if over else None

    def _told(self, progress: Any) -> bool:
        """Tell the callback; gives whether it asks for the end."""
        callback = self.control.callback
        try:
            return callback is not None and bool(callback(progress))
        except KeyboardInterrupt:
            if not self._interrupts.keeps_results or jax.process_count() > 1:
                raise
            self._interrupts.happened = True
            return False

    def _seconds_left(self, step: Step) -> float | None:
        """Seconds of the steps that are left, were they as long as those so far.

        The first step compiles programs: it counts for as long as there is no other.
        """
        now, since = (step.made, self.seconds), self._since
        if since is None or not self._compiled:
            self._since, self._compiled = now, True
        if step.total is None or since is None or step.made <= since[0]:
            return None
        each = (now[1] - since[1]) / (now[0] - since[0])
        left = max(0.0, each * (step.total - step.made))
        limit = self.control.max_seconds
        return left if limit is None else min(left, max(0.0, limit - self.seconds))

    def _wait(self, save: Callable[[], None] | None) -> None:
        """Where the switch says pause, save what there is and wait."""
        if self._switch is None or not self._switch.paused:
            return
        if save is not None:
            save()
        if self._log is not None:
            self._log.add("pause", seconds=self.seconds)
        self._switch.wait()
        if self._log is not None:
            self._log.add("resume", seconds=self.seconds)

    def passed(self, step: Step) -> None:
        """A step is made, after which there is no result yet.

        Raises:
            RunAborted: the run is aborted or interrupted.
        """
        if self.made(step) in (ABORTED, INTERRUPTED):
            raise RunAborted(
                f"The run was aborted while {step.phase}, after {step.unit} {step.made:,}, so "
                "there is no result; start it again."
            )

    def close(self) -> None:
        """Clear the progress line."""
        self._line.close()


def stepwise(items: Sequence[ItemT], phase: str, unit: str, verbose: int = 0) -> Iterator[ItemT]:
    """Items in turn, each a step that is shown, logged, and can be paused or aborted after.

    Args:
        items: what is worked off.
        phase: what is done to them, such as "cross-validating".
        unit: what one of them is, such as "fold".
        verbose: 1 shows a progress line.

    Raises:
        RunAborted: the run is aborted.

    Example:
        >>> [2 * number for number in stepwise([1, 2], "doubling", "number")]
        [2, 4]
    """
    run = Run(RunControl(time.perf_counter(), verbose=verbose))
    run.begins(phase)
    try:
        for made, item in enumerate(items, 1):
            yield item
            run.passed(Step(phase, unit, made, len(items)))
    finally:
        run.close()
