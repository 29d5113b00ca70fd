"""Export of models of tables: the encoding of columns, and test rows of the model's own kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from latentgp.errors import InputError
from latentgp.surfaces.estimators.classifier import LabelEstimator
from latentgp.surfaces.export.front import Exported, Format, write
from latentgp.surfaces.tables.columns import CategoryColumn, NumberColumn, SeriesColumn
from latentgp.surfaces.tables.formula.coding import LevelColumn
from latentgp.surfaces.tables.formula.encoder import FormulaEncoder
from latentgp.surfaces.tables.formula.parser import parse
from latentgp.surfaces.tables.notation import DateNotation, DurationNotation, NumberNotation
from latentgp.surfaces.tables.start import SIDES
from latentgp.surfaces.tables.values import gaps_among, parts_of_labels, silent

if TYPE_CHECKING:
    from latentgp.surfaces.tables.model import TableModel

_ROWS = 8
_NEVER_SEEN = "never seen in training"
_ONE_A_ROW = ("exposure", "trials", "noise_variance")  # side information that test rows have


def export_table_model(
    model: TableModel,
    folder: str | Path,
    *,
    formats: Sequence[Format] = ("numpy",),
    tolerance: float = 1e-10,
) -> Exported:
    """Write a table model's predictions without latentgp, as `export_predictor` does."""
    import pandas as pd

    columns, X = _test_rows(model)
    frame = pd.DataFrame(columns)
    answers = model.predict(frame, tell=silent)
    estimator = model.estimator
    classes = estimator.classes_.tolist() if isinstance(estimator, LabelEstimator) else None
    one_latent = estimator.model_.likelihood.latent_size == 1
    two_classes = model.task == "classification" and len(classes or ()) == 2
    more = {
        "target": model.target,
        "classes": classes,
        "second_class": two_classes and one_latent,
        "encoder": [told(column) for column in _columns(model)],
        "formula": _formula(model),
        "read_as_text": model.encoder.read_as_text,
        "side_columns": {
            name: [column, SIDES[name].without]
            for name, column in model.side_columns.items()
            if SIDES[name].without is not None  # else no prediction depends on it
        },
        "test_columns": columns,
        "test_answers": list(map(str, answers.columns)),
    }
    tests = {f"table_{i}": np.asarray(answers.iloc[:, i].tolist()) for i in range(answers.shape[1])}
    known = {name: own for name, own in model.side_columns.items() if own in columns}
    side = {name: np.asarray(columns[own], dtype=np.float64) for name, own in known.items()}
    own = {"tolerance": tolerance, "more": more, "tests": tests, "of_tables": True}
    return write(model.estimator.posterior_, folder, formats, X, side, **own)


_Column = NumberColumn | CategoryColumn | SeriesColumn | LevelColumn
_NOTATIONS = {NumberNotation: "number", DateNotation: "date", DurationNotation: "duration"}
_KINDS = {CategoryColumn: "category", SeriesColumn: "series", LevelColumn: "levels"}


def _columns(model: TableModel) -> tuple[_Column, ...]:
    encoder = model.encoder
    if isinstance(encoder, FormulaEncoder):
        return (*encoder.numbers, *encoder.levels, *encoder.groups)
    return encoder.columns


def _formula(model: TableModel) -> dict[str, Any] | None:
    """Factors of a formula's columns, and its groups; None without a formula."""
    encoder = model.encoder
    if not isinstance(encoder, FormulaEncoder):
        return None
    read = parse(encoder.formula)
    groups = []
    for group, names in zip(encoder.groups, read.grouped, strict=True):
        together = read.together(names)
        parts = [parts_of_labels(group.labels, len(own)) for own in together]
        gaps = [list(map(gaps_among, own)) for own in parts]
        groups.append([list(map(list, together)), together.index(names), gaps])
    return {"columns": encoder.column_names, "products": encoder.products, "groups": groups}


def told(column: _Column) -> dict[str, Any]:
    """Encoding of a column, of JSON's types."""
    if isinstance(column, NumberColumn):
        notation = values = column.notation
        if notation is not None:
            values = [_NOTATIONS[type(notation)], list(asdict(notation).values())]
        return asdict(column) | {"kind": "number", "notation": values}
    gaps = gaps_among(_levels(column))
    return asdict(column) | {"kind": _KINDS[type(column)], "gaps": gaps}


def _levels(column: CategoryColumn | SeriesColumn | LevelColumn) -> Sequence[str]:
    if isinstance(column, CategoryColumn):
        return (*column.categories, *column.others)
    return column.levels if isinstance(column, LevelColumn) else column.labels


def _test_rows(model: TableModel) -> tuple[dict[str, list[Any]], np.ndarray]:
    """Rows that the model takes, as columns and encoded: a formula may have a logarithm of one."""
    import pandas as pd

    for reach in (1.0, 0.3, 0.1, 0.03):
        columns = rows_to_test(model, reach)
        try:
            return columns, model.encoder.encode(pd.DataFrame(columns), silent)
        except InputError:
            continue
    columns = rows_to_test(model, 0.0)
    return columns, model.encoder.encode(pd.DataFrame(columns), silent)


def rows_to_test(model: TableModel, reach: float) -> dict[str, list[Any]]:
    """Rows that the encoding knows, with gaps and a category that it does not, of JSON's types.

    Numbers have `reach` times their usual spread around their medians.
    """
    places = model.encoder.feature_names
    columns: dict[str, list[Any]] = {}
    for column in _columns(model):
        if isinstance(column, NumberColumn):
            spreads = dict(zip(places, model.spreads or [1.0] * len(places), strict=True))
            within = 0.1 * abs(column.median)  # of what is in expressions alone
            spread = spreads.get(column.feature_names[0], within)
            columns[column.name] = _numbers(column, reach * spread)
        elif isinstance(column, CategoryColumn):
            values = [*column.categories[:_ROWS], *column.others[:1], _NEVER_SEEN]
            columns[column.name] = [values[row % len(values)] for row in range(_ROWS)]
        else:
            for name, known in _by_column(model, column.name, _levels(column)).items():
                own = [*known[: _ROWS - 1], _NEVER_SEEN]
                columns.setdefault(name, [own[row % len(own)] for row in range(_ROWS)])
        if getattr(column, "marks_missing", False):
            columns[column.name][-1] = None
    for name in _ONE_A_ROW:
        if name in model.side_columns:
            columns[model.side_columns[name]] = [float(1 + row % 3) for row in range(_ROWS)]
    return columns


def _by_column(model: TableModel, name: str, labels: Sequence[str]) -> dict[str, list[str]]:
    """Labels by column: of combinations "a:b" of two columns each has its part."""
    encoder = model.encoder
    grouped = parse(encoder.formula).grouped if isinstance(encoder, FormulaEncoder) else ()
    names = next((own for own in grouped if ":".join(own) == name), (name,))
    return dict(zip(names, parts_of_labels(labels, len(names)), strict=True))


def _numbers(column: NumberColumn, spread: float) -> list[Any]:
    import pandas as pd

    numbers = column.median + np.linspace(-1.5, 1.5, _ROWS) * spread
    if column.source == "boolean":
        return [bool(row % 2) for row in range(_ROWS)]
    if column.source == "date":
        ends = [pd.Timedelta(round(n), "D" if column.unit == "days" else "s") for n in numbers]
        return [(pd.Timestamp(column.origin) + end).isoformat() for end in ends]
    return [repr(n) for n in numbers.tolist()] if column.source == "text" else numbers.tolist()
