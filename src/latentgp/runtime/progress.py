"""Progress of long work: limits, callback, the line that is shown."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from latentgp.runtime.checkpoint import Checkpoint
from latentgp.runtime.processes import broadcast_from_first, is_first_process

# Told of a `Progress`, a `BatchProgress` or a `ChainProgress`.
Callback = Callable[[Any], bool | None]


_SILENT_SECONDS, _SECONDS_A_LINE = 1.0, 10.0


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


class Run:
    """A run of chains, batches or evaluations: shown, saved, and ended by what controls it.

    Args:
        control: callback, limit, progress line, checkpoint.
    """

    def __init__(self, control: RunControl):
        self.control = control
        self._line, self._started = ProgressLine(control.verbose), control.started

    @property
    def seconds(self) -> float:
        """Since the fit began, those before it was resumed included."""
        return time.perf_counter() - self._started

    def went_on_after(self, seconds: float) -> None:
        """Count the seconds of the run that is resumed."""
        self._started -= seconds

    def show(self, text: Text) -> None:
        """Show progress as a line; a function of the text is called where it is shown."""
        self._line.show(text, self.seconds)

    def ending(self, progress: Any, save: Callable[[], None]) -> str | None:
        """Why the run is to end now, in words; None if it goes on.

        The callback is told, and the checkpoint written if it is due. The first of several
        processes decides for all.

        Args:
            progress: passed to the callback.
            save: writes the checkpoint.
        """
        callback, limit = self.control.callback, self.control.max_seconds
        asked = callback is not None and bool(callback(progress))
        over = limit is not None and self.seconds > limit
        due = self.control.checkpoint.is_due()
        asked, over, due = map(bool, broadcast_from_first((asked, over, due)))
        if due:
            save()
        if asked:
            return "the callback asked for it"
        return f"max_seconds={limit:g} were over" if over else None

    def close(self) -> None:
        """Clear the progress line."""
        self._line.close()
