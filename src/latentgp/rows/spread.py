"""Robust standard deviations of columns, and typical distances of rows."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from latentgp.errors import InputError

# What is cut off at either end of a column, and the standard deviation of a normal law without it.
_TRIMMED, _OF_NORMAL = 0.07, 0.734
# A value is wild so many sizes from the middle, where few lie between it and what is beside that.
WILD, _BESIDE, _IN_THE_GAP = 30.0, 8.0, 0.1
_FAR_TOO_WIDE, _SPREAD_OUT = 3.0, 0.3
_SQUARABLE = 1e-120, 1e120
_ROUNDING = 8 * np.finfo(np.float64).eps
_QUANTILE_ROWS, _MEDIAN_ROWS = 20_000, 1_000


def robust_spread(
    X: Float[np.ndarray, "N D"], weights: Float[np.ndarray, "N"] | None
) -> tuple[Float[np.ndarray, "D"], Float[np.ndarray, "D"]]:
    """Typical size of each column, and its standard deviation over that.

    They differ where few values are far from all others, beyond a gap, and make the standard
    deviation more than three times what the middle 86 % of the column suggest. Columns of which
    most values are the same, such as the grey levels of digits, are left alone.
    """
    deviation = spread_of_columns("X", X, weights)
    step = -(-len(X) // _QUANTILE_ROWS)
    X, weights = X[::step], np.ones(len(X[::step])) if weights is None else weights[::step]
    ends = [_TRIMMED, 0.25, 0.5, 0.75, 1 - _TRIMMED]
    quantiles = np.quantile(X, ends, axis=0, weights=weights, method="inverted_cdf")
    low, lower, middle, upper, high = quantiles
    shares = weights[:, None] * ((low <= X) & (high >= X))
    shares = shares / shares.sum(axis=0)
    mean = np.sum(shares * X, axis=0)
    central = np.sqrt(np.sum(shares * (X - mean) ** 2, axis=0)) / _OF_NORMAL
    distance = np.abs(X - middle)
    far, beside = (weights @ (distance > reach * central) for reach in (WILD, _BESIDE))
    gap = (far > 0) & (beside - far <= _IN_THE_GAP * far)
    wild = gap & (upper - lower > _SPREAD_OUT * central) & (deviation > _FAR_TOO_WIDE * central)
    spread = np.where(wild, central, deviation)
    return spread, deviation / spread


def spread_of_columns(
    name: str, columns: Float[np.ndarray, "N D"], weights: Float[np.ndarray, "N"] | None
) -> Float[np.ndarray, "D"]:
    """Weighted standard deviations, one for a column that is constant."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.average(columns, axis=0, weights=weights)
        largest = np.max(np.abs(columns - mean), axis=0)
        spread = np.sqrt(np.average((columns - mean) ** 2, axis=0, weights=weights))
    varies = varying(columns)
    low, high = _SQUARABLE
    if np.any(varies & ~((largest > low) & (largest < high))):
        raise InputError(
            f"{name} varies on a scale outside {low:g} to {high:g}, where squares leave double "
            "precision; change its unit."
        )
    return np.where(varies & (spread > 0), spread, 1.0)


def varying(columns: Float[np.ndarray, "N D"]) -> Bool[np.ndarray, "D"]:
    """Mask of the columns that vary by more than the rounding of their values."""
    half = np.ptp(columns / 2, axis=0)  # halves, because the range itself may overflow
    return half > _ROUNDING * np.max(np.abs(columns), axis=0)


def median_distance(X: Float[np.ndarray, "N D"], weights: Float[np.ndarray, "N"] | None) -> float:
    """Weighted median distance over all ordered pairs of (at most 1,000) rows; 1 if it is zero.

    A row is paired with itself too, so that a weight of two is the same as a row twice.
    """
    step = -(-len(X) // _MEDIAN_ROWS)
    X = X[::step] - X.mean(axis=0)
    weights = np.ones(len(X)) if weights is None else weights[::step]
    squared = np.sum(X**2, axis=1)
    distances = np.sqrt(np.maximum(squared[:, None] + squared - 2 * X @ X.T, 0)).ravel()
    order = np.argsort(distances)
    cumulative = np.cumsum(np.outer(weights, weights).ravel()[order])
    median = distances[order][np.searchsorted(cumulative, 0.5 * cumulative[-1])]
    return float(median) if median > 0 else 1.0
