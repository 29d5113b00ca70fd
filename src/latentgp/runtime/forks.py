"""Forks of a process that has used JAX, whose threads do not survive them."""

from __future__ import annotations

import os
from pathlib import Path

from jax._src.xla_bridge import backends_are_initialized

from latentgp.errors import InputError


class _Fork:
    """Record of forks: set before one, read in the child."""

    was_used = False  # JAX, in the parent
    threads_are_lost = False  # those of JAX, in this process


def check_not_forked() -> None:
    """InputError where JAX was used before this process was forked: it would wait for ever."""
    if _Fork.threads_are_lost:
        raise InputError(
            "This process was forked from one that had used JAX, whose threads do not survive a "
            "fork, so that nothing can be computed here; start workers by "
            'multiprocessing.get_context("spawn") or joblib\'s loky, or fork before anything is '
            "fitted or predicted and load the model in the worker; files of `export` predict "
            "without JAX."
        )


def _before() -> None:
    _Fork.was_used = backends_are_initialized()


def _in_the_child() -> None:
    _Fork.threads_are_lost = _Fork.threads_are_lost or _Fork.was_used


def _forked_earlier() -> bool:
    """Whether the fork was before this import: JAX is in use, and none of its threads is there.

    Of a fork the command is that of its parent.
    """
    try:
        pids = os.getpid(), os.getppid()
        own, parents = (Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids)
        names = [file.read_text() for file in Path("/proc/self/task").glob("*/comm")]
    except OSError:  # another system, or a thread that has just ended
        return False
    return own == parents and backends_are_initialized() and not any("XLA" in n for n in names)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_before, after_in_child=_in_the_child)
    _Fork.threads_are_lost = _forked_earlier()
