"""Ctrl-C: a fit ends at the end of its step, and then the interrupt goes up, with the result."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from traceback import walk_stack
from types import FrameType
from typing import Any

from latentgp.errors import RunAborted

_COMPILES = "jax._src.compiler"
_FRAMES_ABOVE_XLA = 3
_LONGEST_STEP = 60.0  # seconds that an exit waits for


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in a call that had a result by then.

    Attributes:
        result: of the call, such as the unfinished `Fit`.
    """

    def __init__(self, result: Any):
        super().__init__("interrupted; what there was by then is the exception's `result`")
        self.result = result


class Interrupts:
    """Those of a public call, which goes on until it can end with what there is."""

    def __init__(self, keeps_results: bool):
        self.keeps_results = keeps_results  # whether the call ends early with one
        self.happened, self.steps = False, 0  # whether there was one, steps of the call
        self.result: Any = None
        self.ended = threading.Event()

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Take note of the signal.

        A second one ends the call at once, and so does the first where the call has no result
        before its end. None breaks into XLA's compiler, which would go on in a thread of its own
        and bring down a process that ends meanwhile.
        """
        at_once = self.happened or not self.keeps_results
        self.happened = True
        if at_once and not _is_compiling(frame):
            raise KeyboardInterrupt


def _is_compiling(frame: FrameType | None) -> bool:
    above = islice(walk_stack(frame), _FRAMES_ABOVE_XLA) if frame else ()
    return any(own.f_globals.get("__name__") == _COMPILES for own, _ in above)


_OF_THIS_CALL: ContextVar[Interrupts | None] = ContextVar("interrupts", default=None)


def current_interrupts() -> Interrupts:
    """Those of the public call that this is part of."""
    return _OF_THIS_CALL.get() or Interrupts(keeps_results=False)


@contextmanager
def raising_interrupts(keeps_results: bool = False) -> Iterator[Interrupts]:
    """Context of a public call, whose end raises an interrupt, as `Interrupted` with its result.

    Calls inside leave interrupts to it; the call's result is to be put into what it yields. With
    `keeps_results` the call's loops end early with a result, as those of a fit do. Otherwise an
    interrupt is raised at once, except while programs are compiled.
    """
    outer, own = _OF_THIS_CALL.get(), Interrupts(keeps_results)
    if outer is not None and (outer.keeps_results or not keeps_results):
        yield own
        return
    token = _OF_THIS_CALL.set(own)
    _RUNNING.add(own)
    try:
        with _handled_by(own):
            yield own
    except RunAborted as error:
        if own.happened:
            raise _ending(KeyboardInterrupt(str(error))) from error
        raise
    finally:
        _OF_THIS_CALL.reset(token)
        _RUNNING.discard(own)
        own.ended.set()
    if own.happened:
        raise _ending(Interrupted(own.result))


# Of all threads. At exit calls of daemons are waited for, whose compiler would not survive it.
_RUNNING: set[Interrupts] = set()
_LEAVING = threading.Event()


def _ending(error: BaseException) -> BaseException:
    """The error; at exit one that ends its thread without a word."""
    return SystemExit() if _LEAVING.is_set() else error


@atexit.register
def _leave() -> None:
    _LEAVING.set()
    calls = list(_RUNNING)
    for call in calls:
        call.happened = True
    for call in calls:
        call.ended.wait(_LONGEST_STEP)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_RUNNING.clear)


@contextmanager
def _handled_by(own: Interrupts) -> Iterator[None]:
    """Context in which Ctrl-C is told to a call, unless the process has a handler of its own."""
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT) if is_main else None
    inside = getattr(before, "__self__", None)
    if before is not signal.default_int_handler and not isinstance(inside, Interrupts):
        yield
        return
    signal.signal(signal.SIGINT, own.handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
