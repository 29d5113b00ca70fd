"""A table as the columns that a formula's terms are of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from latentgp.errors import InputError
from latentgp.inference.setup.additive import AdditiveTerms, Groups, Smooth
from latentgp.tables.columns import NumberColumn, SeriesColumn
from latentgp.tables.formula import Formula, categorical, columns_in, parse, value_of
from latentgp.tables.notation import commas
from latentgp.tables.values import (
    Tell,
    checked_frame,
    column_of,
    known_column,
    listed,
    read_column,
    rows_listed,
    source_of,
    texts_in,
    warn,
)

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class LevelColumn:
    """A column of categories with fixed effects, which are differences from the first level.

    Attributes:
        name: the column.
        levels: all categories of training, sorted.
    """

    name: str
    levels: tuple[str, ...]

    def describe(self) -> str:
        """Describe the column in words."""
        return f"{self.name}: {len(self.levels)} categories, beside {self.levels[0]!r}"

    def encode(self, values: pd.Series, tell: Tell = warn) -> Any:
        """The column as a categorical of pandas; what training never saw is the first level."""
        import pandas as pd

        texts = texts_in(values)
        unseen = sorted({str(text) for text in texts if text not in self.levels})
        if unseen:
            tell(
                f"column {self.name!r} holds categories that training never saw",
                f": {listed(unseen)}; they are taken as {self.levels[0]!r}",
            )
        kept = [text if text in self.levels else self.levels[0] for text in texts]
        return pd.Categorical(kept, categories=list(self.levels))


@dataclass(frozen=True)
class FormulaEncoder:
    """Encoding of tables as the columns of a formula's terms, learned from a training table.

    First the columns of the fixed effects, then numbers that Gaussian processes and slopes of
    groups are of, then numbers of groups.

    Attributes:
        formula: as it was written.
        fixed: columns of the table that fixed effects are of.
        numbers: columns of the table that other terms are of.
        groups: columns of groups.

    Example:
        >>> import pandas
        >>> table = pandas.DataFrame({"y": [1.0, 2.0], "dose": [1, 2], "clinic": ["a", "b"]})
        >>> encoder = FormulaEncoder.fit(table, "y ~ dose + (1 | clinic)")
        >>> encoder.feature_names
        ['Intercept', 'dose', 'clinic [number]']
        >>> encoder.encode(table).tolist()
        [[1.0, 1.0, 0.0], [1.0, 2.0, 1.0]]
    """

    formula: str
    fixed: tuple[NumberColumn | LevelColumn, ...]
    numbers: tuple[NumberColumn, ...]
    groups: tuple[SeriesColumn, ...]

    @classmethod
    def fit(cls, frame: pd.DataFrame, formula: str) -> FormulaEncoder:
        """Learn the encoding of a table without gaps in the formula's columns.

        Raises:
            InputError: a formula that cannot be read, or columns that do not fit it.
        """
        read, frame = parse(formula), checked_frame(frame)
        factors = dict.fromkeys(e for term in read.fixed for e in term)
        of_levels = {name for e in factors if (name := categorical(e))}
        within = {
            name
            for e in factors
            if e not in frame.columns and categorical(e) is None
            for name in columns_in(e)
        }
        fixed: list[NumberColumn | LevelColumn] = []
        for name in dict.fromkeys(name for e in factors for name in _columns_of(e, frame)):
            values, source, recognised = _read(frame, name)
            if name in of_levels or (source == "category" and name not in within):
                levels = sorted(set(texts_in(column_of(frame, name))))
                fixed.append(LevelColumn(name, tuple(levels)))
            else:
                fixed.append(_number_column(name, values, source, recognised))
        smooth = [name for term in read.smooth for name in term.columns]
        slopes = [name for term in read.groups for name in term.slopes]
        numbers = [_number_column(n, *_read(frame, n)) for n in dict.fromkeys(smooth + slopes)]
        by = [term.by for term in read.smooth if term.by is not None]
        groups = [
            replace(SeriesColumn.fit(column_of(frame, known_column(frame, name))), noun="groups")
            for name in dict.fromkeys([*(term.column for term in read.groups), *by])
        ]
        return cls(formula, tuple(fixed), tuple(numbers), tuple(groups))

    @cached_property
    def _read(self) -> Formula:
        return parse(self.formula)

    @property
    def columns(self) -> tuple[Any, ...]:
        """Columns of the table that are used, each once."""
        every = {column.name: column for column in (*self.groups, *self.numbers, *self.fixed)}
        return tuple(every.values())

    @property
    def left_out(self) -> tuple[tuple[str, str], ...]:
        """Of columns that are not in the formula nothing is known."""
        return ()

    @property
    def feature_names(self) -> list[str]:
        """Names of the encoded columns, (D,)."""
        design = list(self._design({c.name: _first(c) for c in self.fixed}, 1).columns)
        others = [*self.numbers, *self.groups]
        return design + [name for column in others for name in column.feature_names]

    @property
    def read_as_text(self) -> list[str]:
        """Columns that a reader of CSV must leave as text: 1.200 may be 1200 there."""
        numbers = [c for c in (*self.fixed, *self.numbers) if isinstance(c, NumberColumn)]
        return [column.name for column in numbers if commas(column.notation)]

    def describe(self) -> list[str]:
        """Describe the encoding of the table in words."""
        return [f"formula {self.formula}", *(column.describe() for column in self.columns)]

    def encode(self, frame: pd.DataFrame, tell: Tell = warn) -> NDArray[np.float64]:
        """Turn a table into numbers, (N, D) float64 without NaN.

        Args:
            frame: (N, ...) table with the formula's columns.
            tell: warns.

        Raises:
            InputError: columns are missing, or an expression is not finite.
        """
        frame = checked_frame(frame)
        absent = [column.name for column in self.columns if column.name not in frame.columns]
        if absent:
            raise InputError(
                f"the table lacks {len(absent)} column(s) of the formula: "
                f"add {listed(absent, at_most=20)}"
            )

        def encoded(column: Any) -> Any:
            return column.encode(column_of(frame, column.name), tell)

        fixed = {}
        for column in self.fixed:
            values = encoded(column)
            fixed[column.name] = values[:, 0] if isinstance(column, NumberColumn) else values
        design = self._design(fixed, len(frame))
        wrong = ~np.isfinite(design.to_numpy(np.float64))
        if wrong.any():
            name = design.columns[np.flatnonzero(wrong.any(axis=0))[0]]
            rows = frame.index[np.flatnonzero(wrong.any(axis=1))]
            raise InputError(f"{name!r} of the formula is not finite in {rows_listed(rows)}")
        blocks = [design.to_numpy(np.float64)]
        blocks += [encoded(column) for column in (*self.numbers, *self.groups)]
        return np.concatenate(blocks, axis=1, dtype=np.float64)

    def terms(self) -> AdditiveTerms:
        """The terms of the formula by the numbers of the encoded columns."""
        names = self.feature_names
        fixed = len(names) - len(self.numbers) - len(self.groups)
        numbers = {column.name: fixed + place for place, column in enumerate(self.numbers)}
        first = fixed + len(self.numbers)
        groups = {column.name: first + place for place, column in enumerate(self.groups)}
        smooth = [
            Smooth(
                tuple(numbers[name] for name in term.columns),
                term.kernel,
                term.period,
                None if term.by is None else groups[term.by],
            )
            for term in self._read.smooth
        ]
        of_groups = [
            Groups(
                groups[term.column],
                tuple(numbers[name] for name in term.slopes),
                term.intercept,
                term.correlated,
            )
            for term in self._read.groups
        ]
        return AdditiveTerms(tuple(range(fixed)), tuple(smooth), tuple(of_groups), centred=False)

    def _design(self, values: dict[str, Any], rows: int) -> pd.DataFrame:
        """Columns of the fixed effects by formulaic, from columns that are there by name."""
        import formulaic
        import pandas as pd

        read = self._read
        if not read.fixed:
            return pd.DataFrame(index=range(rows))
        table = {}
        for expression in {factor for term in read.fixed for factor in term}:
            name = categorical(expression) or expression
            table[expression] = (
                values[name] if name in values else value_of(name, values.__getitem__)
            )
        frame = pd.DataFrame(table, index=range(rows))
        quoted = [":".join(f"`{factor}`" for factor in term) or "1" for term in read.fixed]
        if () not in read.fixed:
            quoted.append("0")
        parser: Any = formulaic.Formula
        return pd.DataFrame(parser(" + ".join(quoted)).get_model_matrix(frame, na_action="ignore"))


def target_of(target: str | None, formula: str | None) -> str:
    """The column to predict: as named, or as a formula has it on its left.

    Raises:
        InputError: neither, or two.
    """
    if formula is None:
        if target is None:
            raise InputError("there is no target: name the column to predict, or give a formula")
        return target
    left = parse(formula).target
    if target not in (None, left):
        raise InputError(
            f"the formula predicts {left!r}, but the target is {target!r}: leave it out"
        )
    return left


def rows_without_gaps(frame: pd.DataFrame, formula: str) -> tuple[pd.DataFrame, list[str]]:
    """Rows where every column of a formula is there, and a note on those left out.

    Raises:
        InputError: a column that the table lacks, or gaps in every row.
    """
    frame, read = checked_frame(frame), parse(formula)
    names = [name for term in read.fixed for e in term for name in _columns_of(e, frame)]
    names += [n for term in read.smooth for n in (*term.columns, *([term.by] if term.by else []))]
    names += [name for term in read.groups for name in (term.column, *term.slopes)]
    kept = np.ones(len(frame), bool)
    for name in dict.fromkeys(names):
        kept &= column_of(frame, known_column(frame, name)).notna().to_numpy()
    if not kept.any():
        raise InputError("every row has a gap in a column of the formula: fill the columns")
    left = int((~kept).sum())
    note = [f"left out {left} row(s) with gaps in columns of the formula"] if left else []
    found: Any = frame[kept]
    return found, note


def _columns_of(expression: str, frame: pd.DataFrame) -> tuple[str, ...]:
    if expression in frame.columns:
        return (expression,)
    as_levels = categorical(expression)
    return columns_in(expression) if as_levels is None else (as_levels,)


def _read(frame: pd.DataFrame, name: str) -> tuple[Any, str, Any]:
    values, recognised = read_column(column_of(frame, known_column(frame, name)))
    return values, source_of(values.dropna()), recognised


def _number_column(name: str, values: Any, source: str, recognised: Any) -> NumberColumn:
    if source == "category":
        raise InputError(
            f"column {name!r} holds text, but its place in the formula takes numbers: clean it, or "
            "add it as a term of its own"
        )
    return NumberColumn.fit(values, source, recognised)


def _first(column: NumberColumn | LevelColumn) -> Any:
    """A value of the column, to learn the names of the encoded ones."""
    import pandas as pd

    if isinstance(column, LevelColumn):
        return pd.Categorical([column.levels[0]], categories=list(column.levels))
    return np.ones(1)
