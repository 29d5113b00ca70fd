"""A switch by which another thread pauses, resumes or aborts the runs of this one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from latentgp.errors import RunAborted
from latentgp.modules import stored
from latentgp.runtime.interrupts import current_interrupts


@stored
class RunProgress(NamedTuple):
    """Progress of a run.

    Attributes:
        phase: what is running, such as "learning hyper-parameters".
        step: steps of the phase made so far.
        total: steps that it has, or at most has; None if that is not known.
        seconds: since the start, pauses left out.
        seconds_left: of the phase, estimated from the steps made; None before there are any.
    """

    phase: str
    step: int
    total: int | None
    seconds: float
    seconds_left: float | None


class Switch:
    """What is asked of runs from outside, and where they are.

    The thread of a run reads it after every step; any other may turn it.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._aborted = self._paused = False
        self._paused_since: float | None = None
        self._seconds_paused = 0.0
        self._told: tuple[RunProgress, float] | None = None  # and when, less pauses
        self._steps = 0

    def pause(self) -> None:
        """Ask the run to wait at the end of its step."""
        with self._changed:
            self._paused = not self._aborted

    def resume(self) -> None:
        """Let the run go on."""
        with self._changed:
            self._paused = False
            self._changed.notify_all()

    def abort(self) -> None:
        """Ask the run to end with what there is at the end of its step, also where it is paused."""
        with self._changed:
            self._aborted, self._paused = True, False
            self._changed.notify_all()

    @property
    def aborted(self) -> bool:
        """Whether the run has been asked to end."""
        return self._aborted

    @property
    def paused(self) -> bool:
        """Whether the run has been asked to wait."""
        return self._paused

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
        gone, left = self._clock() - since, told.seconds_left
        left = None if left is None else max(0.0, left - gone)
        return told._replace(seconds=told.seconds + gone, seconds_left=left)

    @property
    def seconds_paused(self) -> float:
        """How long the run has waited, all pauses together."""
        with self._changed:
            since = self._paused_since
            return self._seconds_paused + (0.0 if since is None else time.perf_counter() - since)

    def _clock(self) -> float:
        """Seconds from some time on, pauses left out."""
        with self._changed:
            since = self._paused_since
            return (time.perf_counter() if since is None else since) - self._seconds_paused

    def begins(self, told: RunProgress) -> None:
        """A phase begins.

        Raises:
            RunAborted: the run is aborted and has made no step yet.
        """
        self._told = told, self._clock()
        self.check()

    def check(self) -> None:
        """Raise RunAborted if the run is aborted and has made no step yet."""
        if self._aborted and not self._steps:
            raise RunAborted(
                "The run was aborted before its first step, so there is no result; start it again."
            )

    def stepped(self, told: RunProgress) -> None:
        """A step is made."""
        self._told = told, self._clock()
        self._steps += 1

    def wait(self) -> None:
        """Wait while the run is paused."""
        with self._changed:
            if not self._paused:
                return
            self._paused_since = time.perf_counter()
            self._changed.wait_for(lambda: not self._paused)
            self._seconds_paused += time.perf_counter() - self._paused_since
            self._paused_since = None


_OF_THIS_THREAD: ContextVar[Switch | None] = ContextVar("switch", default=None)
_WITHIN_A_FIT: ContextVar[bool] = ContextVar("within a fit", default=False)


def current_switch() -> Switch | None:
    """The switch of the run that this thread is part of; None if nothing can turn it."""
    return _OF_THIS_THREAD.get()


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

    Raises:
        RunAborted: the run is aborted, and the prediction is not a fit's.
        KeyboardInterrupt: so it is interrupted.
    """
    switch = current_switch()
    if _WITHIN_A_FIT.get():
        return
    if current_interrupts().happened:
        raise KeyboardInterrupt
    if switch is None:
        return
    switch.wait()
    if switch.aborted:
        raise RunAborted(
            f"The run was aborted after {rows:,} of {total:,} rows of a prediction, so there is no "
            "result; start it again."
        )
