"""The error that wrong input raises, and that of processes that lose each other."""

__all__ = ["InputError", "ProcessLost"]


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


class ProcessLost(RuntimeError):
    """Another process of those that compute together has ended, or cannot be reached."""
