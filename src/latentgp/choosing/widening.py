"""How far predictive variances of few rows fall short, in NumPy."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from latentgp.choosing.evidence import (
    WIDE,
    Optimum,
    RowBlock,
    covariance_of,
    negative_log_evidence,
    optimum,
)

_STEP = 1e-3  # of differences of gradients
_PAIRS, _PAIRS_OF_ROWS = 64, 4_000  # of draws, at most; times rows
_ITERATIONS = 200


def widening(found: Optimum, rows: RowBlock) -> float:
    """Factor that predictive variances lack, for unknown hyper-parameters and for what rows show.

    Each row is predicted from all others with Gaussian noise (Rasmussen & Williams 2006, 5.12), at
    the most probable hyper-parameters and averaged over draws of the normal law around these, with
    importance weights that leave out what the row tells (Gelfand, Dey & Chang 1992). The averaged
    variance, within and between (Zimmerman & Cressie 1992), over the one at the mode is a first
    factor. The mean square of the averaged errors in such deviations is a second one, if it is
    above one (Bachoc 2013, 2.2).
    """
    best = optimum(found.candidate, [rows], found.logarithms, _ITERATIONS)
    mode, size = best.logarithms, len(best.logarithms)

    def negative(place: Float[np.ndarray, "H"]) -> tuple[float, Float[np.ndarray, "H"]]:
        return negative_log_evidence(place, found.candidate, [rows])

    steps = _STEP * np.eye(size)
    hessian = np.array([negative(mode + s)[1] - negative(mode - s)[1] for s in steps])
    curvature, axes = np.linalg.eigh((hessian + hessian.T) / (4 * _STEP))
    # No direction is wider than the widest of the priors.
    axes = axes / np.sqrt(np.maximum(curvature, WIDE**-2))
    pairs = max(2 * size, min(_PAIRS, _PAIRS_OF_ROWS // len(rows.y)))
    z = _normal_draws(size, pairs)
    places = mode + z @ axes.T
    log_density = np.array([-negative(place)[0] for place in places])
    log_weights = (log_density + 0.5 * np.sum(z**2, axis=1))[:, None]

    left_out = np.array([_left_out(place, found, rows) for place in (mode, *places)])
    error, variance = left_out[1:, 0], left_out[1:, 1]
    # Without a row its density given the others is taken off.
    log_weights = log_weights + 0.5 * (np.log(variance) + error**2 / variance)
    weights = np.exp(log_weights - logsumexp(log_weights, axis=0))
    mean = np.sum(weights * error, axis=0)
    total = np.sum(weights * (variance + (error - mean) ** 2), axis=0)
    unknown = np.average(total / left_out[0, 1], weights=rows.weights)
    shown = np.average(mean**2 / total, weights=rows.weights)
    factor = float(unknown * max(1.0, shown))
    return max(1.0, factor) if np.isfinite(factor) else 1.0


def _left_out(
    logarithms: Float[np.ndarray, "H"], found: Optimum, rows: RowBlock
) -> Float[np.ndarray, "2 N"]:
    """Errors of rows predicted from all others, and their predictive variances."""
    number = found.candidate.inputs
    covariance, _, _ = covariance_of(logarithms, found.candidate, rows.X)
    covariance[np.diag_indices(len(rows.y))] += np.exp(logarithms[number + 1]) / rows.weights
    inverse = np.linalg.inv(covariance)
    variance = 1 / np.diag(inverse)
    return np.stack([variance * (inverse @ rows.y), variance])


def _normal_draws(size: int, pairs: int) -> Float[np.ndarray, "S H"]:
    """Standard normal draws in opposite pairs, whose covariance is the identity."""
    half = np.random.default_rng(0).normal(size=(pairs, size))
    root = np.linalg.cholesky(half.T @ half / pairs)
    half = np.linalg.solve(root, half.T).T
    return np.concatenate([half, -half])
