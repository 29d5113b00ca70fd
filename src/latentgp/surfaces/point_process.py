"""Point patterns as counts on a grid: log-Gaussian Cox processes by any likelihood of counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from latentgp.errors import InputError
from latentgp.rows.arrays import as_inputs, rows_named
from latentgp.rows.data import Data


def bin_points(points: Any, bins: Any, window: Any) -> Data:
    """Counts of points in the equal cells of a grid over the window in which they were observed.

    With `Poisson()` and a Gaussian-process prior this is a log-Gaussian Cox process (Møller,
    Syversveen & Waagepetersen 1998) whose intensity is constant within a cell: exp(f) points a
    unit of time, area or volume. Finer cells come nearer to the process, at more rows.

    Args:
        points: times of events, shape (N,), or places of points, shape (N, D); N may be zero.
        bins: number of cells along each input, one number for all or shape (D,).
        window: lowest and highest value of each input, shape (D, 2), or (2,) for one input;
            points at its ends are inside.

    Returns:
        One row a cell, the last input varying fastest: inputs at the cell's centre, the count as
        target, and the cell's size as `exposure`, in the units of the inputs.

    Raises:
        InputError: shapes that do not agree, values that are not finite, a window without size,
            fewer than one bin, or points outside the window.

    Example:
        >>> data = bin_points([0.1, 0.4, 3.0, 4.0], bins=2, window=(0.0, 4.0))
        >>> data.X[:, 0], data.y, data.side_information["exposure"]
        (array([1., 3.]), array([2., 2.]), array([2., 2.]))
    """
    ends = as_inputs(np.atleast_2d(window), "window")
    if ends.shape[1] != 2 or np.any(ends[:, 0] >= ends[:, 1]):
        raise InputError(
            "window must hold the lowest and a greater highest value of each input, shape (D, 2), "
            f"got {ends.tolist()}."
        )
    inputs = len(ends)
    places = as_inputs(points, "points") if np.size(points) else np.zeros((0, inputs))
    if places.shape[1] != inputs:
        raise InputError(
            f"points have {places.shape[1]} input(s) but window has {inputs}; "
            "give it one pair of ends for each."
        )
    cells = np.asarray(bins)
    if cells.dtype.kind not in "iu" or cells.shape not in ((), (inputs,)) or np.any(cells < 1):
        raise InputError(
            f"bins must be a whole number of at least 1, or {inputs} of them, got {bins!r}."
        )
    outside = np.any((places < ends[:, 0]) | (places > ends[:, 1]), axis=1)
    if outside.any():
        raise InputError(
            f"points are outside the window in {rows_named(outside)}; leave them out or widen it."
        )
    edges = [
        np.linspace(low, high, number + 1)
        for (low, high), number in zip(ends, np.broadcast_to(cells, inputs), strict=True)
    ]
    counts = np.histogramdd(places, edges)[0].ravel()
    centres = np.meshgrid(*[(e[:-1] + e[1:]) / 2 for e in edges], indexing="ij")
    size = np.prod((ends[:, 1] - ends[:, 0]) / cells)
    return Data(
        np.stack([c.ravel() for c in centres], axis=1), counts, exposure=np.full(len(counts), size)
    )
