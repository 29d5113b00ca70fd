"""The target column: splitting it off, and guessing its task."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from latentgp.errors import InputError
from latentgp.surfaces.tables.notation import DurationNotation
from latentgp.surfaces.tables.values import (
    checked_frame,
    column_of,
    doubt_of_names,
    known_column,
    numbers_in,
    read_column,
    source_of,
    with_markers_missing,
)

_MOST_CODES = 10

Task = Literal["classification", "ordinal", "count", "regression"]


class SplitTable(NamedTuple):
    """Table split into inputs and target."""

    inputs: pd.DataFrame  # the other columns of the rows whose target is known
    target: pd.Series  # their target
    rows_dropped: int  # how many rows had no target and were left out


class TaskGuess(NamedTuple):
    """Guess of the kind of target that a column is."""

    task: Task  # "classification", "ordinal", "count" or "regression"
    reason: str  # why, in words, to follow "because"


def split_target(frame: pd.DataFrame, target: str) -> SplitTable:
    """Take the target column out of a table, leaving out the rows where it is missing.

    Args:
        frame: (N, D + 1) table.
        target: name of the target's column.

    Raises:
        InputError: if there is no such column (the message names the nearest ones), it is missing
            in every row, or there is no other column.

    Example:
        >>> import pandas
        >>> split = split_target(pandas.DataFrame({"a": [1, 2], "y": [None, 3.0]}), "y")
        >>> split.rows_dropped, split.target.tolist()
        (1, [3.0])
    """
    frame = checked_frame(frame)
    target = known_column(frame, target)
    if frame.shape[1] == 1:
        raise InputError(f"{target!r} is the only column: add at least one input column")
    values = column_of(frame, target)
    known = values.notna().to_numpy()
    if not known.any():
        raise InputError(f"the target {target!r} is missing in every row: give it values")
    inputs: Any = frame.drop(columns=[target])
    kept: Any = values[known]
    return SplitTable(inputs[known], kept, int((~known).sum()))


def guess_task(target: pd.Series) -> TaskGuess:
    """Guess the task of a target column, with the reason.

    Text, truth values, categories, and whole numbers with exactly two distinct values are classes,
    categories with an order ordered ones. Whole numbers whose lowest is 0 are counts. Everything
    else, fractional numbers stored as text and amounts such as "$1,200" included, is a quantity.

    Args:
        target: (N,) target column; missing values are ignored.

    Raises:
        InputError: if no value is known, the target is a date, or text of many values that look
            like numbers or dates.

    Example:
        >>> import pandas
        >>> guess_task(pandas.Series([0, 1, 1]))
        TaskGuess(task='classification', reason='it is whole numbers with 2 distinct values')
    """
    values = with_markers_missing(pd.Series(target)).dropna()
    if values.empty:
        raise InputError("the target is missing in every row: give it values")
    if isinstance(values.dtype, pd.CategoricalDtype):
        if values.cat.ordered and values.nunique() > 2:
            return TaskGuess("ordinal", "its type is category with an order")
        return TaskGuess("classification", "its type is category")
    values, recognised = read_column(values, may_be_date=False)
    if isinstance(recognised.notation, DurationNotation):
        return TaskGuess("regression", f"it is a {recognised.notation.describe()}")
    source = source_of(values)
    if recognised.notation is not None and source == "text":
        source = "number"
        values = pd.Series(numbers_in(values, source))
    if source == "date":
        raise InputError("the target is a date: pass a number of days or seconds instead")
    distinct = values.nunique()
    if source == "boolean":
        return TaskGuess("classification", "it is true or false")
    if source == "category" and (like := doubt_of_names(values)):
        raise InputError(
            f"the target {target.name!r} is text, {like}, or choose the task classification"
        )
    numbers = None if source == "category" else numbers_in(values, "number")
    whole = numbers is None or bool((numbers % 1 == 0).all())
    if numbers is None or (source == "text" and whole):
        return TaskGuess("classification", f"it is text with {distinct} distinct values")
    if whole and distinct == 2:
        return TaskGuess("classification", "it is whole numbers with 2 distinct values")
    if whole and distinct > 2 and numbers.min() == 0:
        why = f"it is whole numbers from 0 up with {distinct} distinct values"
        return TaskGuess("count", why + _if_codes(numbers))
    kind = "whole numbers" if whole else "numbers"
    why = f"it is {kind} with {distinct} distinct value(s)"
    return TaskGuess("regression", why + (_if_codes(numbers) if whole else ""))


def _if_codes(numbers: Any) -> str:
    """What to choose where few whole numbers, none left out, may stand for classes or grades."""
    values = np.unique(np.asarray(numbers)[~np.isnan(numbers)])
    if len(values) > _MOST_CODES or np.ptp(values) != len(values) - 1:
        return ""
    return "; if these are codes choose the task classification, or ordinal of grades"
