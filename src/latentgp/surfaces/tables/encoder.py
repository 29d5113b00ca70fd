"""A table of mixed columns as an array of numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from latentgp.errors import InputError
from latentgp.modules import stored
from latentgp.surfaces.tables.columns import (
    CategoryColumn,
    NumberColumn,
    SeriesColumn,
    as_read,
    has_many_levels,
)
from latentgp.surfaces.tables.values import (
    Tell,
    checked_frame,
    column_of,
    columns_of,
    doubt_of_names,
    known_column,
    name_of,
    read_column,
    reason_to_leave_out,
    source_of,
    warn,
)


@stored
@dataclass(frozen=True)
class TableEncoder:
    """Encoding of tables as numbers, learned from a training table.

    Made by `TableEncoder.fit`, never changed afterwards. Constant columns, columns without a value,
    identifiers (text that differs in every row, or whole numbers that do and are called `id`, say)
    and a nameless row index are left out.

    Example:
        >>> import pandas
        >>> table = pandas.DataFrame({"age": [41, None, 33], "colour": ["red", "blue", "red"]})
        >>> encoder = TableEncoder.fit(table)
        >>> encoder.feature_names
        ['age', 'age is missing', 'colour = blue', 'colour = red']
        >>> encoder.encode(table)[1]
        array([37.,  1.,  1.,  0.])
    """

    # the columns used, in the order of the training table, those of levels last
    columns: tuple[NumberColumn | CategoryColumn | SeriesColumn, ...]
    left_out: tuple[tuple[str, str], ...]  # (name, reason) of each column not used

    @classmethod
    def fit(
        cls,
        frame: pd.DataFrame,
        leave_out: Iterable[str] = (),
        levels: Iterable[str] | None = (),
    ) -> TableEncoder:
        """Learn the encoding of a table.

        Args:
            frame: (N, D) training inputs, without the target.
            leave_out: columns that are not to be used.
            levels: columns taken as numbers of their levels; None for categories of many levels.

        Raises:
            InputError: if the table has no rows or columns, two columns of one name, an infinite
                value, no column worth using, or no such column to leave out.
        """
        frame = checked_frame(frame)
        asked = [known_column(frame, name) for name in leave_out]
        of_levels = [known_column(frame, name) for name in levels or ()]
        if len(frame) == 0:
            raise InputError("the table has no rows: pass at least one")
        columns: list[NumberColumn | CategoryColumn | SeriesColumn] = []
        left_out: list[tuple[str, str]] = []
        for name in frame.columns:
            if name in asked:
                left_out.append((name, "as asked for"))
                continue
            values, recognised = read_column(column_of(frame, name))
            if (reason := reason_to_leave_out(values)) is not None:
                left_out.append((name, reason))
            elif name in of_levels or (levels is None and has_many_levels(values)):
                columns.append(SeriesColumn.of_levels(column_of(frame, name)))
            elif (source := source_of(values.dropna())) == "category":
                columns.append(CategoryColumn.fit(values))
            else:
                columns.append(NumberColumn.fit(values, source, recognised))
        if not columns:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out[:5])
            raise InputError(f"there is no usable input column ({reasons}): add one that varies")
        columns.sort(key=lambda column: isinstance(column, SeriesColumn))
        return cls(tuple(columns), tuple(left_out))

    @classmethod
    def of_series(cls, frame: pd.DataFrame, time: str, by: str | None) -> TableEncoder:
        """Learn the encoding of a table of one or many series, whose other columns are left out.

        Args:
            frame: (N, D) training inputs, without the target.
            time: a column of numbers or dates.
            by: a column that tells series apart; None for one series.

        Raises:
            InputError: no such columns, a time that is no number and no date, or missing values.
        """
        time, by = name_of(time), None if by is None else name_of(by)
        if time == by:
            raise InputError(
                f"{time!r} cannot be both the column of time and that of series: name two columns"
            )
        frame = checked_frame(frame)
        known = [known_column(frame, name) for name in (time, by) if name is not None]
        left_out = [(name, "not the column of time") for name in frame.columns if name not in known]
        values, recognised = read_column(column_of(frame, time))
        kind = source_of(values.dropna()) if values.notna().any() else "category"
        if kind == "category" or bool(values.isna().any()):
            like = doubt_of_names(values.dropna()) if kind == "category" else ""
            raise InputError(
                f"the column of time {time!r} must hold a number or a date in every row"
                f"{f', {like}' if like else ''}: clean it, or leave --time out"
            )
        columns: list[Any] = [replace(NumberColumn.fit(values, kind, recognised), required=True)]
        if by is not None:
            columns.append(SeriesColumn.fit(column_of(frame, by)))
        return cls(tuple(columns), tuple(left_out))

    @property
    def calendar(self) -> dict[str, float]:
        """Periods of a first column of dates by name, in its unit; empty for others."""
        first = self.columns[0]
        return first.calendar if isinstance(first, NumberColumn) else {}

    @property
    def column_names(self) -> list[str]:
        """Columns of the table that are used."""
        return [column.name for column in self.columns]

    @property
    def numbered(self) -> tuple[int, ...]:
        """Places of encoded columns that are numbers of series, whose order means nothing."""
        kinds = [type(column) for column in self.columns for _ in column.feature_names]
        return tuple(place for place, kind in enumerate(kinds) if kind is SeriesColumn)

    @property
    def groups(self) -> tuple[SeriesColumn, ...]:
        """Columns of levels that have an effect each, the last ones."""
        return tuple(c for c in self.columns if isinstance(c, SeriesColumn) and c.noun == "levels")

    @property
    def grouped(self) -> dict[str, int]:
        """Columns of levels by name: their number among these."""
        return {column.name: number for number, column in enumerate(self.groups)}

    @property
    def feature_names(self) -> list[str]:
        """Names of the encoded columns, (D,)."""
        return [name for column in self.columns for name in column.feature_names]

    @property
    def read_as_text(self) -> list[str]:
        """Columns that a reader of CSV must leave as text: 1.200 may be 1200 there."""
        return [column.name for column in self.columns if column.stays_text]

    def read(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The table with dates, times and numbers that are written in another way as such."""
        return as_read(frame, self.columns)

    def describe(self) -> list[str]:
        """Describe the encoding of the table in words, one line a column."""
        left_out = [f"{name}: left out, {reason}" for name, reason in self.left_out]
        return [column.describe() for column in self.columns] + left_out

    def encode(self, frame: pd.DataFrame, tell: Tell = warn) -> NDArray[np.float64]:
        """Turn a table into numbers, (N, D) float64 without NaN.

        Columns may come in any order, and those that training did not use are ignored. Warns once
        a column about categories, or missing values, that training never had.

        Args:
            frame: (N, ...) table with the columns of training; N may be zero.
            tell: warns; `once()` does so once for all parts of a table.

        Raises:
            InputError: if columns are missing, a value is infinite, or a column that was numeric in
                training holds something else.
        """
        frame = columns_of(frame, self.column_names, "that the model was trained on")
        blocks = [c.encode(column_of(frame, c.name, learned=True), tell) for c in self.columns]
        return np.concatenate(blocks, axis=1, dtype=np.float64)
