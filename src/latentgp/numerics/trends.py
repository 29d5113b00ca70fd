"""Trend at the end of a series of noisy values."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

_FEWEST = 20  # values that a trend can be seen in
_STANDARD_ERRORS = 3.0


def last_rise(values: Float[np.ndarray, "T"]) -> tuple[float, float]:
    """Rise of the mean between the last two quarters, and its standard error by ten batches each.

    Not numbers where there are fewer than twenty values.

    Example:
        >>> rise, error = last_rise(np.tile([0.0, 1.0], 20))
        >>> rise, bool(error > 0)
        (0.0, True)
    """
    if len(values) < _FEWEST:
        return float("nan"), float("nan")
    size = len(values) // 4
    quarters = values[-2 * size : -size], values[-size:]
    parts = (np.array_split(quarter, min(10, size)) for quarter in quarters)
    before, after = (np.array([part.mean() for part in own]) for own in parts)
    error = np.sqrt(sum(own.var(ddof=1) / len(own) for own in (before, after)))
    return float(after.mean() - before.mean()), float(error)


def has_stopped(rise: float, error: float, tolerance: float = 0.0) -> bool:
    """Whether a rise or fall is no more than a tolerance or than three of its standard errors."""
    return bool(abs(rise) <= max(tolerance, _STANDARD_ERRORS * error))
