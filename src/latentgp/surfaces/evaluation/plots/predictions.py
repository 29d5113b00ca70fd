"""Pictures of predictions beside what was observed."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentgp.errors import InputError
from latentgp.posteriors.parts import Part
from latentgp.surfaces.evaluation.metrics import (
    equally_long,
    interval_coverage,
)
from latentgp.surfaces.evaluation.plots.drawing import (
    BLUE,
    GREY,
    INK,
    NORMAL_95,
    ORANGE,
    axes_of,
    date_axis,
    in_days,
    legend_style,
    opacity,
    shortened,
    tidy,
    with_margin,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def prediction_bands(
    ax: Axes | None,
    x: ArrayLike,
    mean: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    *,
    observed_x: ArrayLike | None = None,
    observed_y: ArrayLike | None = None,
    inducing_x: ArrayLike | None = None,
    x_label: str = "x",
    y_label: str = "y",
    mean_label: str = "mean",
    band_label: str = "95 % interval",
) -> Axes:
    """Draw the mean and interval of a prediction along one input, with the data behind it.

    Args:
        ax: axes to draw on, None for a new figure.
        x: (N,) inputs, in any order: numbers, or dates (of NumPy, pandas or `datetime`), which
            get a date axis.
        mean: (N,) predictive means (or medians).
        lower: (N,) lower ends of the interval.
        upper: (N,) upper ends.
        observed_x: (observed,) inputs of the observed rows, drawn as points; dates if `x` are.
        observed_y: (observed,) their targets.
        inducing_x: (M,) inducing points, drawn as ticks along the bottom.
        x_label: name and unit of the input, for instance "depth [m]".
        y_label: name and unit of the target.
        mean_label: legend entry of the line.
        band_label: legend entry of the band.

    Raises:
        InputError: if the arrays are not flat or differ in length, only one of `observed_x` and
            `observed_y` is given, or some inputs are dates and others numbers.

    Example:
        >>> ax = prediction_bands(None, [0, 1], [0, 1], [-1, 0], [1, 2], x_label="time [s]")
        >>> ax.get_xlabel()
        'time [s]'
    """
    inputs = {"x": x, "observed_x": observed_x, "inducing_x": inducing_x}
    has_dates = _have_dates(inputs)
    if has_dates:
        days: Any = (None if given is None else in_days(given) for given in inputs.values())
        x, observed_x, inducing_x = days
    x, mean, lower, upper = equally_long(x=x, mean=mean, lower=lower, upper=upper)
    order = np.argsort(x, kind="stable")
    ax = axes_of(ax, (6.4, 3.8))
    if has_dates:
        date_axis(ax)
    ax.fill_between(
        x[order], lower[order], upper[order], color=BLUE, alpha=0.18, linewidth=0, label=band_label
    )
    if (observed_x is None) != (observed_y is None):
        raise InputError("only one of observed_x and observed_y is given: pass both or neither")
    if observed_x is not None and observed_y is not None:
        observed_x, observed_y = equally_long(observed_x=observed_x, observed_y=observed_y)
        _points(ax, observed_x, observed_y, INK, "observed", opacity(observed_x.size))
    ax.plot(x[order], mean[order], color=BLUE, linewidth=1.8, label=mean_label, zorder=3)
    if inducing_x is not None:
        (inducing_x,) = equally_long(inducing_x=inducing_x)
        ticks: dict[str, Any] = {"markersize": 9, "markeredgewidth": 1.4, "color": ORANGE}
        ticks |= {"label": "inducing points", "transform": ax.get_xaxis_transform(), "zorder": 4}
        ax.plot(inducing_x, np.full(inducing_x.size, 0.02), "|", **ticks)
    ax.margins(x=0.01)
    ax.legend(**legend_style())
    return tidy(ax, x_label, y_label)


def parts(
    x: ArrayLike,
    parts: Mapping[str, Part],
    *,
    level: float = 0.95,
    x_label: str = "x",
    y_label: str = "f",
) -> Figure:
    """Draw the parts of a latent function along one input, a panel each, with their intervals.

    Panels share the input; heights follow the spans of the parts, down to three tenths of the
    largest.

    Args:
        x: (N,) inputs, numbers or dates, in any order.
        parts: of one latent function at these, from `posterior.parts(X)`.
        level: of the central intervals.
        x_label: name and unit of the input.
        y_label: name and unit of the latent function.

    Raises:
        InputError: parts of several latent functions, or of other inputs.

    Example:
        >>> from latentgp.posteriors.parts import Part
        >>> trend = Part(np.array([0.0, 1.0]), np.array([0.1, 0.1]))
        >>> len(parts([0, 1], {"trend": trend, "season": trend}).axes)
        2
    """
    from matplotlib.figure import Figure

    ends = {name: part.interval(level) for name, part in parts.items()}
    spans = [max(np.ptp(np.asarray(pair)), 1e-12) for pair in ends.values()]
    heights = np.maximum(spans, 0.3 * max(spans))
    figure = Figure(figsize=(6.4, 0.8 + 1.8 * len(parts)), layout="constrained")
    grid: dict[str, Any] = {"height_ratios": heights.tolist()}
    panels = figure.subplots(len(parts), sharex=True, squeeze=False, gridspec_kw=grid)[:, 0]
    labels = {"x_label": "", "y_label": y_label, "band_label": f"{100 * level:g} % interval"}
    for ax, (name, part), own in zip(panels, parts.items(), ends.values(), strict=True):
        prediction_bands(ax, x, part.mean, *own, **labels)
        ax.set_title(shortened(name, 60), loc="left", fontsize=10, color=INK)
        if ax is not panels[0] and (legend := ax.get_legend()) is not None:
            legend.remove()
    panels[-1].set_xlabel(x_label, color=INK)
    return figure


def observed_against_predicted(
    ax: Axes | None,
    observed: ArrayLike,
    mean: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    *,
    target_label: str = "y",
    level: float = 0.95,
) -> Axes:
    """Draw each observed target against its prediction with the interval, whatever the inputs are.

    A row is well predicted when its bar crosses the diagonal; the rows whose bar does not are drawn
    in another colour and counted.

    Args:
        ax: axes to draw on, None for a new figure.
        observed: (N,) observed targets.
        mean: (N,) predictive means.
        lower: (N,) lower ends of the interval of y.
        upper: (N,) upper ends.
        target_label: name and unit of the target, for instance "strength [MPa]".
        level: the interval's nominal level, 0.95 for 95 %.

    Raises:
        InputError: if the arrays are not flat, differ in length, hold NaN, or a lower end exceeds
            its upper end.

    Example:
        >>> ax = observed_against_predicted(None, [1, 2], [1, 2], [0, 3], [2, 4])
        >>> ax.get_xlabel()
        'predicted y'
    """
    coverage = interval_coverage(observed, lower, upper)
    given: dict[str, Any] = {"observed": observed, "mean": mean, "lower": lower, "upper": upper}
    observed, mean, lower, upper = equally_long(**given)
    inside = (lower <= observed) & (observed <= upper)
    ax = axes_of(ax, (4.8, 4.8))
    alpha = opacity(observed.size)
    for rows, color, label in (
        (inside, BLUE, f"inside the {100 * level:g} % interval: {100 * coverage:.1f} %"),
        (~inside, ORANGE, f"outside: {100 * (1 - coverage):.1f} %"),
    ):
        style: dict[str, Any] = {"color": color, "linewidth": 1.0, "zorder": 2}
        ax.hlines(observed[rows], lower[rows], upper[rows], alpha=0.4 * alpha**2, **style)
        _points(ax, mean[rows], observed[rows], color, label, alpha)
    # Limits from the means and targets: one very wide interval must not shrink everything else.
    limits = with_margin(min(observed.min(), mean.min()), max(observed.max(), mean.max()))
    ax.plot(limits, limits, color=GREY, linewidth=1.0, zorder=1)
    ax.set(xlim=limits, ylim=limits, aspect="equal")
    ax.legend(**legend_style(loc="upper left"))
    return tidy(ax, f"predicted {target_label}", f"observed {target_label}")


def standardised_residuals(ax: Axes | None, mean: ArrayLike, residuals: ArrayLike) -> Axes:
    """Draw residuals in standard deviations against predictions, with a running median.

    Args:
        ax: axes to draw on, None for a new figure.
        mean: (N,) predictive means.
        residuals: (N,) targets less means, over the predictive standard deviations.

    Raises:
        InputError: if the arrays are not flat or differ in length.

    Example:
        >>> standardised_residuals(None, [1.0, 2.0], [0.3, -0.4]).get_xlabel()
        'predicted'
    """
    mean, residuals = equally_long(mean=mean, residuals=residuals)
    ax = axes_of(ax, (6.4, 3.8))
    ax.axhspan(-NORMAL_95, NORMAL_95, color=GREY, alpha=0.12, linewidth=0)
    _points(ax, mean, residuals, INK, "rows", opacity(mean.size))
    pieces = np.array_split(np.argsort(mean, kind="stable"), max(1, min(12, mean.size // 10)))
    middles = [(np.median(mean[p]), np.median(residuals[p])) for p in pieces if p.size]
    ax.plot(*np.transpose(middles), color=ORANGE, linewidth=1.6, zorder=4)
    return tidy(ax, "predicted", "residual [standard deviations]")


def _have_dates(inputs: dict[str, ArrayLike | None]) -> bool:
    """Whether the inputs that are given are dates, all or none of them."""
    given = {name: np.asarray(values) for name, values in inputs.items() if values is not None}
    dates = [name for name, values in given.items() if _is_date(values)]
    numbers = [name for name in given if name not in dates]
    if dates and numbers:
        raise InputError(f"{dates[0]} holds dates and {numbers[0]} something else: pass dates")
    return bool(dates)


def _is_date(values: NDArray) -> bool:
    if values.dtype.kind == "O":
        return values.size > 0 and isinstance(values.ravel()[0], datetime.date)
    return values.dtype.kind == "M"


def _points(ax: Axes, x: NDArray, y: NDArray, color: str, label: str, alpha: float) -> None:
    size = 0.5 + 5.0 * alpha
    style: dict[str, Any] = {"color": color, "markersize": size, "alpha": alpha}
    ax.plot(x, y, "o", markeredgewidth=0, label=label, zorder=3, **style)
