"""Pictures of whether probabilities and intervals hold what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentgp.errors import InputError
from latentgp.surfaces.evaluation.metrics import equally_long, reliability_curve
from latentgp.surfaces.evaluation.plots.drawing import (
    BLUE,
    GREY,
    LIGHT,
    NORMAL_95,
    axes_of,
    legend_style,
    tidy,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def reliability_diagram(
    ax: Axes | None,
    labels: ArrayLike,
    probabilities: ArrayLike,
    bins: int = 15,
    *,
    classes: ArrayLike | None = None,
    event: str | None = None,
    sample_weight: ArrayLike | None = None,
) -> Axes:
    """Draw observed frequency against stated probability, with 95 % Wilson bars a bin.

    The grey bars along the bottom say how the rows are spread over the bins. A bar that does
    not cross the diagonal is miscalibration that chance does not explain.

    Args:
        ax: axes to draw on, None for a new figure.
        labels: (N,) classes.
        probabilities: (N,) probabilities of the second class, or (N, K), where the most probable
            class is judged.
        bins: number of equally wide bins.
        classes: (K,) the class of each column; None means 0 .. K-1.
        event: what flat probabilities are of, for instance "outcome = well"; None is the second
            class.
        sample_weight: (N,) weights of the rows, not negative.

    Raises:
        InputError: as `latentgp.surfaces.evaluation.metrics.reliability_curve`.

    Example:
        >>> reliability_diagram(None, [0, 1], [0.2, 0.7], event="rain").get_ylabel()
        'share of rows with rain'
    """
    curve = reliability_curve(
        labels, probabilities, bins, classes=classes, sample_weight=sample_weight
    )
    gap = float(curve.weight @ np.abs(curve.probability - curve.frequency))
    lower, upper = wilson_interval(curve.frequency, curve.rows)
    ax = axes_of(ax, (4.8, 4.8))
    center = (np.clip(np.ceil(curve.probability * bins), 1, bins) - 0.5) / bins
    height = 0.18 * curve.rows / curve.rows.max()
    ax.bar(center, height, 0.92 / bins, color=LIGHT, zorder=1, label="rows in the bin")
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=1.0, zorder=2, label="calibrated")
    ax.vlines(curve.probability, lower, upper, color=BLUE, alpha=0.5, linewidth=1.4, zorder=3)
    style: dict[str, Any] = {"color": BLUE, "linewidth": 1.0, "markersize": 5.5, "zorder": 4}
    style |= {"label": f"model (mean gap {gap:.3f})", "clip_on": False}
    ax.plot(curve.probability, curve.frequency, "o-", **style)
    ax.set(xlim=(0, 1), ylim=(0, 1.02), aspect="equal")
    handles, names = ax.get_legend_handles_labels()
    ax.legend(handles[::-1], names[::-1], **legend_style(loc="best"))
    if np.ndim(probabilities) == 1:
        event = event or f"class {1 if classes is None else np.asarray(classes)[1]}"
        return tidy(ax, f"predicted probability of {event}", f"share of rows with {event}")
    return tidy(ax, "probability of the predicted class", "share of rows with that class")


def interval_calibration(
    ax: Axes | None, nominal: ArrayLike, observed: ArrayLike, *, rows: int | None = None
) -> Axes:
    """Draw the observed coverage of central intervals against their nominal level.

    Above the diagonal the intervals are too wide, below it too narrow.

    Args:
        ax: axes to draw on, None for a new figure.
        nominal: (levels,) levels in [0, 1].
        observed: (levels,) share of held-out rows inside the interval of each level.
        rows: number of held-out rows; given, the range in which 95 % of calibrated models fall is
            drawn around the diagonal.

    Raises:
        InputError: if the arrays are not flat, differ in length, or leave [0, 1].

    Example:
        >>> interval_calibration(None, [0.5, 0.9], [0.45, 0.93], rows=100).get_xlabel()
        'nominal coverage of the interval'
    """
    nominal, observed = equally_long(nominal=nominal, observed=observed)
    for name, values in {"nominal": nominal, "observed": observed}.items():
        if not ((values >= 0) & (values <= 1)).all():
            raise InputError(f"{name} leaves [0, 1]: pass coverages as shares, 0.95 for 95 %")
    ax = axes_of(ax, (4.8, 4.8))
    grid = np.linspace(0, 1, 201)
    ax.plot(grid, grid, color=GREY, linewidth=1.0, zorder=2, label="calibrated")
    if rows is not None:
        spread = NORMAL_95 * np.sqrt(grid * (1 - grid) / rows)
        ends = np.maximum(grid - spread, 0), np.minimum(grid + spread, 1)
        label = f"95 % of calibrated models, {rows:,} rows"
        ax.fill_between(grid, *ends, color=GREY, alpha=0.18, linewidth=0, label=label)
    order = np.argsort(nominal, kind="stable")
    style: dict[str, Any] = {"color": BLUE, "linewidth": 1.4, "markersize": 5.5, "zorder": 3}
    ax.plot(nominal[order], observed[order], "o-", label="model", **style)
    for x, y, words, side in (
        (0.04, 0.78, "intervals too wide", "left"),
        (0.96, 0.22, "intervals too narrow", "right"),
    ):
        ax.text(x, y, words, color=GREY, fontsize=9, ha=side, va="top", transform=ax.transAxes)
    ax.set(xlim=(0, 1), ylim=(0, 1.02), aspect="equal")
    # On the side of the diagonal where the curve is not.
    above = np.mean(observed) > np.mean(nominal)
    ax.legend(**legend_style(loc="lower right" if above else "upper left"))
    return tidy(ax, "nominal coverage of the interval", "observed coverage")


def transform_histogram(
    ax: Axes | None,
    transform: ArrayLike,
    *,
    bins: int = 10,
    sample_weight: ArrayLike | None = None,
) -> Axes:
    """Draw probability integral transforms as a histogram: level if the model is calibrated.

    The band holds the bars of 95 % of calibrated models, each bar by itself.

    Args:
        ax: axes to draw on, None for a new figure.
        transform: (N,) probabilities of targets of at most those seen, in [0, 1].
        bins: number of equally wide bins.
        sample_weight: (N,) weights of the rows, not negative.

    Raises:
        InputError: a transform that leaves [0, 1].

    Example:
        >>> transform_histogram(None, [0.1, 0.5, 0.9]).get_ylabel()
        'rows, relative to calibrated'
    """
    from scipy.stats import binom

    (transform,) = equally_long(transform=transform)
    if not ((transform >= 0) & (transform <= 1)).all():
        raise InputError("transform leaves [0, 1]: pass probabilities")
    weights = None if sample_weight is None else np.asarray(sample_weight)
    counts, edges = np.histogram(transform, bins, (0.0, 1.0), weights=weights)
    usual = counts.sum() / bins
    low, high = binom.ppf([0.025, 0.975], transform.size, 1 / bins) / (transform.size / bins)
    ax = axes_of(ax, (6.4, 3.8))
    ax.axhspan(low, high, color=GREY, alpha=0.18, linewidth=0, label="95 % of calibrated models")
    ax.bar(edges[:-1], counts / usual, 0.94 / bins, align="edge", color=BLUE, zorder=2)
    ax.axhline(1.0, color=GREY, linewidth=1.0, zorder=3)
    ax.set(xlim=(0, 1), ylim=(0, max(1.6, 1.15 * counts.max() / usual)))
    ax.legend(**legend_style(loc="upper right"))
    return tidy(ax, "probability integral transform", "rows, relative to calibrated")


def wilson_interval(
    frequency: NDArray[np.float64], rows: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """95 % interval of a binomial share; Wilson (1927), "Probable inference", JASA 22."""
    squared = NORMAL_95**2
    center = (frequency + squared / (2 * rows)) / (1 + squared / rows)
    spread = np.sqrt(frequency * (1 - frequency) / rows + squared / (4 * rows**2))
    half = NORMAL_95 * spread / (1 + squared / rows)
    return center - half, center + half
