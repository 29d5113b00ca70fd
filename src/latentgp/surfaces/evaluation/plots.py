"""Pictures of predictions, calibration, training and relevance.

Each function takes arrays and the Matplotlib axes to draw on (None makes a new figure), and
returns the axes; nothing is shown or written until `save_figure`. Figures are made without pyplot,
so there is no global state, and no display is needed. Colours are those of Okabe & Ito (2008),
which people with colour-vision deficiency can tell apart.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentgp.errors import InputError
from latentgp.posteriors.hyperparameters import HyperparameterMarginal
from latentgp.posteriors.parts import Part
from latentgp.rows.arrays import evenly
from latentgp.runtime.writing import check_writable, written_whole
from latentgp.surfaces.evaluation.drawing import (
    BLUE,
    CURVES,
    DASHES,
    GREY,
    INK,
    LIGHT,
    MARKERS,
    ORANGE,
    axes_of,
    characters_along,
    in_lines,
    legend_style,
    opacity,
    tidy,
)
from latentgp.surfaces.evaluation.effects import Dependence, VarianceShares, in_words
from latentgp.surfaces.evaluation.maps import field_draws, field_maps, maps, residual_map, variogram
from latentgp.surfaces.evaluation.metrics import (
    RejectCurve,
    equally_long,
    interval_coverage,
    reliability_curve,
)
from latentgp.surfaces.evaluation.rankings import caterpillar
from latentgp.surfaces.evaluation.weights import KernelWeights

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "caterpillar",
    "check_picture_path",
    "comparison",
    "cost_front",
    "dependence",
    "field_draws",
    "field_maps",
    "hyperparameter",
    "hyperparameter_prior",
    "interval_calibration",
    "kernel_weights",
    "learning_curve",
    "maps",
    "observed_against_predicted",
    "parts",
    "prediction_bands",
    "ranks",
    "reject_curve",
    "relevance",
    "reliability_diagram",
    "residual_map",
    "save_figure",
    "standardised_residuals",
    "traces",
    "transform_histogram",
    "variance_shares",
    "variogram",
]

_NAMES_AT = 4, -28, 36  # points above: neighbouring fits that are level keep apart
NORMAL_95 = 1.959963984540054  # the 97.5 % quantile of N(0, 1)


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
        days: Any = (None if given is None else _in_days(given) for given in inputs.values())
        x, observed_x, inducing_x = days
    x, mean, lower, upper = equally_long(x=x, mean=mean, lower=lower, upper=upper)
    order = np.argsort(x, kind="stable")
    ax = axes_of(ax, (6.4, 3.8))
    if has_dates:
        _date_axis(ax)
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
        ax.set_title(_written(name, 60), loc="left", fontsize=10, color=INK)
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
    limits = _with_margin(min(observed.min(), mean.min()), max(observed.max(), mean.max()))
    ax.plot(limits, limits, color=GREY, linewidth=1.0, zorder=1)
    ax.set(xlim=limits, ylim=limits, aspect="equal")
    ax.legend(**legend_style(loc="upper left"))
    return tidy(ax, f"predicted {target_label}", f"observed {target_label}")


def reliability_diagram(
    ax: Axes | None,
    labels: ArrayLike,
    probabilities: ArrayLike,
    bins: int = 15,
    *,
    classes: ArrayLike | None = None,
    event: str | None = None,
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

    Raises:
        InputError: as `latentgp.surfaces.evaluation.metrics.reliability_curve`.

    Example:
        >>> reliability_diagram(None, [0, 1], [0.2, 0.7], event="rain").get_ylabel()
        'share of rows with rain'
    """
    curve = reliability_curve(labels, probabilities, bins, classes=classes)
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


def learning_curve(
    ax: Axes | None,
    bound: ArrayLike,
    *,
    seconds: ArrayLike | None = None,
    evaluations: ArrayLike | None = None,
    label: str | None = None,
    bound_label: str = "log evidence bound [nats]",
) -> Axes:
    """Draw the objective against time or evaluations; call again with the axes to compare runs.

    The view is on the end of the runs: a steep start may leave it at the bottom.

    Args:
        ax: axes to draw on, None for a new figure.
        bound: (evaluations,) objective after each evaluation, to be maximised, in nats.
        seconds: (evaluations,) seconds since the start; takes precedence over `evaluations`.
        evaluations: (evaluations,) evaluations so far; None counts them from 1.
        label: legend entry of this run.
        bound_label: what the objective is, with its unit.

    Raises:
        InputError: if the arrays are not flat or differ in length.

    Example:
        >>> learning_curve(None, [-9.0, -2.0, -1.0]).get_xlabel()
        'evaluations of the objective'
    """
    counted = np.arange(1, np.size(bound) + 1) if evaluations is None else evaluations
    along = {"evaluations": counted} if seconds is None else {"seconds": seconds}
    bound, at = equally_long(allow_infinity=True, bound=bound, **along)
    ax = axes_of(ax, (6.4, 3.8))
    color = CURVES[len(ax.get_lines()) % len(CURVES)]
    few = "o" if bound.size <= 40 else None
    ax.plot(at, bound, color=color, linewidth=1.6, marker=few, markersize=3.5, label=label)
    _view_the_end(ax)
    if label is not None:
        ax.legend(**legend_style(loc="lower right"))
    x_label = "evaluations of the objective" if seconds is None else "time [s]"
    return tidy(ax, x_label, bound_label)


def transform_histogram(ax: Axes | None, transform: ArrayLike, *, bins: int = 10) -> Axes:
    """Draw probability integral transforms as a histogram: level if the model is calibrated.

    The band holds the bars of 95 % of calibrated models, each bar by itself.

    Args:
        ax: axes to draw on, None for a new figure.
        transform: (N,) probabilities of targets of at most those seen, in [0, 1].
        bins: number of equally wide bins.

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
    counts, edges = np.histogram(transform, bins, (0.0, 1.0))
    usual = transform.size / bins
    low, high = binom.ppf([0.025, 0.975], transform.size, 1 / bins) / usual
    ax = axes_of(ax, (6.4, 3.8))
    ax.axhspan(low, high, color=GREY, alpha=0.18, linewidth=0, label="95 % of calibrated models")
    ax.bar(edges[:-1], counts / usual, 0.94 / bins, align="edge", color=BLUE, zorder=2)
    ax.axhline(1.0, color=GREY, linewidth=1.0, zorder=3)
    ax.set(xlim=(0, 1), ylim=(0, max(1.6, 1.15 * counts.max() / usual)))
    ax.legend(**legend_style(loc="upper right"))
    return tidy(ax, "probability integral transform", "rows, relative to calibrated")


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


def dependence(ax: Axes | None, shown: Dependence, *, y_label: str | None = None) -> Axes:
    """Draw the partial dependence on a column with its band, and lines of single rows behind.

    Categories are beside each other from top to bottom, with bars of the intervals; of several
    outputs there is one line each.

    Args:
        ax: axes to draw on, None for a new figure.
        shown: by `posterior.effects(X).dependence(column)`.
        y_label: name and unit of the expectation; None is `shown.response`.

    Example:
        >>> import latentgp as lgp, numpy as np
        >>> x = np.linspace(0, 1, 30)[:, None]
        >>> regressor = lgp.GPRegressor(random_state=0).fit(x, np.sin(6 * x[:, 0]))
        >>> shown = regressor.posterior_.effects(x, names=["dose"]).dependence("dose", points=5)
        >>> dependence(None, shown).get_xlabel()
        'dose'
    """
    response, outputs = y_label or shown.response, len(shown.outputs)
    if not shown.is_ordered:
        return _dependence_on_categories(ax, shown, response)
    ax = axes_of(ax, (6.4, 3.8))
    values = shown.values
    if values.dtype.kind == "M":
        _date_axis(ax)
        values = _in_days(values)
    for k, name in enumerate(shown.outputs):
        color, dashes = CURVES[k % len(CURVES)], DASHES[k // len(CURVES) % len(DASHES)]
        if outputs == 1:
            for row in shown.each[evenly(len(shown.each), 25), :, k]:
                ax.plot(values, row, color=GREY, linewidth=0.6, alpha=0.35, zorder=1)
        ends = shown.lower[:, k], shown.upper[:, k]
        ax.fill_between(values, *ends, color=color, alpha=0.2, linewidth=0)
        style: dict[str, Any] = {"marker": "o", "markersize": 2.6, "linewidth": 1.6}
        ax.plot(values, shown.mean[:, k], dashes, color=color, label=name, **style)
    if outputs > 1:
        _legend_above(ax)
    return tidy(ax, shown.column, response)


def _dependence_on_categories(ax: Axes | None, shown: Dependence, response: str) -> Axes:
    """Means with bars of the intervals, a row a category and below each other its outputs."""
    categories, outputs = len(shown.values), len(shown.outputs)
    names = [in_words(value) for value in shown.values]
    ax = axes_of(ax, (6.4, rows_height(names, outputs)))
    places, step = np.arange(categories), 0.7 / outputs
    for k, name in enumerate(shown.outputs):
        at = places + step * (k - (outputs - 1) / 2)
        color, marker = CURVES[k % len(CURVES)], MARKERS[k % len(MARKERS)]
        ax.hlines(at, shown.lower[:, k], shown.upper[:, k], color=color, linewidth=2.0, alpha=0.6)
        ax.plot(shown.mean[:, k], at, marker, color=color, markersize=5, label=name)
    if outputs > 1:
        _legend_above(ax)
    return _with_rows(ax, names, response, shown.column)


def variance_shares(ax: Axes | None, shares: VarianceShares, *, at_most: int = 20) -> Axes:
    """Draw each column's share in the variance of the prediction: alone, and in all.

    Of several outputs it is the mean.

    Args:
        ax: axes to draw on, None for a new figure.
        shares: by `posterior.effects(X).variance_shares()`.
        at_most: how many columns to draw.

    Example:
        >>> import latentgp as lgp, numpy as np
        >>> x = np.random.default_rng(0).uniform(size=(40, 2))
        >>> regressor = lgp.GPRegressor(random_state=0).fit(x, np.sin(6 * x[:, 0]))
        >>> shares = regressor.posterior_.effects(x, names=["dose", "age"]).variance_shares()
        >>> [tick.get_text() for tick in variance_shares(None, shares).get_yticklabels()]
        ['dose', 'age']
    """
    total, first = shares.total.mean(axis=1), shares.first.mean(axis=1)
    low, high = shares.total_interval.mean(axis=2)
    order = np.argsort(-total, kind="stable")[:at_most]
    places, names = np.arange(order.size), [shares.columns[d] for d in order]
    ax = axes_of(ax, (6.4, rows_height(names)))
    ax.barh(places, total[order], height=0.66, color=LIGHT, zorder=2, label="in all")
    ax.barh(places, np.maximum(first[order], 0), 0.34, color=BLUE, zorder=3, label="alone")
    ax.hlines(places, low[order], high[order], color=GREY, linewidth=1.4, zorder=4)
    ax.set_xlim(left=0)
    _legend_above(ax)
    what = "the prediction" if shares.response == "y" else shares.response
    return _with_rows(ax, names, f"share in the variance of {what}")


def relevance(
    ax: Axes | None,
    lengthscales: ArrayLike,
    feature_names: Sequence[str] | None = None,
    *,
    at_most: int = 25,
    x_label: str = "relevance: 1 / length-scale",
) -> Axes:
    """Draw the inverse length-scales of an ARD kernel as bars, the most relevant input on top.

    Relevances compare only between inputs in one unit, so pass the length-scales of standardised
    inputs and say so in `x_label` where it matters.

    Args:
        ax: axes to draw on, None for a new figure.
        lengthscales: (D,) positive length-scales; infinity means the input is not used.
        feature_names: (D,) names; None means x0 .. x(D-1).
        at_most: how many inputs to draw; the axis says when some are left out.
        x_label: what the bars measure.

    Raises:
        InputError: if a length-scale is not positive or the names do not match in number.

    Example:
        >>> ax = relevance(None, [2.0, 0.5], ["age", "dose"])
        >>> [tick.get_text() for tick in ax.get_yticklabels()]
        ['dose', 'age']
    """
    (lengthscales,) = equally_long(allow_infinity=True, lengthscales=lengthscales)
    if not (lengthscales > 0).all():
        raise InputError("lengthscales holds a value that is not positive: pass positive ones")
    size = lengthscales.size
    names = [f"x{d}" for d in range(size)] if feature_names is None else feature_names
    if len(names) != size:
        raise InputError(f"feature_names has {len(names)} names for {size} inputs: pass one each")
    order = np.argsort(lengthscales, kind="stable")[:at_most]
    shown = [str(names[d]) for d in order]
    ax = axes_of(ax, (6.4, rows_height(shown)))
    ax.barh(np.arange(order.size), 1 / lengthscales[order], height=0.66, color=BLUE, zorder=2)
    ax.set_xlim(left=0)
    left_out = f" ({order.size} most relevant of {size} inputs)" if order.size < size else ""
    return _with_rows(ax, shown, x_label + left_out)


def hyperparameter(
    ax: Axes | None,
    marginal: HyperparameterMarginal,
    *,
    x_label: str = "hyper-parameter",
    level: float = 0.95,
    fitted: float | None = None,
) -> Axes:
    """Draw the marginal posterior of a hyper-parameter over its prior, with its central interval.

    Args:
        ax: axes to draw on, None for a new figure.
        marginal: one of `posterior.hyperparameter_marginals`.
        x_label: its name and unit, for instance "length-scale [m]".
        level: of the interval that is shaded.
        fitted: the most probable value, marked in place of the mean.

    Example:
        >>> import numpy as np, latentgp as lgp
        >>> draws = np.random.default_rng(0).gamma(4.0, size=1000)
        >>> marginal = lgp.HyperparameterMarginal.of(draws, positive=True)
        >>> hyperparameter(None, marginal, x_label="length-scale [m]").get_xlabel()
        'length-scale [m]'
    """
    low, high = marginal.quantiles([0.002, 0.99])
    margin = 0.15 * (high - low)
    left = max(low - margin, 1e-3 * low) if marginal.positive else low - margin
    x = np.linspace(left, high + margin, 401)
    ax, (lower, upper) = axes_of(ax, (6.4, 3.8)), marginal.interval(level)
    inside, density = x[(x >= lower) & (x <= upper)], marginal.pdf(x)
    shade = {"label": f"{100 * level:g} % interval", "color": BLUE, "alpha": 0.18, "linewidth": 0}
    ax.fill_between(inside, marginal.pdf(inside), **shade)
    ax.plot(x, density, color=BLUE, linewidth=1.8, label="posterior", zorder=3)
    if marginal.prior is not None:
        style: dict[str, Any] = {"color": GREY, "linestyle": "--", "linewidth": 1.2}
        ax.plot(x, marginal.prior.pdf(x), label="prior", zorder=2, **style)
    middle, name = (marginal.mean, "posterior mean") if fitted is None else (fitted, "fitted")
    ax.axvline(middle, color=ORANGE, linewidth=1.2, label=name, zorder=2)
    told = np.array([lower, middle, upper])
    ax.plot(told, marginal.pdf(told), "o", color=BLUE, markersize=4, zorder=4)
    ax.set_ylim(bottom=0.0, top=1.08 * density.max())
    ax.margins(x=0.0)
    ax.legend(**legend_style())
    return tidy(ax, x_label, "density")


def hyperparameter_prior(
    ax: Axes | None,
    prior: HyperparameterMarginal,
    fitted: float,
    *,
    x_label: str = "hyper-parameter",
    level: float = 0.95,
) -> Axes:
    """Draw the prior of a hyper-parameter with the value that was fitted.

    Of one that is positive on a logarithmic axis, its density a factor of ten.

    Args:
        ax: axes to draw on, None for a new figure.
        prior: its marginal, as `HyperparameterMarginal.prior`.
        fitted: the value.
        x_label: its name and unit, for instance "length-scale [m]".
        level: of the central interval that is shaded.

    Example:
        >>> import numpy as np, latentgp as lgp
        >>> draws = np.exp(np.random.default_rng(0).normal(size=1000))
        >>> prior = lgp.HyperparameterMarginal.of(draws, positive=True)
        >>> hyperparameter_prior(None, prior, 0.3, x_label="length-scale [m]").get_xscale()
        'log'
    """
    low, high = prior.quantiles([0.005, 0.995])
    low, high = min(low, fitted), max(high, fitted)
    x = np.geomspace(low, high, 401) if prior.positive else np.linspace(low, high, 401)

    def density(x: NDArray) -> NDArray:
        return prior.pdf(x) * (np.log(10) * x if prior.positive else 1.0)

    ax, (lower, upper) = axes_of(ax, (6.4, 3.8)), prior.interval(level)
    inside, label = x[(x >= lower) & (x <= upper)], f"{100 * level:g} % interval of the prior"
    ax.fill_between(inside, density(inside), label=label, color=GREY, alpha=0.18, linewidth=0)
    ax.plot(x, density(x), color=GREY, linestyle="--", linewidth=1.2, label="prior")
    ax.axvline(fitted, color=ORANGE, linewidth=1.2, label="fitted")
    told = np.array([lower, fitted, upper])
    ax.plot(told, density(told), "o", color=GREY, markersize=4, zorder=3)
    if prior.positive:
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter("{x:g}")
    ax.tick_params(axis="x", pad=7)  # away from the zero of the density
    ax.set_ylim(bottom=0.0, top=1.08 * density(x).max())
    ax.margins(x=0.0)
    ax.legend(**legend_style())
    return tidy(ax, x_label, "density a factor of ten" if prior.positive else "density")


def kernel_weights(
    ax: Axes | None,
    weights: KernelWeights,
    *,
    true: ArrayLike | None = None,
    x_label: str = "weight of the kernel",
) -> Axes:
    """Draw posterior means and intervals of the weights of kernels, a row for each kernel.

    Args:
        ax: axes to draw on, None for a new figure.
        weights: of `latentgp.kernel_weights`.
        true: (Q, M) weights that are known, drawn as ticks.
        x_label: what the weights are, and their unit.

    Raises:
        InputError: known weights of another shape.

    Example:
        >>> import latentgp as lgp, numpy as np
        >>> mean = np.array([[0.8, 0.2]])
        >>> weights = lgp.surfaces.KernelWeights(
        ...     ("grey matter", "T2"), ("0",), mean, 0.1 * mean, 0.8 * mean, 1.2 * mean, 0.95
        ... )
        >>> ax = kernel_weights(None, weights)
        >>> [tick.get_text() for tick in ax.get_yticklabels()]
        ['grey matter', 'T2']
    """
    latents, parts = weights.mean.shape
    known = None if true is None else np.asarray(true, np.float64)
    if known is not None and known.shape != weights.mean.shape:
        raise InputError(
            f"true has shape {known.shape}, but there are weights of shape {weights.mean.shape}: "
            "pass one for each"
        )
    ax = axes_of(ax, (6.4, 1.2 + 0.28 * parts * max(latents, 2) ** 0.7))
    places, spread = np.arange(parts), 0.7 / latents
    for number, latent in enumerate(weights.latents):
        y = places + spread * (number - 0.5 * (latents - 1))
        color = CURVES[number % len(CURVES)]
        marker = MARKERS[number % len(MARKERS)]
        ax.hlines(y, weights.lower[number], weights.upper[number], color=color, linewidth=1.8)
        ax.plot(weights.mean[number], y, marker, color=color, markersize=5, label=latent)
        if known is not None:
            label = "known" if number == latents - 1 else None
            style: dict[str, Any] = {"color": INK, "markersize": 11, "markeredgewidth": 1.6}
            ax.plot(known[number], y, "|", label=label, zorder=4, **style)
    for edge in places[1:] - 0.5:
        ax.axhline(edge, color=LIGHT, linewidth=0.8, zorder=1)
    ax.set_xlim(left=0)
    if latents > 1 or known is not None:
        _legend_above(ax, title=f"mean, {100 * weights.level:g} % interval")
    return _with_rows(ax, weights.parts, x_label)


def traces(ax: Axes | None, draws: ArrayLike, *, y_label: str = "hyper-parameter") -> Axes:
    """Draw the values of each chain in their order: chains that have mixed cannot be told apart.

    Args:
        ax: axes to draw on, None for a new figure.
        draws: (C, S) of C chains, S each, for instance of one of `posterior.hyperparameters`.
        y_label: what was drawn, with its unit.

    Raises:
        InputError: if the draws are not two-dimensional, are none, or hold NaN.

    Example:
        >>> draws = [[0.1, 0.4, 0.2], [0.3, 0.2, 0.5]]
        >>> traces(None, draws, y_label="length-scale [m]").get_ylabel()
        'length-scale [m]'
    """
    chains = _chains(draws)
    ax = axes_of(ax, (6.4, 3.8))
    for number, chain in enumerate(chains):
        style: dict[str, Any] = {"color": CURVES[number % len(CURVES)], "linewidth": 0.8}
        ax.plot(np.arange(chain.size), chain, alpha=0.75, label=f"chain {number}", **style)
    _with_legend_of_chains(ax, len(chains))
    return tidy(ax, "draw", y_label)


def ranks(
    ax: Axes | None,
    draws: ArrayLike,
    *,
    bins: int = 20,
    x_label: str = "rank of the draw among those of all chains",
) -> Axes:
    """Draw how the ranks of each chain's draws are spread (Vehtari et al. 2021, section 4.3).

    Ranks are among the draws of all chains. Of chains with one law they are uniform: the dashed
    line. A chain that stays high or low, or moves less than the others, leaves it.

    Args:
        ax: axes to draw on, None for a new figure.
        draws: (C, S) of C chains, S each.
        bins: number of equally wide bins.
        x_label: what the ranks are of.

    Raises:
        InputError: if the draws are not two-dimensional, are none, or hold NaN; fewer than one bin.

    Example:
        >>> ranks(None, [[0.1, 0.4, 0.2], [0.3, 0.2, 0.5]], bins=3).get_ylabel()
        'draws of the chain'
    """
    from scipy.stats import rankdata

    chains = _chains(draws)
    if bins < 1:
        raise InputError(f"bins must be at least 1, got {bins}: try 20")
    edges = np.linspace(0.5, chains.size + 0.5, bins + 1)
    order = rankdata(chains).reshape(chains.shape)
    ax = axes_of(ax, (6.4, 3.8))
    for number, chain in enumerate(order):
        counts = np.histogram(chain, edges)[0]
        style: dict[str, Any] = {"color": CURVES[number % len(CURVES)], "linewidth": 1.6}
        ax.stairs(counts, edges, label=f"chain {number}", **style)
    usual = chains.shape[1] / bins
    ax.axhline(usual, color=GREY, linestyle="--", linewidth=1.0, label="one law")
    ax.set_ylim(bottom=0.0)
    _with_legend_of_chains(ax, len(chains))
    return tidy(ax, x_label, "draws of the chain")


def reject_curve(ax: Axes | None, curve: RejectCurve, *, label: str | None = None) -> Axes:
    """Draw the accuracy on the rows that are decided against the share of those that are not.

    Call again with the axes to compare models. A point is a threshold on the probability of the
    likeliest class; the curve ends where no row is left.

    Args:
        ax: axes to draw on, None for a new figure.
        curve: of `latentgp.surfaces.evaluation.metrics.reject_curve`.
        label: legend entry of this model.

    Example:
        >>> from latentgp.surfaces.evaluation import metrics
        >>> curve = metrics.reject_curve([1, 0, 0], [0.9, 0.2, 0.55])
        >>> reject_curve(None, curve).get_ylabel()
        'accuracy on the other rows'
    """
    ax = axes_of(ax, (6.4, 3.8))
    color = CURVES[len(ax.get_lines()) % len(CURVES)]
    ax.plot(curve.rejected, curve.accuracy, "o-", markersize=3.0, color=color, label=label)
    ax.set_xlim(-0.02, 1.02)
    if label is not None:
        ax.legend(**legend_style())
    return tidy(ax, "share of rows rejected", "accuracy on the other rows")


def comparison(
    ax: Axes | None,
    names: Sequence[str],
    scores: ArrayLike,
    standard_errors: ArrayLike,
    *,
    x_label: str = "negative log predictive density [nats a row]",
    bars: str = "two standard errors",
) -> Axes:
    """Draw a score of several contenders with bars of two standard errors, the first on top.

    Args:
        ax: axes to draw on, None for a new figure.
        names: (contenders,) of the contenders.
        scores: (contenders,) finite scores.
        standard_errors: (contenders,) theirs; NaN draws none.
        x_label: what the score is, with its unit.
        bars: what the bars are.

    Raises:
        InputError: if the arrays are not flat or differ in length.

    Example:
        >>> ax = comparison(None, ["ep", "laplace"], [0.31, 0.34], [0.01, 0.01])
        >>> [tick.get_text() for tick in ax.get_yticklabels()]
        ['ep', 'laplace']
    """
    errors = np.nan_to_num(np.asarray(standard_errors, float))
    scores, errors = equally_long(scores=scores, standard_errors=errors)
    if len(names) != scores.size:
        raise InputError(f"{len(names)} names and {scores.size} scores: pass one of each")
    ax = axes_of(ax, (7.2, 0.2 + rows_height(names)))
    places = np.arange(scores.size)
    style: dict[str, Any] = {"color": BLUE, "markersize": 5.5, "linewidth": 1.6, "zorder": 3}
    ax.errorbar(scores, places, xerr=2 * errors, fmt="o", **style)
    return _with_rows(ax, names, f"{x_label}\nbars: {bars}")


def cost_front(
    ax: Axes | None,
    names: Sequence[str],
    seconds: ArrayLike,
    scores: ArrayLike,
    standard_errors: ArrayLike,
    *,
    y_label: str = "negative log predictive density [nats a row]",
    bars: str = "two standard errors",
) -> Axes:
    """Draw a score of several contenders against its cost, and the front of the best so far.

    Contenders on the front are in colour: every faster one has a worse score.

    Args:
        ax: axes to draw on, None for a new figure.
        names: (contenders,) of the contenders, written beside their points.
        seconds: (contenders,) positive costs.
        scores: (contenders,) finite scores, of which the lowest is best.
        standard_errors: (contenders,) theirs; NaN draws none.
        y_label: what the score is, with its unit.
        bars: what the bars are.

    Raises:
        InputError: if the arrays are not flat or differ in length.

    Example:
        >>> ax = cost_front(None, ["few", "many"], [2.0, 9.0], [0.4, 0.3], [0.01, 0.0])
        >>> ax.get_xlabel().splitlines()[0]
        'fit [s]'
    """
    errors = np.nan_to_num(np.asarray(standard_errors, float))
    seconds, scores, errors = equally_long(seconds=seconds, scores=scores, standard_errors=errors)
    if len(names) != scores.size:
        raise InputError(f"{len(names)} names and {scores.size} scores: pass one of each")
    from matplotlib.ticker import LogLocator

    ax = axes_of(ax, (7.2, 4.2))
    order = np.lexsort((scores, seconds))
    rank, best = np.argsort(order), np.minimum.accumulate(scores[order])
    front = order[np.concatenate([[True], best[1:] < best[:-1]])]
    ax.step(seconds[front], scores[front], where="post", color=BLUE, linewidth=1.2, zorder=2)
    for place, name in enumerate(names):
        color = BLUE if place in front else GREY
        at = seconds[place], scores[place]
        style: dict[str, Any] = {"color": color, "markersize": 6, "linewidth": 1.4, "zorder": 3}
        ax.errorbar(*at, yerr=2 * errors[place], fmt="o", **style)
        beside = 8, _NAMES_AT[rank[place] % len(_NAMES_AT)]
        words: dict[str, Any] = {"textcoords": "offset points", "xytext": beside, "zorder": 4}
        words["bbox"] = {"color": "white", "alpha": 0.8, "pad": 0.5, "linewidth": 0}
        ax.annotate(name, at, fontsize=9, color=INK if place in front else GREY, **words)
    ax.set_xscale("log")
    ax.set_xlim(seconds.min() / 1.3, seconds.max() * 2.5)  # room for names
    ax.margins(y=0.12)
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_locator(LogLocator(subs=()))
    return tidy(ax, f"fit [s]\nbars: {bars}", y_label)


def save_figure(drawn: Axes | Figure, path: str | Path, *, dots_per_inch: int = 160) -> Path:
    """Save the figure of the axes, and return the path; its suffix is the format: png, pdf, svg.

    Args:
        drawn: axes or figure.
        path: where to; missing folders are made.
        dots_per_inch: resolution of pixel formats.

    Raises:
        InputError: if the ending is not a known format or the file cannot be written.

    Example:
        >>> import tempfile
        >>> save_figure(relevance(None, [1.0]), tempfile.mkdtemp() + "/relevance.svg").suffix
        '.svg'
    """
    from matplotlib.figure import Figure

    path = check_picture_path(path)
    figure: Any = drawn if isinstance(drawn, Figure) else drawn.figure
    with written_whole(path) as partial:
        path.parent.mkdir(parents=True, exist_ok=True)
        kind = path.suffix[1:].lower()
        figure.savefig(partial, dpi=dots_per_inch, facecolor="white", format=kind)
    return path


def check_picture_path(path: str | Path) -> Path:
    """The path, if a picture can be written in the format of its ending; ask before long work.

    Raises:
        InputError: if Matplotlib does not know the ending, or the file cannot be written.

    Example:
        >>> check_picture_path("bands.svg").name
        'bands.svg'
    """
    from matplotlib.backend_bases import FigureCanvasBase

    path = Path(path)
    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        raise InputError(f"{path} has no picture's ending: use one of {', '.join(sorted(known))}")
    return check_writable(path, makes_folders=True)


def _chains(draws: ArrayLike) -> NDArray[np.float64]:
    """Draws (C, S), checked."""
    chains = np.asarray(draws, dtype=np.float64)
    if chains.ndim != 2 or not chains.size:
        raise InputError(
            f"draws has shape {chains.shape}: pass (chains, draws) of one number, such as one "
            "entry of an array"
        )
    if np.isnan(chains).any():
        raise InputError("draws holds NaN: pass numbers")
    return chains


def _with_legend_of_chains(ax: Axes, chains: int) -> None:
    ax.margins(x=0.01)
    if chains <= 2 * len(CURVES):
        _legend_above(ax)


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


def _in_days(dates: ArrayLike) -> NDArray[np.float64]:
    """Dates as Matplotlib counts them, NaN for what is missing."""
    from matplotlib.dates import date2num

    array = np.asarray(dates)
    there = array == array  # unlike pandas's NaT, of which Matplotlib makes no date
    days = np.full(array.shape, np.nan)
    days[there] = date2num(array[there])
    return days


def _points(ax: Axes, x: NDArray, y: NDArray, color: str, label: str, alpha: float) -> None:
    size = 0.5 + 5.0 * alpha
    style: dict[str, Any] = {"color": color, "markersize": size, "alpha": alpha}
    ax.plot(x, y, "o", markeredgewidth=0, label=label, zorder=3, **style)


def _view_the_end(ax: Axes) -> None:
    """Cut the start of the curves where it would squeeze the rest into a fifth of the height."""
    runs = [np.asarray(line.get_ydata(), dtype=np.float64) for line in ax.get_lines()]
    runs = [run[np.isfinite(run)] for run in runs if np.isfinite(run).any()]
    if not runs:
        return
    top, bottom = max(run.max() for run in runs), min(run.min() for run in runs)
    end = min(run[run.size // 5 :].min() for run in runs)
    if end < top and top - bottom > 5 * (top - end):
        bottom = end
    ax.set_ylim(*_with_margin(bottom, top))


def _with_margin(low: float, high: float) -> tuple[float, float]:
    margin = 0.06 * (high - low) if high > low else 1.0
    return low - margin, high + margin


def _written(name: str, characters: int = 26) -> str:
    """A name in lines of so many characters, and with no mathematics between dollars."""
    return in_lines(name, characters).replace("$", r"\$")


def _with_rows(ax: Axes, names: Sequence[str], x_label: str, y_label: str = "") -> Axes:
    """Tidy axes with a row for each name, from top to bottom."""
    tidy(ax, x_label, y_label)
    ax.set_yticks(np.arange(len(names)), [_written(name) for name in names])
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
    return ax


def rows_height(names: Sequence[str], curves: int = 1) -> float:
    """Height in inches of a figure with a row for each name, and so many curves in a row."""
    lines = max((in_lines(name, 26).count("\n") + 1 for name in names), default=1)
    return 1.1 + max(len(names), 2) * max(0.28, 0.05 + 0.16 * lines, 0.1 * curves)


def _date_axis(ax: Axes) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(maxticks=7)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def _legend_above(ax: Axes, **more: Any) -> None:
    """A legend that hides nothing, in as many columns as there is room for."""
    handles, names = ax.get_legend_handles_labels()
    across = characters_along(ax)[0]
    columns = min(max(1, across // (max(map(len, names)) + 6)), len(names), 5)
    above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": columns}
    written = [_written(name, max(across - 6, 8)) for name in names]
    ax.legend(handles, written, **legend_style(**above, **more))


def wilson_interval(
    frequency: NDArray[np.float64], rows: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """95 % interval of a binomial share; Wilson (1927), "Probable inference", JASA 22."""
    squared = NORMAL_95**2
    center = (frequency + squared / (2 * rows)) / (1 + squared / rows)
    spread = np.sqrt(frequency * (1 - frequency) / rows + squared / (4 * rows**2))
    half = NORMAL_95 * spread / (1 + squared / rows)
    return center - half, center + half
