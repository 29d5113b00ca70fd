"""The metric of Langevin steps: the curvature of a log posterior at its mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from latentgp.typing import HyperVector

_STEP = 1e-3
_FLATTEST = 0.25  # a deviation of two on the unconstrained scale


class Metric(NamedTuple):
    """M = L L', the inverse of minus the Hessian at a mode."""

    root: Float[np.ndarray, "H H"]  # L
    # in how many directions the density has hardly any curvature, so that a deviation of two was
    # taken
    flat: int


def metric_at(gradient: Callable[[HyperVector], HyperVector], mode: HyperVector) -> Metric:
    """Metric by differences of the gradient.

    Args:
        gradient: of the log posterior in the unconstrained vector.
        mode: where it is zero, about.

    Example:
        >>> metric_at(lambda x: -x / np.array([1.0, 4.0]), np.zeros(2)).root.round(6).tolist()
        [[1.0, 0.0], [0.0, 2.0]]
    """
    moves = _STEP * np.eye(mode.size)
    rows = [(gradient(mode - m) - gradient(mode + m)) / (2 * _STEP) for m in moves]
    curvature = 0.5 * (np.array(rows) + np.array(rows).T)
    values, vectors = np.linalg.eigh(curvature)
    floored = np.maximum(values, _FLATTEST)
    covariance = (vectors / floored) @ vectors.T
    return Metric(np.linalg.cholesky(covariance), int(np.sum(values < _FLATTEST)))
