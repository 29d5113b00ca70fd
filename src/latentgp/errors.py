"""The error that wrong input raises, those of runs without a result, and warnings."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["InputError", "ProcessLost", "RunAborted"]

# Whose frames lie between a user's line and what it makes us warn of.
_BETWEEN = {
    "latentgp",
    "equinox",
    "jax",
    "jaxtyping",
    "beartype",
    "sklearn",
    "joblib",
    "contextlib",
    "functools",
}


class InputError(ValueError):
    """Something the caller passed in cannot be used.

    The message is one sentence that says what was wrong, where, and what to do about it. It is a
    `ValueError`, so code written against scikit-learn's manners catches it unchanged.

    Example:
        >>> raise InputError("y has 3 rows and X has 4: pass one target a row")
        Traceback (most recent call last):
            ...
        latentgp.errors.InputError: y has 3 rows and X has 4: pass one target a row
    """


_LONGEST = 300


def in_a_line(error: object) -> str:
    """Message of another library's error in one line; a long one is cut in the middle.

    Example:
        >>> in_a_line(ValueError("two    words"))
        'two words'
    """
    text = " ".join(str(error).split())
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]} ... {text[-half:]}"


def check_choices(owner: object, **choices: Iterable[str | None]) -> None:
    """Raise InputError if an attribute, by its name, is none of its choices.

    Example:
        >>> class Search:
        ...     order = "random"
        >>> check_choices(Search(), order=("ascending", "given"))
        Traceback (most recent call last):
            ...
        latentgp.errors.InputError: Search.order must be one of ascending, given, got 'random'.
    """
    for name, known in choices.items():
        value, known = getattr(owner, name), tuple(known)
        if value not in known:
            raise InputError(
                f"{type(owner).__name__}.{name} must be one of {', '.join(map(str, known))}, got "
                f"{value!r}."
            )


class ProcessLost(RuntimeError):
    """Another process of a joint fit has ended, or cannot be reached."""


class RunAborted(RuntimeError):
    """A run was aborted before its first result."""


_WARNED: ContextVar[Callable[[str], None] | None] = ContextVar("warned", default=None)


@contextmanager
def telling_warnings(tell: Callable[[str], None]) -> Iterator[None]:
    """Context in which `tell` is called with what `warn_user` warns of, in this thread."""
    token = _WARNED.set(tell)
    try:
        yield
    finally:
        _WARNED.reset(token)


def warn_user(message: str) -> None:
    """A `UserWarning` that points at the line outside the package which led to it."""
    tell = _WARNED.get()
    if tell is not None:
        tell(message)
    frame, level = sys._getframe(1), 2
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in _BETWEEN:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, UserWarning, stacklevel=level)
