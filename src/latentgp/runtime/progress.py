"""Progress of long work: limits, callback, the line that is shown."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from latentgp.runtime.checkpoint import Checkpoint
from latentgp.runtime.processes import is_first_process

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

    def show(self, text: str, seconds: float) -> None:
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
                    print(text, file=sys.stderr, flush=True)
            return
        if self._status is None:
            self._status = self._console.status("")
            self._status.start()
        self._status.update(text)

    def close(self) -> None:
        """Clear the line."""
        if self._status is not None:
            self._status.stop()
