"""The error that wrong input raises, and that of processes that lose each other."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable

__all__ = ["InputError", "ProcessLost"]

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


def check_choices(owner: object, **choices: Iterable[str | None]) -> None:
    """Raise InputError if an attribute, by its name, is none of its choices.

    Example:
        >>> import latentgp as lgp
        >>> lgp.HMC(tuning="hand")
        Traceback (most recent call last):
            ...
        latentgp.errors.InputError: HMC.tuning must be one of windows, jumps, got 'hand'.
    """
    for name, known in choices.items():
        value, known = getattr(owner, name), tuple(known)
        if value not in known:
            raise InputError(
                f"{type(owner).__name__}.{name} must be one of {', '.join(map(str, known))}, got "
                f"{value!r}."
            )


class ProcessLost(RuntimeError):
    """Another process of those that compute together has ended, or cannot be reached."""


def warn_user(message: str) -> None:
    """A `UserWarning` that points at the line outside the package which led to it."""
    frame, level = sys._getframe(1), 2
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in _BETWEEN:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, UserWarning, stacklevel=level)
