"""Choices that differ between a processor and a GPU.

A GPU takes a whole factorisation as one call, and many small ones at once. Halves and matrices one
after another, which a processor wants, cost it minutes of compilation and a launch each. A loop
costs it launches for every step, however little a step computes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import jax

from latentgp.runtime.devices import on_processor

# Smaller leaves would save flops, but the compiler makes several kernels of each.
_LEAF = 128


def is_leaf(size: int) -> bool:
    """Whether a triangular matrix of this size is taken whole rather than by halves."""
    return size <= _LEAF or not on_processor()


def one_after_another(function: Callable[..., Any]) -> Callable[..., Any]:
    """Where the function is mapped over matrices, a processor takes these one after another.

    jaxlib hands the matrices of one batched LAPACK call to the thread pool that the call itself
    occupies a thread of; two such calls at once wait for each other for ever on a machine of two
    cores (jaxlib 0.10).
    """
    in_turn = jax.custom_batching.sequential_vmap(function)

    @wraps(function)
    def call(*arguments: Any) -> Any:
        return (in_turn if on_processor() else function)(*arguments)

    return call
