"""Pictures of what each input does to the prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from latentgp.rows.arrays import evenly
from latentgp.surfaces.evaluation.effects import Dependence, VarianceShares, in_words
from latentgp.surfaces.evaluation.plots.drawing import (
    BLUE,
    CURVES,
    DASHES,
    GREY,
    LIGHT,
    MARKERS,
    axes_of,
    date_axis,
    in_days,
    legend_above,
    rows_height,
    tidy,
    with_rows,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
        date_axis(ax)
        values = in_days(values)
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
        legend_above(ax)
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
        legend_above(ax)
    return with_rows(ax, names, response, shown.column)


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
    legend_above(ax)
    what = "the prediction" if shares.response == "y" else shares.response
    return with_rows(ax, names, f"share in the variance of {what}")
