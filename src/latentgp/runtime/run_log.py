"""Logs of runs: JSON, one object a line."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from latentgp.errors import InputError, telling_warnings, warn_user
from latentgp.runtime.processes import is_first_process


class RunLog:
    """A file to which lines are added, each written out as soon as it is known.

    Lines of earlier runs stay. InputError if the file cannot be written to.
    """

    def __init__(self, path: str | Path):
        self._path, self._lock = Path(path), threading.Lock()
        try:
            # A line is flushed as it ends.
            self._file: TextIO | None = self._path.open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            raise InputError(
                f"The log {path} cannot be written ({error.strerror}); name another file."
            ) from error

    def add(self, event: str, **told: Any) -> None:
        """Add a line: the time, what happened, and what is told of it.

        A disk that refuses costs the log, not the run: there is a warning.
        """
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps(_plain({"time": time, "event": event, **told}), allow_nan=False)
        with self._lock:
            file = self._file
            if file is None:
                return
            try:
                file.write(line + "\n")
                return
            except OSError as error:
                refused, self._file = error.strerror or error, None
                with suppress(OSError):
                    file.close()
        warn_user(f"The log {self._path} cannot be written ({refused}); it ends here.")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            file, self._file = self._file, None
        if file is not None:
            file.close()


def _plain(value: Any) -> Any:
    """The value as JSON has it; numbers that are not finite are null."""
    if isinstance(value, Mapping):
        return {str(name).replace(" ", "_"): _plain(own) for name, own in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(own) for own in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | bool | None) else str(value)


_OF_THIS_THREAD: ContextVar[RunLog | None] = ContextVar("log", default=None)


def current_log() -> RunLog | None:
    """The log of the run that this thread is part of; None for none."""
    return _OF_THIS_THREAD.get()


@contextmanager
def log_runs(path: str | Path | None) -> Iterator[None]:
    """Context in which runs of this thread are logged, such as fits of an estimator.

    A line is a JSON object: the `time`, and an `event`: "begin", "phase", "step" (with `phase`,
    `step`, `total`, `seconds`, `seconds_left` and the `values` reported), "pause", "resume",
    "warning", "note", "end" or "error". Infinity and NaN are null. The first of processes writes.

    Args:
        path: of the file, to which lines are added; None logs nothing further.

    Raises:
        InputError: it cannot be written to.

    Example:
        >>> import jax, latentgp as lgp, pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "run.jsonl"
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(noise_variance=0.1))
        >>> rows = lgp.Data([0.0, 1.0, 2.0], [0.0, 0.8, 0.9])
        >>> with lgp.log_runs(path):
        ...     fit = lgp.fit(model, rows, key=jax.random.key(0))
        >>> json.loads(path.read_text().splitlines()[-1])["event"]
        'end'
    """
    if path is None or not is_first_process():
        yield
        return
    log = RunLog(path)
    token = _OF_THIS_THREAD.set(log)
    try:
        with telling_warnings(lambda message: log.add("warning", message=message)):
            yield
    finally:
        _OF_THIS_THREAD.reset(token)
        log.close()
