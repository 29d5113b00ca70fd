"""A report on a fitted model: one page that needs nothing else."""

from __future__ import annotations

import copy
import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from latentgp.errors import refuse
from latentgp.rows.arrays import unmasked
from latentgp.runtime.writing import check_writable, written_whole
from latentgp.surfaces.estimators.base import GPEstimator
from latentgp.surfaces.estimators.classifier import LabelEstimator
from latentgp.surfaces.report import sections
from latentgp.surfaces.report.baselines import Baseline, baselines
from latentgp.surfaces.report.forecast import forecast
from latentgp.surfaces.report.hyperparameters import hyperparameters
from latentgp.surfaces.report.judged import judged
from latentgp.surfaces.report.opening import in_short
from latentgp.surfaces.report.page import page_of
from latentgp.surfaces.report.places import places
from latentgp.surfaces.report.terms import terms
from latentgp.surfaces.tables.columns import NumberColumn
from latentgp.surfaces.tables.encoder import TableEncoder
from latentgp.surfaces.tables.model import TableModel
from latentgp.surfaces.tables.values import Tell, text_of, warn

__all__ = ["as_table_model", "write_report"]
_MOST_COLUMNS = 40  # that variance shares are asked of


def write_report(
    model: TableModel,
    frame: pd.DataFrame,
    path: str | Path,
    *,
    command: str | None = None,
    tell: Tell = warn,
    verbose: int = 0,
) -> Path:
    """Write a page about a fitted model: what it is, whether to trust it, what the columns do.

    Rows that the model has learned from are judged by predictions from the other rows.

    Args:
        model: fitted.
        frame: rows with the target.
        path: of the page.
        command: that makes the page, for it to show; that of the fit is the model's.
        tell: warns of what the rows hold.
        verbose: 1 shows progress of what takes longer than a second.

    Returns:
        The file written.

    Raises:
        InputError: no row with a target, or a path that cannot be written.
    """
    path = check_writable(Path(path))
    began = time.perf_counter()
    rows = judged(model, frame, tell)
    predicted = time.perf_counter()
    asked = model.effects(rows.frame, tell)
    shares = asked.variance_shares() if 1 < len(asked.columns) <= _MOST_COLUMNS else None
    ours = Baseline("this model", rows.log_density, rows.mean, rows.probabilities)
    contenders = [ours, *baselines(rows)]
    of_effects = sections.effects(rows, asked, shares, verbose)
    seconds = {
        "fit": float(model.estimator.diagnostics_.seconds),
        "predictions of this report": predicted - began,
        "effects of this report": time.perf_counter() - predicted,
    }
    digest = hashlib.sha256(np.ascontiguousarray(rows.X).tobytes()).hexdigest()
    found = [
        in_short(rows, contenders, shares),
        sections.trust(model),
        sections.scores(rows, contenders),
        forecast(rows),
        places(rows),
        sections.calibration(rows),
        sections.residuals(rows),
        of_effects,
        terms(model),
        sections.what_it_is(model),
        hyperparameters(rows),
        sections.search(model),
        sections.columns(model) if model.notes else None,
        sections.reproduction(model, digest, command, seconds),
    ]
    lead = f"Made by latentgp of {len(rows.frame):,} rows."
    text = page_of(f"Report on {model.target}", lead, [section for section in found if section])
    with written_whole(path) as partial:
        partial.write_text(text, encoding="utf-8")
    return path


def as_table_model(
    estimator: GPEstimator, X: Any, y: Any, sample_weight: Any = None, **side: Any
) -> "tuple[TableModel, pd.DataFrame]":
    """An estimator of arrays as the model of a table whose columns are those of X and the target.

    Side arrays hold what belongs to each row, such as `exposure`. Where a column of X has the name
    of the target or of one of these, theirs is followed by an underscore. Labels become text.

    Raises:
        InputError: several outputs.
    """
    refuse({"a report is of one output: fit each by itself": np.ndim(y) > 1 and np.shape(y)[1] > 1})
    made_by = f"{estimator!r}.fit(X, y)"
    if isinstance(estimator, LabelEstimator):
        estimator = copy.copy(estimator)
        estimator.classes_ = np.array([text_of(label) for label in estimator.classes_.tolist()])
    names = [str(name) for name in X.columns] if isinstance(X, pd.DataFrame) else None
    values = np.asarray(unmasked(X), dtype=np.float64)
    values = values[:, None] if values.ndim == 1 else values
    names = names or [f"x{d}" for d in range(values.shape[1])]
    named = list(zip(names, values.T, strict=True))
    columns = [NumberColumn(name, "number", float(np.median(own)), False) for name, own in named]
    encoder, frame = TableEncoder(tuple(columns), ()), pd.DataFrame(dict(named))
    beside = {name: given for name, given in side.items() if given is not None}
    sides = {name: _apart(name, names) for name in beside}
    weights = None if sample_weight is None else _apart("weights", names)
    target, spreads = _apart("y", names), tuple(np.std(values, axis=0).tolist())
    frame = frame.assign(**{sides[name]: np.asarray(given) for name, given in beside.items()})
    frame = frame if weights is None else frame.assign(**{weights: np.asarray(sample_weight)})
    frame = frame.assign(**{target: np.asarray(unmasked(y)).reshape(len(values))})
    how = {"spreads": spreads, "made_by": made_by, "weights": weights}
    return TableModel(estimator, encoder, target, (), sides, **how), frame  # type: ignore


def _apart(name: str, others: Sequence[str]) -> str:
    """The name, with underscores after it until no other one is the same."""
    return _apart(f"{name}_", others) if name in others else name


def report_of_estimator(
    estimator: GPEstimator, path: str | Path, X: Any, y: Any, sample_weight: Any, **side: Any
) -> Path:
    """Write a page about an estimator of arrays: `write_report` of it as a table's model."""
    return write_report(*as_table_model(estimator, X, y, sample_weight, **side), path)
