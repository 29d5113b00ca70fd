"""Keeping two pools of threads out of each other's way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from threadpoolctl import ThreadpoolController


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Leave parallel work to XLA: within, BLAS and LAPACK libraries use one thread.

    JAX on a CPU calls LAPACK for the small factorisations inside XLA's own parallel programs.
    Its threads wait by spinning; on a busy machine a factorisation of 2,000 rows took 2.4 s with
    them and 0.2 s without. The limit is the process's, and is lifted at the end.
    """
    with _controller().limit(limits=1, user_api="blas"):
        yield


@lru_cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
