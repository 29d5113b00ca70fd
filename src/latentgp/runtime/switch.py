"""A switch by which another thread pauses, resumes or aborts the runs of this one."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from latentgp.errors import RunAborted
from latentgp.modules import stored
from latentgp.runtime.interrupts import current_interrupts

_IN_NATS = {"bound", "best", "free energy"}
_UNSAVED = {"saved": False}


@stored
@dataclass(frozen=True)
class RunProgress:
    """Progress of a run, passed to the callback after every step.

    Attributes:
        phase: what is running, such as "learning hyper-parameters".
        step: steps of the phase made so far.
        total: steps that it has, or at most has; None if that is not known.
        seconds: since the start, pauses left out.
        seconds_left: of the phase, estimated from the steps made; None before there are any.
        unit: what a step is, such as "evaluation".
        at_most: whether there may be fewer than `total` steps.
        has_result: whether the run can end after this one.
        values: gives the numbers that are shown, by name; attributes too, such as `r_hat`.
        details: further attributes, by name.
    """

    phase: str
    step: int
    total: int | None = None
    seconds: float = 0.0
    seconds_left: float | None = None
    unit: str = field(default="step", repr=False, metadata=_UNSAVED)
    at_most: bool = field(default=False, repr=False, metadata=_UNSAVED)
    has_result: bool = field(default=True, repr=False, metadata=_UNSAVED)
    values: Callable[[], Mapping[str, float]] = field(default=dict, repr=False, metadata=_UNSAVED)
    details: Mapping[str, Any] = field(default_factory=dict, repr=False, metadata=_UNSAVED)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_"):
            if name in self.details:
                return self.details[name]
            for known, value in self.values().items():
                if re.sub(r"\W", "_", known).lower() == name:
                    return value
        raise AttributeError(f"Progress of {self.phase} has no {name}.")

    def in_words(self) -> str:
        """Phase, step, values and seconds."""
        parts, at_most = [f"{self.phase}: {self.unit} {self.step:,}"], "at most " * self.at_most
        if self.total is not None:
            parts[0] += f" of {at_most}{self.total:,}"
        for name, value in self.values().items():
            if np.isfinite(value):
                nats = name in _IN_NATS
                parts.append(f"{name} {value:,.2f} nats" if nats else f"{name} {value:.3f}")
        parts.append(f"{self.seconds:.0f} s")
        if self.seconds_left is not None:
            parts.append(f"{at_most}about {self.seconds_left:.0f} s left")
        return ", ".join(parts)


class Switch:
    """What is asked of runs from outside, and where they are.

    The thread of a run reads it after every step; any other may turn it.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.aborted = self.paused = False  # whether the run has been asked to end, or to wait
        self._paused_since: float | None = None
        self._seconds_paused = 0.0
        self._told: tuple[RunProgress, float] | None = None  # and when, less pauses
        self._steps = 0

    def pause(self) -> None:
        """Ask the run to wait at the end of its step."""
        with self._changed:
            self.paused = not self.aborted

    def resume(self) -> None:
        """Let the run go on."""
        with self._changed:
            self.paused = False
            self._changed.notify_all()

    def abort(self) -> None:
        """Ask the run to end with what there is at the end of its step, also where it is paused."""
        with self._changed:
            self.aborted, self.paused = True, False
            self._changed.notify_all()

    @property
    def waits(self) -> bool:
        """Whether the run is waiting, at the end of a step."""
        return self._paused_since is not None

    @property
    def told(self) -> RunProgress | None:
        """Where the run is, by its last step and the clock; None before it began."""
        if self._told is None:
            return None
        told, since = self._told
        gone, left = self.clock() - since, told.seconds_left
        left = None if left is None else max(0.0, left - gone)
        return replace(told, seconds=told.seconds + gone, seconds_left=left)

    def clock(self) -> float:
        """Seconds from some time on, pauses left out."""
        with self._changed:
            since = self._paused_since
            return (time.perf_counter() if since is None else since) - self._seconds_paused

    def check(self) -> None:
        """Raise RunAborted if the run is aborted and has made no step yet."""
        if self.aborted and not self._steps:
            raise RunAborted(
                "The run was aborted before its first step, so there is no result; start it again."
            )

    def at(self, told: RunProgress, steps: int) -> None:
        """The run is there, so many steps further than it was."""
        self._told = told, self.clock()
        self._steps += steps

    def wait(self) -> None:
        """Wait while the run is paused."""
        with self._changed:
            if not self.paused:
                return
            self._paused_since = time.perf_counter()
            self._changed.wait_for(lambda: not self.paused)
            self._seconds_paused += time.perf_counter() - self._paused_since
            self._paused_since = None


_OF_THIS_THREAD: ContextVar[Switch | None] = ContextVar("switch", default=None)
_WITHIN_A_FIT: ContextVar[bool] = ContextVar("within a fit", default=False)


def current_switch() -> Switch:
    """The switch of the run that this thread is part of; if nothing can turn it, one of its own."""
    return _OF_THIS_THREAD.get() or Switch()


@contextmanager
def obeying(switch: Switch) -> Iterator[None]:
    """Context in which the runs of this thread obey a switch."""
    token = _OF_THIS_THREAD.set(switch)
    try:
        yield
    finally:
        _OF_THIS_THREAD.reset(token)


@contextmanager
def within_a_fit() -> Iterator[None]:
    """Context in which no prediction is aborted: a fit ends with what there is, and asks it."""
    token = _WITHIN_A_FIT.set(True)
    try:
        yield
    finally:
        _WITHIN_A_FIT.reset(token)


def predicted(rows: int, total: int) -> None:
    """Some rows of a prediction are made; wait here while the run is paused.

    RunAborted if it is aborted, KeyboardInterrupt if interrupted, and the prediction no fit's.
    """
    if _WITHIN_A_FIT.get():
        return
    if current_interrupts().happened:
        raise KeyboardInterrupt
    switch = current_switch()
    switch.wait()
    if switch.aborted:
        raise RunAborted(
            f"The run was aborted after {rows:,} of {total:,} rows of a prediction, so there is no "
            "result; start it again."
        )
