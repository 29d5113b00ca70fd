"""From a table of mixed columns to an array of numbers, the same way at training and prediction.

`read_table` and `write_table` know CSV and Parquet, `split_target` takes the target out,
`guess_task` says what kind of target it is, and `TableEncoder` turns the rest into float64. A value
means the same wherever it is stored: "3", 3 and 3.0 are one number, and one of the
`MISSING_MARKERS` in a text column is a missing value in Parquet as in CSV.
"""

from __future__ import annotations

import csv
import difflib
import re
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latentgp.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "MISSING_MARKERS",
    "CategoryColumn",
    "NumberColumn",
    "SplitTable",
    "TableEncoder",
    "TaskGuess",
    "guess_task",
    "read_table",
    "split_target",
    "write_table",
]

MISSING_MARKERS = (
    *("", "?", "NA", "N/A", "n/a", "<NA>", "#N/A", "#NA", "NaN", "nan", "-NaN", "-nan", "NaT"),
    *("NULL", "Null", "null", "None"),
)
MOST_CATEGORIES = 30
ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}.*)?$")
KIND_OF_ENDING = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}


# Reading and writing ------------------------------------------------------------------------------


def read_table(path: str | Path) -> pd.DataFrame:
    r"""Read a CSV or Parquet file with a header into a data frame.

    CSV is UTF-8, separated by commas, semicolons or tabs (whichever the header uses most), with a
    decimal point, double quotes around fields that need them, and any of `MISSING_MARKERS`, or
    nothing, for a missing value.

    Args:
        path: file ending in .csv, .parquet or .pq.

    Raises:
        InputError: if the file is missing, empty, of another ending, unreadable, has no rows, or
            has two columns of one name.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "table.csv"
        >>> _ = path.write_text("age,colour\n41,red\n?,blue\n")
        >>> read_table(path)["age"].tolist()
        [41.0, nan]
    """
    path = Path(path)
    kind = _kind(path)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise InputError(f"{path} {what}: pass the path of a CSV or Parquet file")
    try:
        if path.stat().st_size == 0:
            raise InputError(f"{path} is empty: pass a file with a header and at least one row")
        names, frame = _read_csv(path) if kind == "csv" else _read_parquet(path)
    except InputError:
        raise
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: save it in that encoding") from error
    # pandas' and Arrow's own errors are among ValueError and OSError.
    except (OSError, ValueError, csv.Error, Warning) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path} cannot be read as {kind}: {reason}") from error
    _refuse_duplicates(names, str(path))
    if len(frame) == 0:
        raise InputError(f"{path} has a header but no rows: pass at least one row")
    return frame


def write_table(frame: pd.DataFrame, path: str | Path) -> Path:
    r"""Write a data frame as CSV or Parquet, without its index, and return the path.

    Numbers keep all their digits. Missing folders are made.

    Args:
        frame: what to write.
        path: file ending in .csv, .parquet or .pq.

    Raises:
        InputError: if the ending is unknown or the file cannot be written.

    Example:
        >>> import pandas, tempfile
        >>> write_table(pandas.DataFrame({"a": [1]}), tempfile.mkdtemp() + "/a.csv").read_text()
        'a\n1\n'
    """
    path = Path(path)
    kind = _kind(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "csv":
            frame.to_csv(path, index=False)
        else:
            frame.rename(columns=str).to_parquet(path, index=False)
    except (OSError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path} cannot be written: {reason}") from error
    return path


def _kind(path: Path) -> str:
    kind = KIND_OF_ENDING.get(path.suffix.lower())
    if kind is None:
        raise InputError(f"{path} does not end in .csv, .parquet or .pq: pass one of these")
    return kind


def _read_csv(path: Path) -> tuple[list[str], pd.DataFrame]:
    import pandas as pd

    with path.open(encoding="utf-8-sig", newline="") as file:
        first = next((line for line in file if line.strip()), "")
        unquoted = re.sub(r'"[^"]*"', "", first)
        separator = max(",;\t", key=unquoted.count)
        file.seek(0)
        lines = (line for line in file if line.strip())
        names = next(csv.reader(lines, delimiter=separator, skipinitialspace=True), [])
    with warnings.catch_warnings():
        # pandas only warns when every row is longer than the header, and drops the rest.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        frame = pd.read_csv(
            path,
            sep=separator,
            encoding="utf-8-sig",
            skipinitialspace=True,
            index_col=False,
            keep_default_na=False,
            na_values=list(MISSING_MARKERS),
            low_memory=False,
        )
    return [name for name in names if name], frame


def _read_parquet(path: Path) -> tuple[list[str], pd.DataFrame]:
    import pyarrow.parquet

    names = list(pyarrow.parquet.read_schema(path).names)
    _refuse_duplicates(names, str(path))  # Arrow cannot read such a table
    return names, pyarrow.parquet.read_table(path).to_pandas()


def _refuse_duplicates(names: Iterable[str], where: str) -> None:
    names = list(names)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"{where} has more than one column named {_listed(twice)}: rename them")


# Targets ------------------------------------------------------------------------------------------


class SplitTable(NamedTuple):
    """A table taken apart.

    Attributes:
        inputs: the other columns of the rows whose target is known.
        target: their target.
        rows_dropped: how many rows had no target and were left out.
    """

    inputs: pd.DataFrame
    target: pd.Series
    rows_dropped: int


class TaskGuess(NamedTuple):
    """What kind of target a column is.

    Attributes:
        task: "classification" or "regression".
        reason: why, in words, to follow "because".
    """

    task: Literal["classification", "regression"]
    reason: str


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
    frame = _checked_frame(frame)
    names = list(frame.columns)
    target = str(target)
    if target not in names:
        lowered: dict[str, str] = {}
        for name in names:
            lowered.setdefault(name.lower().strip(), name)
        near = difflib.get_close_matches(target.lower().strip(), lowered, n=3, cutoff=0.6)
        matches = [lowered[name] for name in near] or names
        did = "did you mean" if near else "the columns are"
        raise InputError(f"there is no column {target!r}: {did} {_listed(matches)}")
    if len(names) == 1:
        raise InputError(f"{target!r} is the only column: add at least one input column")
    values = _column(frame, target)
    known = values.notna().to_numpy()
    if not known.any():
        raise InputError(f"the target {target!r} is missing in every row: give it values")
    inputs: Any = frame.drop(columns=[target])
    kept: Any = values[known]
    return SplitTable(inputs[known], kept, int((~known).sum()))


def guess_task(target: pd.Series) -> TaskGuess:
    """Say whether a target calls for classification or regression, and why.

    Text, truth values, categories, and whole numbers with exactly two distinct values are classes;
    everything else, fractional numbers stored as text included, is a quantity.

    Args:
        target: (N,) target column; missing values are ignored.

    Raises:
        InputError: if no value is known, or the target is a date.

    Example:
        >>> import pandas
        >>> guess_task(pandas.Series([0, 1, 1]))
        TaskGuess(task='classification', reason='it is whole numbers with 2 distinct values')
    """
    import pandas as pd

    values = _with_markers_missing(pd.Series(target)).dropna()
    if values.empty:
        raise InputError("the target is missing in every row: give it values")
    if isinstance(values.dtype, pd.CategoricalDtype):
        return TaskGuess("classification", "its type is category")
    source = _source(values)
    if source == "date":
        raise InputError("the target is a date: pass a number of days or seconds instead")
    distinct = values.nunique()
    if source == "boolean":
        return TaskGuess("classification", "it is true or false")
    if source == "category":
        return TaskGuess("classification", f"it is text with {distinct} distinct values")
    whole = bool((_numbers_in(values, "number") % 1 == 0).all())
    if source == "text" and whole:
        return TaskGuess("classification", f"it is text with {distinct} distinct values")
    if whole and distinct == 2:
        return TaskGuess("classification", "it is whole numbers with 2 distinct values")
    kind = "whole numbers" if whole else "numbers"
    return TaskGuess("regression", f"it is {kind} with {distinct} distinct value(s)")


# Columns ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NumberColumn:
    """How one column becomes a number, with a second 0/1 column where training had gaps.

    Attributes:
        name: the column.
        source: what it held: numbers, numbers as text, truth values, or dates.
        median: what a missing value is replaced by, in the encoded unit.
        marks_missing: whether a 0/1 column says where the value was missing.
        origin: for dates, the earliest of training in ISO 8601, which becomes zero.
        unit: for dates, "days" or "seconds".
    """

    name: str
    source: Literal["number", "text", "boolean", "date"]
    median: float
    marks_missing: bool
    origin: str | None = None
    unit: Literal["days", "seconds"] | None = None

    @classmethod
    def fit(cls, values: pd.Series, source: Any) -> NumberColumn:
        """Learn the median, and for dates the origin and unit, from a column with some values."""
        name, origin, unit = str(values.name), None, None
        missing = bool(values.isna().any())
        if source == "date":
            dates = _dates_in(values)
            origin = dates.min().isoformat()
            unit = "days" if (dates.max() - dates.min()).total_seconds() > 2 * 86400 else "seconds"
        column = cls(name, source, 0.0, missing, origin, unit)
        median = float(np.nanmedian(column._raw(values)))
        return cls(name, source, median, missing, origin, unit)

    @property
    def feature_names(self) -> list[str]:
        """Names of the encoded columns."""
        value = self.name if self.unit is None else f"{self.name} [{self.unit}]"
        return [value, f"{self.name} is missing"] if self.marks_missing else [value]

    def describe(self) -> str:
        """Say in words what becomes of the column."""
        kinds = {
            "number": "number",
            "text": "number stored as text",
            "boolean": "false/true as 0/1",
        }
        what = kinds.get(self.source, f"{self.unit} since {self.origin}")
        filled = f", missing values become the median {self.median:g} and are marked in a column"
        return f"{self.name}: {what}" + (filled if self.marks_missing else "")

    def encode(self, values: pd.Series) -> NDArray[np.float64]:
        """Give (N, 1) values, or (N, 2) with the mark of missing ones."""
        numbers = self._raw(values)
        missing = np.isnan(numbers)
        if missing.any() and not self.marks_missing:
            _warn(
                f"column {self.name!r} is missing in {_rows(missing)} and never was in training: "
                f"the training median {self.median:g} is used"
            )
        filled = np.where(missing, self.median, numbers)
        return np.stack([filled, missing], axis=1) if self.marks_missing else filled[:, None]

    def _raw(self, values: pd.Series) -> NDArray[np.float64]:
        """Give (N,) numbers in the encoded unit, NaN where missing."""
        import pandas as pd

        if self.source != "date":
            return _numbers_in(values, self.source)
        dates = _dates_in(values)
        one = pd.Timedelta(1, "D" if self.unit == "days" else "s")
        return ((dates - pd.Timestamp(self.origin)) / one).to_numpy(dtype=np.float64)


@dataclass(frozen=True)
class CategoryColumn:
    """How one column of categories becomes 0/1 columns, one a category.

    Attributes:
        name: the column.
        categories: those with a column of their own, sorted.
        others: rarer ones seen in training, which share one column.
        marks_missing: whether missing is a category, as it is where training had gaps.
    """

    name: str
    categories: tuple[str, ...]
    others: tuple[str, ...]
    marks_missing: bool

    @classmethod
    def fit(cls, values: pd.Series) -> CategoryColumn:
        """Learn the categories, the 30 most frequent apart and the rest together."""
        counts = Counter(text for text in _texts_in(values) if text is not None)
        # A tie is decided by name, so that the order of the rows does not matter.
        frequent_first = sorted(counts, key=lambda category: (-counts[category], category))
        kept, rest = frequent_first[:MOST_CATEGORIES], frequent_first[MOST_CATEGORIES:]
        missing = bool(values.isna().any())
        return cls(str(values.name), tuple(sorted(kept)), tuple(sorted(rest)), missing)

    @property
    def feature_names(self) -> list[str]:
        """Names of the encoded columns."""
        names = [f"{self.name} = {category}" for category in self.categories]
        names += [f"{self.name} = other"] if self.others else []
        return [*names, f"{self.name} is missing"] if self.marks_missing else names

    def describe(self) -> str:
        """Say in words what becomes of the column."""
        total = len(self.categories) + len(self.others)
        line = f"{self.name}: {total} categories ({_listed(self.categories)}) as 0/1 columns"
        line += f", the {len(self.others)} rarest share one" if self.others else ""
        return line + (", missing is one more" if self.marks_missing else "")

    def encode(self, values: pd.Series) -> NDArray[np.float64]:
        """Give (N, C) zeros and ones; a category that training never saw has only zeros."""
        number_of = {category: number for number, category in enumerate(self.categories)}
        number_of |= dict.fromkeys(self.others, len(self.categories))
        missing = values.isna().to_numpy()
        texts = _texts_in(values)
        numbers = np.array([number_of.get(text, -1) for text in texts], dtype=np.int64)
        known = numbers >= 0
        unseen = sorted(set(texts[~known & ~missing]))
        if unseen:
            _warn(
                f"column {self.name!r} holds categories that training never saw: "
                f"{_listed(unseen)}; their 0/1 columns are all zero"
            )
        if missing.any() and not self.marks_missing:
            _warn(
                f"column {self.name!r} is missing in {_rows(missing)} and never was in training: "
                "its 0/1 columns are all zero there"
            )
        encoded = np.zeros((len(values), len(self.feature_names)))
        encoded[np.flatnonzero(known), numbers[known]] = 1.0
        if self.marks_missing:
            encoded[missing, -1] = 1.0
        return encoded


@dataclass(frozen=True)
class TableEncoder:
    """What was learned from a training table about turning such tables into numbers.

    Made by `TableEncoder.fit`, never changed afterwards. Constant columns, columns without a value,
    identifiers (text that differs in every row) and a nameless row index are left out.

    Attributes:
        columns: the columns used, in the order of the training table.
        left_out: (name, reason) of each column not used.

    Example:
        >>> import pandas
        >>> table = pandas.DataFrame({"age": [41, None, 33], "colour": ["red", "blue", "red"]})
        >>> encoder = TableEncoder.fit(table)
        >>> encoder.feature_names
        ['age', 'age is missing', 'colour = blue', 'colour = red']
        >>> encoder.encode(table)[1]
        array([37.,  1.,  1.,  0.])
    """

    columns: tuple[NumberColumn | CategoryColumn, ...]
    left_out: tuple[tuple[str, str], ...]

    @classmethod
    def fit(cls, frame: pd.DataFrame) -> TableEncoder:
        """Learn the encoding of a table.

        Args:
            frame: (N, D) training inputs, without the target.

        Raises:
            InputError: if the table has no rows or columns, two columns of one name, an infinite
                value, or no column worth using.
        """
        frame = _checked_frame(frame)
        if len(frame) == 0:
            raise InputError("the table has no rows: pass at least one")
        columns: list[NumberColumn | CategoryColumn] = []
        left_out: list[tuple[str, str]] = []
        for name in frame.columns:
            values = _column(frame, name)
            reason = _reason_to_leave_out(values)
            if reason is not None:
                left_out.append((name, reason))
                continue
            source = _source(values.dropna())
            if source == "category":
                columns.append(CategoryColumn.fit(values))
            else:
                columns.append(NumberColumn.fit(values, source))
        if not columns:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out[:5])
            raise InputError(
                f"the table has no usable input column ({reasons}): add one that varies"
            )
        return cls(tuple(columns), tuple(left_out))

    @property
    def feature_names(self) -> list[str]:
        """Names of the encoded columns, (D,)."""
        return [name for column in self.columns for name in column.feature_names]

    def describe(self) -> list[str]:
        """Say in words, one line a column, what becomes of the table."""
        left_out = [f"{name}: left out, {reason}" for name, reason in self.left_out]
        return [column.describe() for column in self.columns] + left_out

    def encode(self, frame: pd.DataFrame) -> NDArray[np.float64]:
        """Turn a table into numbers, (N, D) float64 without NaN.

        Columns may come in any order, and those that training did not use are ignored. Warns once
        a column about categories, or missing values, that training never had.

        Args:
            frame: (N, ...) table with the columns of training; N may be zero.

        Raises:
            InputError: if columns are missing, a value is infinite, or a column that was numeric in
                training holds something else.
        """
        frame = _checked_frame(frame)
        absent = [column.name for column in self.columns if column.name not in frame.columns]
        if absent:
            raise InputError(
                f"the table lacks {len(absent)} column(s) that the model was trained on: "
                f"add {_listed(absent, at_most=20)}"
            )
        blocks = []
        for column in self.columns:
            blocks.append(column.encode(_column(frame, column.name)))
        return np.concatenate(blocks, axis=1, dtype=np.float64)


# What a column holds ------------------------------------------------------------------------------


def _checked_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Give the table with its column names as text."""
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise InputError(f"the table is a {type(frame).__name__}: pass a pandas DataFrame")
    if frame.shape[1] == 0:
        raise InputError("the table has no columns: pass at least one")
    frame = frame.rename(columns=str)
    _refuse_duplicates(frame.columns, "the table")
    return frame


def _column(frame: pd.DataFrame, name: str) -> pd.Series:
    """Give one column, with text trimmed and missing-value markers missing."""
    column: Any = frame[name]  # names are unique, so it is a series
    return _with_markers_missing(column)


def _is_textual(values: pd.Series) -> bool:
    from pandas.api import types

    return types.is_object_dtype(values.dtype) or types.is_string_dtype(values.dtype)


def _with_markers_missing(values: pd.Series) -> pd.Series:
    """Give the column with text trimmed and missing-value markers missing."""
    import pandas as pd

    if isinstance(values.dtype, pd.CategoricalDtype):
        dull = values.cat.categories.isin(MISSING_MARKERS)
        return values.cat.remove_categories(values.cat.categories[dull]) if dull.any() else values
    if not _is_textual(values):
        return values
    trimmed = [value.strip() if isinstance(value, str) else value for value in values]
    kept = [None if isinstance(v, str) and v in MISSING_MARKERS else v for v in trimmed]
    return pd.Series(kept, index=values.index, name=values.name, dtype=object)


def _reason_to_leave_out(values: pd.Series) -> str | None:
    import pandas as pd

    known = values.dropna()
    if known.empty:
        return "it has no value"
    rows = len(values)
    if rows == 1:  # nothing can be told from one row
        return None
    texts = known if not _is_textual(known) else known.map(str)
    distinct = texts.nunique()
    if distinct == 1 and len(known) == rows:
        return f"it is constant ({texts.iloc[0]})"
    categorical = isinstance(values.dtype, pd.CategoricalDtype)
    if distinct == rows > 2 and (categorical or _source(known) == "category"):
        return f"it looks like an identifier (all {rows} values differ)"
    if distinct == rows and str(values.name).startswith("Unnamed: "):  # pandas' index, saved
        return "it has no name and its values all differ"
    return None


def _source(known: pd.Series) -> Literal["number", "text", "boolean", "date", "category"]:
    """Say what a column without missing values holds."""
    import pandas as pd
    from pandas.api import types

    if isinstance(known.dtype, pd.CategoricalDtype):
        return "category"
    if types.is_bool_dtype(known.dtype):
        return "boolean"
    if types.is_datetime64_any_dtype(known.dtype) or isinstance(known.dtype, pd.PeriodDtype):
        return "date"
    if types.is_numeric_dtype(known.dtype) or types.is_timedelta64_dtype(known.dtype):
        if types.is_complex_dtype(known.dtype):
            raise InputError(f"column {known.name!r} holds complex numbers: split them in two")
        return "number"
    values = known.tolist()
    if all(isinstance(value, bool | np.bool_) for value in values):
        return "boolean"
    texts = pd.Series([str(value) for value in values], dtype=object)
    if not np.isnan(_parsed(texts)).any():
        only_text = all(isinstance(value, str) for value in values)
        return "text" if only_text else "number"
    if texts.map(lambda text: ISO_DATE.match(text) is not None).all():
        parsed = pd.to_datetime(texts, format="ISO8601", errors="coerce", utc=True)
        return "date" if parsed.notna().all() else "category"
    return "category"


def _numbers_in(values: pd.Series, source: str) -> NDArray[np.float64]:
    """Give (N,) numbers, NaN where missing; times become seconds, truth values 0 and 1."""
    import pandas as pd
    from pandas.api import types

    missing = values.isna().to_numpy()
    if types.is_timedelta64_dtype(values.dtype):
        numbers = values.dt.total_seconds().to_numpy(dtype=np.float64)
    elif types.is_numeric_dtype(values.dtype):  # truth values included
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        truth = {"true": "1", "false": "0"} if source == "boolean" else {}
        texts = [truth.get(str(value).lower(), str(value)) for value in values]
        numbers = _parsed(pd.Series(texts, dtype=object))
        numbers[missing] = np.nan
        wrong = np.isnan(numbers) & ~missing
        if wrong.any():
            example = values.iloc[int(np.flatnonzero(wrong)[0])]
            raise InputError(
                f"column {values.name!r} was numeric in training and holds {str(example)!r} in "
                f"{_rows(wrong)}: give numbers, or leave the value empty"
            )
    infinite = np.isinf(numbers)
    if infinite.any():
        raise InputError(
            f"column {values.name!r} holds infinity in {_rows(infinite)}: "
            "replace it by a finite number, or leave the value empty"
        )
    return numbers


def _parsed(texts: pd.Series) -> NDArray[np.float64]:
    """Give (N,) numbers read from text, NaN where the text is not a number."""
    import pandas as pd

    numbers: Any = pd.to_numeric(texts, errors="coerce")
    return numbers.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)


def _dates_in(values: pd.Series) -> pd.Series:
    """Give the dates without a time zone, in UTC where they had one, NaT where missing."""
    import pandas as pd

    if isinstance(values.dtype, pd.PeriodDtype):
        return values.dt.to_timestamp()
    if not pd.api.types.is_datetime64_any_dtype(values.dtype):
        texts = [
            None if gap else str(value) for value, gap in zip(values, values.isna(), strict=True)
        ]
        dates = pd.to_datetime(
            pd.Series(texts, index=values.index, dtype=object),
            format="ISO8601",
            errors="coerce",
            utc=True,
        )
        wrong = (dates.isna() & values.notna()).to_numpy()
        if wrong.any():
            example = values.iloc[int(np.flatnonzero(wrong)[0])]
            raise InputError(
                f"column {values.name!r} was a date in training and holds {str(example)!r} in "
                f"{_rows(wrong)}: give dates as 2026-01-31, or leave the value empty"
            )
        values = dates
    return values.dt.tz_convert("UTC").dt.tz_localize(None) if values.dt.tz is not None else values


def _texts_in(values: pd.Series) -> pd.Series:
    """Give each category as text, None where missing; 3 and 3.0 are one category."""
    import pandas as pd

    def text(value: Any) -> str:
        whole = isinstance(value, float | np.floating) and float(value).is_integer()
        return str(int(value)) if whole else str(value).strip()

    gaps = values.isna()
    texts = [None if gap else text(value) for value, gap in zip(values, gaps, strict=True)]
    return pd.Series(texts, index=values.index, dtype=object)


def _rows(chosen: NDArray[np.bool_]) -> str:
    rows = np.flatnonzero(chosen)
    listed = _listed([str(row) for row in rows], quoted=False)
    return f"{rows.size} row{'s' if rows.size > 1 else ''} (counting from 0: {listed})"


def _listed(names: Iterable[str], at_most: int = 5, *, quoted: bool = True) -> str:
    names = [f"{name!r}" if quoted else name for name in names]
    more = f" and {len(names) - at_most} more" if len(names) > at_most else ""
    return ", ".join(names[:at_most]) + more


def _warn(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=4)
