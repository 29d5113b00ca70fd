"""A time series with its forecast: rows as observed, the prediction with its band, and beyond."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from latentgp.rows.arrays import evenly
from latentgp.surfaces.evaluation import plots
from latentgp.surfaces.evaluation.effects import Dependence, in_words
from latentgp.surfaces.evaluation.plots import drawing
from latentgp.surfaces.report.figures import new_axes, picture
from latentgp.surfaces.report.judged import Assessment
from latentgp.surfaces.report.page import Block, Figure, Section, Table, Text
from latentgp.surfaces.tables.columns import NumberColumn, SeriesColumn
from latentgp.surfaces.tables.values import column_of, silent, texts_in

_LEVEL = 0.95
_HORIZON = 0.2  # of the span of the rows
_POINTS, _LISTED, _SERIES, _DRAWN = 300, 8, 4, 2_000


def forecast(judged: Assessment) -> Section | None:
    """Pictures of the series; None of what is no time series."""
    model, encoder = judged.model, judged.model.encoder
    time, *others = getattr(encoder, "columns", (None,))
    if not isinstance(time, NumberColumn) or not time.required:
        return None
    by = next((column for column in others if isinstance(column, SeriesColumn)), None)
    frame = encoder.read(judged.frame)
    times: Any = frame[time.name]
    first, last = times.min(), times.max()
    grid = first + (last - first) * np.linspace(0, 1 + _HORIZON, _POINTS)
    places = np.flatnonzero(np.asarray(grid > last))
    places = places[evenly(len(places), _LISTED)]
    series = None if by is None else texts_in(column_of(frame, by.name))
    labels = [None] if series is None else series.value_counts().index
    side, scale, said = _side(judged)
    blocks: list[Block] = []
    percent = f"{100 * _LEVEL:g} %"
    for number, label in enumerate(labels[:_SERIES]):
        asked, drawn, of = pd.DataFrame({time.name: grid, **side}), judged.uncensored, ""
        if by is not None:
            asked[by.name], of = label, f", {by.name} = {label}"
            drawn = drawn & (series == label).to_numpy()
        found = model.predict(asked, _LEVEL, tell=silent)
        axes, rows = new_axes(3.6), np.flatnonzero(drawn)
        rows = rows[evenly(len(rows), _DRAWN)] if len(rows) else rows
        if judged.classes is not None and len(judged.classes) > 2:
            blocks.append(_classes(judged, axes, asked[time.name], found, last, number, of))
            continue
        if judged.classes is not None:
            name = f"probability_{judged.classes[-1]}"
            shown = y_label = model.probability_of(judged.classes[-1])
            mean, held = found[name], "the probability"
            ends: Any = [found.get(f"{name}_{end}", mean) for end in ("lower", "upper")]
            observed = (judged.y[rows] == judged.classes[-1]).astype(float)
        else:
            shown, y_label, held = model.response, model.target, "a row"
            mean, ends = found["mean"], [found["lower"], found["upper"]]
            observed = judged.y[rows].astype(float) * scale[rows]
        labelled = {"x_label": time.name, "y_label": y_label, "mean_label": "predicted"}
        plots.prediction_bands(
            *(axes, asked[time.name].to_numpy(), mean, *ends),
            observed_x=times.to_numpy()[rows],
            observed_y=observed,
            band_label=f"{percent} interval",
            **labelled,
        )
        _end_of_rows(axes, last)
        words = f"{y_label} over {time.name}{of}, predicted until {in_words(grid[-1])}"
        caption = (
            f"{words}. Dots are rows of this report; the band holds {held} with {percent}; past "
            f"the dashed line no row is known.{said}"
        )
        blocks.append(picture(axes, f"forecast-{number}", f"{words}.", caption))
        cells = [
            (in_words(asked[time.name].iloc[g]), *(f"{a.iloc[g]:.4g}" for a in (mean, *ends)))
            for g in places
        ]
        heads = (time.name, "mean", f"{percent} from", "to")
        blocks.append(Table(heads, cells, f"Values of the forecast of {shown}{of}", folded=True))
    left = len(labels) - _SERIES
    if left > 0:
        words = f"These are the {_SERIES} series with the most rows; {left} more are not drawn."
        blocks.append(Text(words))
    figures_first = sorted(blocks, key=lambda block: not isinstance(block, Figure))
    return Section("forecast", "What comes next?", figures_first)


def _classes(
    judged: Assessment, axes: Any, times: Any, found: Any, last: Any, number: int, of: str
) -> Figure:
    """Probabilities of more than two classes."""
    model, classes = judged.model, judged.classes if judged.classes is not None else ()
    mean = np.stack([found[f"probability_{label}"] for label in classes], axis=1)
    names = tuple(model.probability_of(label) for label in classes)
    values = str(times.name), times.to_numpy(), names, *(mean, mean, mean), mean[None]
    plots.dependence(axes, Dependence(*values, _LEVEL, 0, "probability"))
    _end_of_rows(axes, last)
    words = f"Probabilities of {model.target} over {times.name}{of}"
    caption = f"{words}; past the dashed line no row is known."
    return picture(axes, f"forecast-{number}", f"{words}.", caption)


def _end_of_rows(axes: Any, last: Any) -> None:
    axes.axvline(last, color=drawing.GREY, linestyle="--", linewidth=1.0, zorder=1)


def _side(judged: Assessment) -> tuple[dict[str, float], np.ndarray, str]:
    """Side information of the forecast, what targets are multiplied by, and words about it."""
    side, scale, said = {}, np.ones(len(judged.y)), ""
    for name, values in judged.data.side_information.items():
        column = judged.model.side_columns.get(name)
        if column is None or name not in ("exposure", "trials", "noise_variance"):
            continue
        middle = float(np.median(values))
        side[column] = middle
        if name != "noise_variance":
            scale = scale * middle / np.asarray(values)
            said = f" Of rows and forecast alike it is what {column} = {middle:g} gives."
    return side, scale, said
