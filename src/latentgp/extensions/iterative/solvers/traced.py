"""Functions that are compiled once for all values of some numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(*numbers: str) -> Callable[[Function], Function]:
    """`equinox.filter_jit`, which would compile anew for every value of a plain number.

    Args:
        numbers: names of keyword arguments that are traced if they are plain numbers.

    Example:
        >>> @compiled("by")
        ... def times(x, *, by=1.0):
        ...     return x * by
        >>> float(times(np.ones(()), by=3.0))
        3.0
    """

    def decorate(function: Function) -> Function:
        inner = eqx.filter_jit(function)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            plain = {n: np.asarray(kwargs[n]) for n in numbers if is_plain(kwargs.get(n))}
            return inner(*args, **{**kwargs, **plain})

        return call  # pyright: ignore

    return decorate


def is_plain(value: Any) -> bool:
    """Whether a value is a number of Python's own."""
    return isinstance(value, int | float)
