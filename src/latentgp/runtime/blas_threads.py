"""Keeping two pools of threads out of each other's way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

from threadpoolctl import ThreadpoolController


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Leave parallel work to XLA: within, BLAS and LAPACK libraries use one thread.

    JAX on a CPU calls LAPACK for the small factorisations inside XLA's own parallel programs.
    Its threads wait by spinning; on a busy machine a factorisation of 2,000 rows took 2.4 s with
    them and 0.2 s without. The limit is the process's, and is lifted at the end: of several runs at
    once, which see each other's limit, at the end of the last.
    """
    _LIMIT.begins()
    try:
        yield
    finally:
        _LIMIT.ends()


class _Limit:
    """The limit of the process, and how many runs need it."""

    def __init__(self) -> None:
        self._lock, self._runs = threading.Lock(), 0
        self._lifted: Callable[[], None] | None = None

    def begins(self) -> None:
        with self._lock:
            self._runs += 1
            if self._lifted is None:
                limit = _controller().limit(limits=1, user_api="blas")
                self._lifted = limit.restore_original_limits

    def ends(self) -> None:
        with self._lock:
            self._runs -= 1
            if not self._runs and self._lifted is not None:
                lifted, self._lifted = self._lifted, None
                lifted()


_LIMIT = _Limit()


@lru_cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
