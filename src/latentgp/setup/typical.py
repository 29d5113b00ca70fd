"""Typical distance of rows."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

_MEDIAN_ROWS = 1_000


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
