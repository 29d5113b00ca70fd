"""Calls at once on the cores of a machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from itertools import repeat
from typing import TypeVar

from latentgp.runtime.devices import on_processor
from latentgp.runtime.x64 import double_precision

PartT = TypeVar("PartT")
ResultT = TypeVar("ResultT")


def cores() -> int:
    """Calls that are best made at once: one a core, and one on a GPU."""
    if not on_processor():
        return 1
    own = getattr(os, "sched_getaffinity", None)  # Linux alone tells those of a process
    return len(own(0)) if own else os.cpu_count() or 1


def on_all_cores(
    function: Callable[[PartT], ResultT], parts: Iterable[PartT], *, alone: int = 0
) -> Iterator[ResultT]:
    """Map a function over parts, on a thread a core; results in the order of the parts.

    It is run in double precision, as the context belongs to a thread. So many parts as `alone` are
    done before the others: the first compiles what these use.
    """
    function, parts = double_precision(function), list(parts)
    contexts = [copy_context() for _ in parts]  # of the run that asks
    if len(parts) - alone == 1:  # nothing to be done at the same time
        alone += 1
    yield from map(function, parts[:alone])
    if len(parts) > alone:
        with ThreadPoolExecutor(cores()) as pool:
            yield from pool.map(Context.run, contexts[alone:], repeat(function), parts[alone:])
