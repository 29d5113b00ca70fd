"""The error that wrong input raises, those of runs without a result, and warnings."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Integral
from typing import Any, NoReturn, get_args

__all__ = ["InputError", "ProcessLost", "RunAborted"]

# Whose frames lie between a user's line and what it makes us warn of.
_BETWEEN = {
    *("latentgp", "equinox", "jax", "jaxtyping", "beartype", "sklearn", "joblib"),
    *("contextlib", "functools"),
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


def refuse(sentences: Mapping[str, object]) -> None:
    """Raise InputError with the first sentence whose condition, its value, holds."""
    for sentence, holds in sentences.items():
        if holds:
            raise InputError(sentence)


def check_finite(is_finite: object, what: str, where: str) -> None:
    """Raise InputError unless a value, described by what it is and where, is finite."""
    if not is_finite:
        raise InputError(
            f"The {what} is not a finite number at {where}; start from other values, or change "
            "the units of the data."
        )


def check_choices(owner: object, **choices: Any) -> None:
    """Raise InputError if an attribute, by its name, is none of its choices, names or a `Literal`.

    Example:
        >>> class Search:
        ...     order = "random"
        >>> check_choices(Search(), order=("ascending", "given"))
        Traceback (most recent call last):
            ...
        latentgp.errors.InputError: Search.order must be one of ascending, given, got 'random'.
    """
    for name, known in choices.items():
        value, known = getattr(owner, name), get_args(known) or tuple(known)
        if value not in known:
            raise InputError(
                f"{type(owner).__name__}.{name} must be one of {', '.join(map(str, known))}, got "
                f"{value!r}."
            )


def check_ranges(owner: object, **ranges: str) -> None:
    """Raise InputError if a number, by its name, is outside of its range; None never is.

    Args:
        owner: has the numbers.
        ranges: "(0, 1]", with square brackets at ends that are inside, or "at least 1", "above 0".

    Example:
        >>> import latentgp as lgp
        >>> lgp.Inducing(4, resemblance=2.0)
        Traceback (most recent call last):
            ...
        latentgp.errors.InputError: Inducing.resemblance must be in (0, 1), got 2.0.
    """
    for name, bounds in ranges.items():
        value, (kind, _, least) = getattr(owner, name), bounds.rpartition(" ")
        beginning = {"at least": "[", "above": "("}.get(kind)
        words = bounds if beginning else f"in {bounds}"
        bounds = f"{beginning}{least}, inf]" if beginning else bounds
        lower, upper = (float(end) for end in bounds[1:-1].split(","))
        at_an_end = (value == lower and bounds[0] == "(") or (value == upper and bounds[-1] == ")")
        if value is not None and (at_an_end or not lower <= value <= upper):
            raise InputError(f"{type(owner).__name__}.{name} must be {words}, got {value}.")


def check_whole(owner: object, **least: int) -> None:
    """Raise InputError unless an attribute, by its name, is a whole number from `least`, or None.

    Example:
        >>> from types import SimpleNamespace
        >>> check_whole(SimpleNamespace(number=0), number=1)
        Traceback (most recent call last):
            ...
        latentgp.errors.InputError: SimpleNamespace.number must be a whole number from 1, got 0.
    """
    for name, lower in least.items():
        value = getattr(owner, name)
        if value is not None and (not isinstance(value, Integral) or value < lower):
            raise InputError(
                f"{type(owner).__name__}.{name} must be a whole number from {lower}, got {value!r}."
            )


def check_kinds(owner: object, **kinds: tuple[Any, str]) -> None:
    """Raise InputError unless an attribute, by its name, is of a class, which is also in words."""
    for name, (kind, words) in kinds.items():
        value = getattr(owner, name)
        if not isinstance(value, kind):
            raise InputError(
                f"{type(owner).__name__}.{name} must be {words}, got {in_a_line(repr(value))}."
            )


def lacks(owner: object, words: str) -> NoReturn:
    """Raise InputError that an object has "no" of what is asked for: what, and the remedy."""
    raise InputError(f"{type(owner).__name__} has {words}.")


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
