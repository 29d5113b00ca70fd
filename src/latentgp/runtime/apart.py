"""A call in a process of its own: its memory is measured, and it can be ended."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import jax

from latentgp.errors import InputError, ProcessLost

_CALL, _ANSWER = "call", "answer"
# A fresh interpreter: a fork would take over JAX's threads, `multiprocessing` runs the caller's
# script again, which need not be guarded against that.
_CHILD = "from latentgp.runtime.apart import _answer; _answer()"


class MeasuredCall(NamedTuple):
    """Result of a call in a process of its own."""

    value: Any
    # Bytes by which it grew at its peak: resident memory, or on an accelerator that of the device;
    # NaN where the system does not tell.
    memory: float


def apart(function: Callable[..., Any], *arguments: Any, seconds: float) -> MeasuredCall:
    """Call a function of a module, by whose name it is found, in a process of its own.

    The peak of memory is that above what imports and arguments take. InputError if cloudpickle
    cannot hand an argument to another process, ProcessLost if there is no result within so many
    seconds, its start included, or the process failed.

    Example:
        >>> apart(sorted, [2, 1], seconds=60).value
        [1, 2]
    """
    try:
        call = cloudpickle.dumps((function, arguments))  # with classes of a script or notebook
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"an argument cannot be handed to a process of its own ({error}): leave it out"
        ) from error
    # Beside this process, which may hold the rest of an accelerator's memory.
    there = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ, "PYTHONPATH": search_path()}
    with tempfile.TemporaryDirectory(prefix="latentgp-") as folder:
        Path(folder, _CALL).write_bytes(call)
        try:
            ended = subprocess.run(
                [sys.executable, "-P", "-c", _CHILD, folder],
                env=there,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ProcessLost(f"no result within {seconds:.0f} s") from error
        answer = Path(folder, _ANSWER)
        if ended.returncode or not answer.exists():
            raise ProcessLost(_why(ended.returncode, ended.stderr.decode(errors="replace")))
        return MeasuredCall(*pickle.loads(answer.read_bytes()))


def search_path() -> str:
    """Where this process finds its modules, for another one's PYTHONPATH."""
    return os.pathsep.join(path or os.getcwd() for path in sys.path)


def _answer() -> None:
    """Work of the other process."""
    folder = Path(sys.argv[1])
    function, arguments = pickle.loads((folder / _CALL).read_bytes())
    jax.local_devices()  # the backend is there before the call
    before = _memory("VmRSS")
    value = function(*arguments)
    grown = max(_memory("VmHWM") - before, 0.0)  # max keeps NaN, which it is given first
    (folder / _ANSWER).write_bytes(cloudpickle.dumps((value, grown)))


def _memory(of: str) -> float:
    """Bytes in use now ("VmRSS") or at most so far ("VmHWM"); NaN where the system has neither.

    On Linux the peak that `getrusage` gives is that of the process that started this one, if
    larger; that of /proc is of this program alone.
    """
    counted = jax.local_devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in counted:
        return float(counted["bytes_in_use" if of == "VmRSS" else "peak_bytes_in_use"])
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        return 1024.0 * int(lines[of].split()[0]) if of in lines else float("nan")
    try:
        import resource
    except ImportError:  # Windows
        return float("nan")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # the present is close to it
    return float(peak if sys.platform == "darwin" else 1024 * peak)


def _why(status: int, said: str) -> str:
    """Why there is no answer, in a sentence's part."""
    if status < 0:
        return f"its process was ended by signal {-status}: too little memory, perhaps"
    last = said.strip().splitlines()[-1:] or [f"exit status {status}"]
    return f"its process failed: {last[0]}"
