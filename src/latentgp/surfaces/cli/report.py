"""Reports: tables and figures of calibration and comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from latentgp.errors import InputError
from latentgp.hyperparameters.base import parameters
from latentgp.hyperparameters.summary import aligned
from latentgp.runtime.progress import stepwise
from latentgp.surfaces.estimators.classifier import LabelEstimator
from latentgp.surfaces.evaluation import plots
from latentgp.surfaces.evaluation.comparison import LEVELS, ComparisonRow
from latentgp.surfaces.evaluation.effects import Effects
from latentgp.surfaces.evaluation.row_scores import scores_of
from latentgp.surfaces.tables.scores import coverages
from latentgp.surfaces.tables.values import Tell, warn

if TYPE_CHECKING:
    import pandas as pd

    from latentgp.surfaces.evaluation.comparison import Comparison
    from latentgp.surfaces.tables.model import TableModel


def calibration_picture(
    model: "TableModel",
    frame: "pd.DataFrame",
    path: Path,
    weights: str | None = None,
    tell: Tell = warn,
) -> Path:
    """Reliability diagram of a classifier, interval calibration of a regressor."""
    X, y, counts, side = model.weighted(frame, tell, weights)
    counts, estimator = np.ones(len(y)) if counts is None else counts, model.estimator
    if isinstance(estimator, LabelEstimator):
        bins = int(np.clip(len(y) // 30, 5, 15))  # fewer rows a bin would show chance alone
        given, classes = estimator.predict_proba(X), estimator.classes_
        shown = given[:, 1] if given.shape[1] == 2 else given
        known = {"classes": classes, "event": f"{model.target} = {classes[-1]}"}
        drawn = plots.reliability_diagram(None, y, shown, bins, **known, sample_weight=counts)
    else:
        found = scores_of(estimator.posterior_.predict(X, **side), y)
        observed = coverages(found, LEVELS, counts)
        drawn = plots.interval_calibration(None, LEVELS, observed, rows=len(y))
    return plots.save_figure(drawn, path)


def lengthscales(model: "TableModel") -> str:
    """Tables of all length-scales beside their inputs, the most relevant first.

    That is the shortest relative to the input's spread. One for all inputs is left out.
    """
    names = model.encoder.feature_names
    spreads = model.spreads or np.ones(len(names))
    tables = []
    if model.estimator.model_.depth > 1:  # in standard deviations of the inputs
        return ""
    for info in parameters(model.estimator.model_).values():
        seen = range(len(names)) if info.dimensions is None else info.dimensions
        if info.role != "lengthscale" or np.shape(info.value) != (len(seen),):
            continue
        each = ((names[column], spreads[column]) for column in seen)
        rows = sorted(
            (value / spread if spread else np.inf, name, value, spread)
            for value, (name, spread) in zip(info.value, each, strict=True)
        )
        rows = [(name, f"{a:.4g}", f"{b:.4g}", f"{ratio:.3g}") for ratio, name, a, b in rows]
        heading = "input", "length-scale", "input's spread", "length-scale / spread"
        tables.append(f"{info.path}, the most relevant input first:\n{aligned([heading, *rows])}")
    return "\n".join(tables)


def print_comparison(found: "Comparison", target: str) -> None:
    """Print a table of contenders, best first, with notes.

    `behind` is how much higher a NLPD is than the best, next to the standard error of that.
    """
    from rich.console import Console
    from rich.table import Table

    classes = found.task in ("classification", "ordinal")
    console = Console()
    console.width = max(80, console.width)  # less holds no row
    title = f"{found.task} of {target!r}: {found.trained_on} rows to learn from"
    held_out = f"{found.held_out} held out"
    table = Table(title=f"{title}, {held_out}", title_justify="left", box=None, pad_edge=False)
    table.add_column("contender", overflow="fold", min_width=12)
    distances = {"RMSE": "error", "MAE": "absolute_error"}
    distances |= {"deviance": "deviance"} if found.task == "count" else {"CRPS": "crps"}
    distances = {"error": "error"} if classes else distances
    if found.advice:  # of representations, where cost counts
        distances = dict([*distances.items()][:1])
    shown: dict[str, Callable[[ComparisonRow], str]] = {
        "NLPD": lambda row: f"{row.nlpd:.3f}",
        "behind": lambda row: f"{row.nlpd - found.rows[0].nlpd:.3f}",
        "± s.e.": lambda row: f"{row.standard_error:.3f}",
        **{
            heading: lambda row, name=name: f"{getattr(row, name):.3g}"
            for heading, name in distances.items()
        },
        "in 95 %": lambda row: f"{100 * row.coverage:.1f} %",
        "calib.": lambda row: f"{row.calibration_error:.3f}",
        "s": lambda row: f"{row.seconds:.1f}",
    }
    if found.advice:
        shown["memory"] = lambda row: in_megabytes(row.memory)
    if found.verdict:
        shown["bound"] = lambda row: f"{row.bound:.3f}"
    for heading in shown:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in found.rows:
        failed = np.isnan(row.nlpd)
        table.add_row(
            row.name,
            *("-" if failed and heading != "s" else tell(row) for heading, tell in shown.items()),
        )
    console.print(table)
    for row in found.rows:
        if row.note:
            console.print(f"- {row.name}: {row.note}", markup=False)
    for said in (*(f"- {note}" for note in found.notes), found.advice, found.verdict):
        if said:
            console.print(said, markup=False)


def print_effects(
    effects: Effects, columns: Sequence[str], changes: Sequence[str], picture: Path | None
) -> None:
    """Print dependence on columns, differences that changes make, or all columns' shares.

    Changes are such as "age=40..60"; without columns and changes the shares of all are printed. The
    picture is of the first column, or of the shares.
    """
    drawn: Any = None
    for name in stepwise(columns, "averaging effects", "column", verbose=1):
        shown = effects.dependence(name)
        typer.echo(str(shown))
        drawn = drawn or plots.dependence(None, shown)
    for change in changes:
        column, _, ends = change.partition("=")
        before, dots, after = ends.partition("..")
        if not dots:
            raise InputError(f"{change!r} is no change: write COLUMN=BEFORE..AFTER, as age=40..60")
        low, high = (effects.value_of(column, text) for text in (before, after))
        typer.echo(str(effects.contrast({column: low}, {column: high})))
    if not columns and not changes:
        shares = effects.variance_shares()
        typer.echo(str(shares))
        drawn = plots.variance_shares(None, shares)
    if picture is not None and drawn is not None:
        typer.echo(f"Picture written to {plots.save_figure(drawn, picture)}.")


def in_megabytes(memory: float) -> str:
    """Bytes in words; "?" where they are not known."""
    return "?" if np.isnan(memory) else f"{memory / 1e6:,.0f} MB"


def comparison_picture(found: "Comparison", path: Path) -> Path:
    """Figure of the contenders' NLPD, of representations against seconds, of those fitted."""
    fitted = [row for row in found.rows if not np.isnan(row.nlpd)]
    if not fitted:
        raise InputError("no contender could be fitted, so there is no picture: mend the above")
    names, scores = [row.name for row in fitted], [row.nlpd for row in fitted]
    errors = [row.standard_error for row in fitted]
    bars = "two standard errors of the difference from the best"
    if found.advice:
        names = [f"{row.name}\n{in_megabytes(row.memory)}" for row in fitted]
        seconds = [row.seconds for row in fitted]
        axes = plots.cost_front(None, names, seconds, scores, errors, bars=bars)
    else:
        axes = plots.comparison(None, names, scores, errors, bars=bars)
    return plots.save_figure(axes, path)
