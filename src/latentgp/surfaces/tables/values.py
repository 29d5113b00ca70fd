"""Contents of a column: numbers, text, dates, categories, and missing values."""

from __future__ import annotations

import datetime
import difflib
import re
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray
from pandas.api import types

from latentgp.errors import InputError
from latentgp.surfaces.files.csv import GAPS_AMONG_NUMBERS, MISSING_MARKERS
from latentgp.surfaces.files.pieces import refuse_duplicates
from latentgp.surfaces.tables.levels import (
    GAP,
    as_levels,
    listed,
    refuse_infinite,
    refuse_others,
    rows_listed,
    settled,
)
from latentgp.surfaces.tables.notation import (
    RecognisedNotation,
    are_codes,
    are_numbers,
    iso_of,
    plain,
    recognise,
    recognise_durations,
    recognise_numbers,
    resemblance,
    resemblance_of_numbers,
)

pc: Any = pyarrow.compute  # its functions are made when it is imported
Tell = Callable[[str, str], None]  # what was seen in some rows, and what else is to be said
_IDENTIFIERS = {
    *("id", "ids", "identifier", "uid", "uuid", "guid", "pk", "key", "index", "idx"),
    *("no", "nr", "num", "number", "nummer", "serial", "row", "rownum"),
}
_ROWS_IN_STEPS = 20
_CODES_OF_MISSING = (-99, -999, -9999, -99999, 999, 9999, 99999)
_PARTS = "lists or mappings: give each of their parts a column"
_LONG = 16  # digits that numbers beyond 2**53 have
_BEYOND, _WHOLE = "whole numbers beyond 2**53", re.compile(r"[+-]?\d+")
_ISO_DATE = re.compile(r"[12]\d{3}-\d{2}|\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}.*)?")
_OFFSET = re.compile(r".*:\d{2}(?:\.\d+)?([+-]\d{2}(?::?\d{2})?)")
_WHOLE_IN_FLOATS = 2**53
_RESOLVED = 1e-6  # share of their size by which numbers must differ for distances to have digits
_FEW = 30  # numbers beyond 2**53 that come again and again are names


def checked_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Give the table with its column names as text."""
    frame = _as_pandas(frame)
    if frame.shape[1] == 0:
        raise InputError("the table has no columns: pass at least one")
    if isinstance(frame.columns, pd.MultiIndex):
        frame = frame.set_axis([name_of(label) for label in frame.columns], axis=1)
    frame = frame.rename(columns=str)
    refuse_duplicates(frame.columns, "the table")
    arrow = [name for name, kind in frame.dtypes.items() if isinstance(kind, pd.ArrowDtype)]
    columns: Any = frame
    return frame.assign(**{name: _from_arrow(columns[name]) for name in arrow}) if arrow else frame


def name_of(label: Any) -> str:
    """The name of a column; of several levels those that are not empty, as price_mean."""
    if isinstance(label, tuple):
        return "_".join(str(part) for part in label if str(part))
    return str(label)


def _as_pandas(frame: Any) -> pd.DataFrame:
    """A table of pandas, of one of Arrow or Polars too; InputError of anything else."""
    if isinstance(frame, pd.DataFrame):
        return frame
    if hasattr(frame, "__arrow_c_stream__") and not hasattr(frame, "to_frame"):  # no Series
        return pa.table(frame).to_pandas(types_mapper=pd.ArrowDtype)
    if hasattr(frame, "__dataframe__"):
        return pd.api.interchange.from_dataframe(frame)
    lazy = ", by .collect()" if hasattr(frame, "collect") else ""
    raise InputError(
        f"the table is a {type(frame).__name__}: pass a DataFrame of pandas or Polars{lazy}"
    )


def pandas_of(table: Any) -> pd.DataFrame:
    """A table of Arrow, whose whole numbers beyond 2**53 stay whole beside gaps."""

    def is_long(column: Any) -> bool:
        if not pa.types.is_integer(column.type) or not 0 < column.null_count < len(column):
            return False
        least, most = pc.min_max(column).values()
        return max(abs(least.as_py()), abs(most.as_py())) > _WHOLE_IN_FLOATS

    if not any(map(is_long, table.columns)):
        return table.to_pandas()
    whole = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype()}
    return table.to_pandas(types_mapper=whole.get)


def _from_arrow(values: pd.Series) -> pd.Series:
    """A column of Arrow in pandas' own types: dates with a unit, whole numbers whole."""
    kind: Any = getattr(values.dtype, "pyarrow_dtype", None)
    if pa.types.is_integer(kind):
        return values.astype("UInt64" if pa.types.is_unsigned_integer(kind) else "Int64")
    found = pa.chunked_array(pa.array(values)).to_pandas(date_as_object=False)
    return found.set_axis(values.index).rename(values.name)


def column_of(frame: pd.DataFrame, name: str, *, learned: bool = False) -> pd.Series:
    """Give one column, with text trimmed and missing-value markers missing.

    Of a column whose kind is `learned` dashes are left as they are: they may be levels.
    """
    column: Any = frame[name]  # names are unique, so it is a series
    return with_markers_missing(column, among_numbers=not learned)


def columns_of(frame: pd.DataFrame, names: Iterable[str], whose: str) -> pd.DataFrame:
    """The table, checked; InputError unless it has all of some columns."""
    frame = checked_frame(frame)
    absent = [name for name in names if name not in frame.columns]
    if absent:
        raise InputError(
            f"the table lacks {len(absent)} column(s) {whose}: add {listed(absent, at_most=20)}"
        )
    return frame


def known_column(frame: pd.DataFrame, name: str) -> str:
    """A column's name as text, if the table has it; an InputError names the nearest ones."""
    names, name = list(frame.columns), name_of(name)
    if name in names:
        return name
    lowered = {other.lower().strip(): other for other in reversed(names)}
    near = difflib.get_close_matches(name.lower().strip(), lowered, n=3, cutoff=0.6)
    did = "did you mean" if near else "the columns are"
    matches = [lowered[other] for other in near] or names
    raise InputError(f"there is no column {name!r}: {did} {listed(matches)}")


def read_column(
    values: pd.Series, *, may_be_date: bool = True
) -> tuple[pd.Series, RecognisedNotation]:
    """The column as Python and ISO 8601 write it, and how it was; 20221231 may be a date."""
    known = values.dropna()
    recognised = RecognisedNotation(None)
    if types.is_timedelta64_dtype(values.dtype):
        recognised = recognise_durations(known.dt.total_seconds())
    elif len(known) and not (isinstance(values.dtype, pd.CategoricalDtype) or has_parts(known)):
        source = source_of(known)
        if source == "category" and _is_textual(values):
            recognised = recognise(known)
        elif may_be_date and source != "date" and not _names_an_identifier(str(values.name)):
            recognised = recognise_numbers(known)
    return plain(values, recognised.notation), recognised


def has_parts(known: pd.Series) -> bool:
    """Whether a column holds lists, arrays or mappings in place of single values."""
    if known.dtype != object or not types.infer_dtype(known).startswith("mixed"):
        return False
    return any(isinstance(value, list | tuple | set | dict | np.ndarray) for value in known)


def _is_textual(values: pd.Series) -> bool:
    return types.is_object_dtype(values.dtype) or types.is_string_dtype(values.dtype)


def with_markers_missing(values: pd.Series, *, among_numbers: bool = True) -> pd.Series:
    """Give the column with text trimmed and missing-value markers missing.

    Dashes and the like are missing too where all others are numbers, if that is asked.
    """
    if isinstance(values.dtype, pd.ArrowDtype):
        values = _from_arrow(values)
    if isinstance(values.dtype, pd.CategoricalDtype):
        dull = values.cat.categories.isin(MISSING_MARKERS)
        return values.cat.remove_categories(values.cat.categories[dull]) if dull.any() else values
    if not _is_textual(values):
        return values
    read = pd.Series(_of_each(_trimmed, values), values.index, object, values.name)
    if not among_numbers:
        return read
    gaps = read.isin(GAPS_AMONG_NUMBERS)
    others = {str(value) for value in read.mask(gaps, None).dropna()} if gaps.any() else ()
    return read.mask(gaps, None) if are_numbers(others) else read


def _of_each(function: Callable[[Any], Any], values: pd.Series) -> list[Any] | np.ndarray:
    """A function of each value; of texts or numbers alone once for each that is distinct."""
    if types.infer_dtype(values, skipna=True) not in ("string", "integer", "floating"):
        return [function(value) for value in values]
    place, distinct = pd.factorize(values)  # of a gap it is -1
    found = np.full(len(distinct) + 1, None, object)
    found[:-1] = [function(value) for value in distinct]
    return found[place]


def _trimmed(value: Any) -> Any:
    """Text without spaces around it, None of a marker; times and periods as text or times."""
    if isinstance(value, str):
        return None if value.strip() in MISSING_MARKERS else value.strip()
    if isinstance(value, datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta | np.timedelta64) and not pd.isna(value):
        return str(pd.Timedelta(value))
    return value.to_timestamp() if isinstance(value, pd.Period) else value


def reason_to_leave_out(values: pd.Series) -> str | None:
    """Why a column can be no input, or None."""
    known = values.dropna()
    if known.empty:
        return "it has no value"
    if has_parts(known):
        return f"it holds {_PARTS}"
    rows = len(values)
    if rows == 1:  # nothing can be told from one row
        return None
    texts = known.map(str) if _is_textual(known) else known
    distinct, differ = texts.nunique(), f"all {rows} values differ"
    if distinct == 1 and len(known) == rows:
        return f"it is constant ({texts.iloc[0]})"
    if distinct < rows:
        return None
    if str(values.name).startswith("Unnamed: "):  # pandas' index, saved
        return "it has no name and its values all differ"
    if rows == 2:
        return None
    if isinstance(values.dtype, pd.CategoricalDtype) or source_of(known) == "category":
        like = doubt_of_names(known)
        return f"it looks like an identifier ({differ}){f', {like}' if like else ''}"
    if _names_an_identifier(str(values.name)) and _are_whole(known):
        return (
            f"it is an identifier by its name, and {differ} and are whole: rename the column to "
            "have it used"
        )
    return None


def doubt_of(values: pd.Series) -> str:
    """Doubt about a numeric column as an input, in words; empty if there is none."""
    known = values.dropna()
    if told := _stand_for_missing(known):
        return told
    if not _are_whole(known):
        return ""
    if like := resemblance_of_numbers(known):
        return like
    if any(float(number) != number for number in set(_whole_numbers(known))):
        return f"{_BEYOND} lose their last digits: make text of them if they are names"
    # In steps of one size they may number the rows, or be the time of a series.
    steps = np.unique(np.diff(np.sort(numbers_in(known, "number"))))
    if len(known) < max(len(values), _ROWS_IN_STEPS) or len(steps) > 1 or steps[0] == 0:
        return ""
    return "it looks like an identifier (it numbers the rows): if it is one, leave the column out"


def _stand_for_missing(known: pd.Series) -> str:
    """Doubt about a number such as -999 that is far from all others; empty if there is none."""
    numbers = numbers_in(known, "number")
    for code in _CODES_OF_MISSING:
        coded = numbers == code
        others = numbers[~coded]
        if coded.any() and others.size:
            far = others.min() >= 0 if code < 0 else others.max() < code / 5
            if far and others.size > coded.sum():
                rows = rows_listed(known.index[coded])
                return f"{code} may stand for missing in {rows}: leave these empty then"
    return ""


def doubt_of_names(known: pd.Series) -> str:
    """Doubt about a column taken as categories, to follow a comma; empty if there is none."""
    numbers = _whole_numbers(known)
    if numbers and max(map(abs, numbers)) > _WHOLE_IN_FLOATS:
        return (
            f"as {_BEYOND} lie closer than the precision of a float: subtract a constant to have "
            "them used as numbers"
        )
    return resemblance(texts_in(known))


def _whole_numbers(known: pd.Series) -> list[int]:
    """The whole numbers of a column that has one beyond 2**53; empty for any other column."""
    if isinstance(known.dtype, pd.CategoricalDtype):
        return []
    if types.is_integer_dtype(known.dtype):
        largest = max(int(known.max()), -int(known.min())) if len(known) else 0
        return [int(value) for value in known] if largest > _WHOLE_IN_FLOATS else []
    if not _is_textual(known):
        return []
    texts = list(map(str, known))
    if max(map(len, texts), default=0) < _LONG or not all(map(_WHOLE.fullmatch, texts)):
        return []
    numbers = [int(text) for text in texts]
    return numbers if max(map(abs, numbers)) > _WHOLE_IN_FLOATS else []


def _are_names(numbers: list[int]) -> bool:
    """Whether whole numbers beyond 2**53 tell things apart that floats would not."""
    distinct = sorted(set(numbers))
    merge = len(set(map(float, distinct))) < len(distinct)
    if merge or len(distinct) <= min(_FEW, len(numbers) / 2):
        return bool(distinct)
    return distinct[-1] - distinct[0] < _RESOLVED * max(abs(distinct[0]), abs(distinct[-1]))


def _names_an_identifier(name: str) -> bool:
    """Whether the last word of a column's name says so: id, house_id, HouseID, "order no."."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+", name)
    return bool(words) and words[-1].lower() in _IDENTIFIERS


def _are_whole(known: pd.Series) -> bool:
    source = source_of(known)
    return source in ("number", "text") and bool((numbers_in(known, source) % 1 == 0).all())


def source_of(known: pd.Series) -> Literal["number", "text", "boolean", "date", "category"]:
    """Type of contents of a column without missing values."""
    if isinstance(known.dtype, pd.CategoricalDtype):
        return "category"
    if has_parts(known):
        raise InputError(f"column {known.name!r} holds {_PARTS}")
    if (numbers := _whole_numbers(known)) and _are_names(numbers):
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
    if are_codes(texts):
        return "category"
    if not np.isnan(_parsed(texts)).any():
        return "text" if all(isinstance(value, str) for value in values) else "number"
    are_dates = all(map(_ISO_DATE.fullmatch, texts)) and _parsed_dates(texts).notna().all()
    return "date" if are_dates else "category"


def numbers_in(values: pd.Series, source: str) -> NDArray[np.float64]:
    """Give (N,) numbers, NaN where missing; times become seconds, truth values 0 and 1."""
    missing = values.isna().to_numpy()
    if types.is_timedelta64_dtype(values.dtype):
        numbers = values.dt.total_seconds().to_numpy(dtype=np.float64)
    elif types.is_numeric_dtype(values.dtype):  # truth values included
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        truth = {"true": "1", "false": "0"} if source == "boolean" else {}
        texts = [truth.get(str(value).lower(), str(value)) for value in values]
        numbers = _parsed(pd.Series(texts, dtype=object))
        missing = missing | values.isin(GAPS_AMONG_NUMBERS).to_numpy()
        numbers[missing] = np.nan
        wrong, known = np.isnan(numbers) & ~missing, (values.name, values.to_numpy(object))
        refuse_others(*known, wrong, values.index, "numeric", "numbers")
    refuse_infinite(values.name, numbers, values.index)
    return numbers


def _parsed(texts: pd.Series) -> NDArray[np.float64]:
    """Give (N,) numbers read from text, NaN where the text is not a number."""
    numbers: Any = pd.to_numeric(texts, errors="coerce")
    return numbers.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)


def dates_in(values: pd.Series) -> pd.Series:
    """Give the dates without a time zone, in UTC where they had one, NaT where missing."""
    if isinstance(values.dtype, pd.PeriodDtype):
        return values.dt.to_timestamp()
    if not pd.api.types.is_datetime64_any_dtype(values.dtype):
        written = texts_in(values)
        dates = _parsed_dates(written)
        wrong = (dates.isna() & values.notna()).to_numpy()
        if wrong.any():  # the model may have learned from dates as such, and be given "Dec 2022"
            read = cache(iso_of)
            texts = [read(text) if text else None for text in written]
            dates = _parsed_dates(pd.Series(texts, index=values.index, dtype=object))
            wrong = (dates.isna() & values.notna()).to_numpy()
        known = values.name, values.to_numpy(object)
        refuse_others(*known, wrong, values.index, "a date", "dates as 2026-01-31")
        values = dates
    return values.dt.tz_convert("UTC").dt.tz_localize(None) if values.dt.tz is not None else values


def about_zone(values: pd.Series) -> str:
    """How dates of a time zone are read, in words; empty without one, or in UTC."""
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        zone = "" if values.dt.tz is None else str(values.dt.tz)
    else:
        found = filter(None, map(_OFFSET.fullmatch, texts_in(values.dropna())))
        zone = next((own for (own,) in map(re.Match.groups, found) if own.strip("+-0:")), "")
    return "" if zone in ("", "UTC") else f"times of {zone} are taken in UTC"


def _parsed_dates(texts: pd.Series) -> pd.Series:
    return pd.to_datetime(texts, format="ISO8601", errors="coerce", utc=True)


def texts_in(values: pd.Series) -> pd.Series:
    """Give each category as text, None where missing; 3 and 3.0 are one category."""
    each = zip(_of_each(text_of, values), values.isna(), strict=True)
    texts = [None if gap else text for text, gap in each]
    return pd.Series(texts, index=values.index, dtype=object)


def levels_of_training(values: pd.Series) -> list[str]:
    """Categories of a column's values but missing ones, each once, in order."""
    return in_order(set(filter(None, settled(texts_in(values)))))


def levels_in(values: pd.Series, levels: Iterable[str]) -> list[str | None]:
    """Each category as the level of training that it means, None where missing."""
    levels = tuple(levels)
    return as_levels(texts_in(values), levels, gaps_among(levels))


def gaps_among(levels: Iterable[str]) -> tuple[str, ...]:
    """What is missing among levels: dashes and the like if all are numbers."""
    return GAPS_AMONG_NUMBERS if are_numbers(set(levels) - {GAP}) else ()


def text_of(value: Any) -> str:
    """A category as text: 3 and 3.0 are one, and a day is one as text, date and time."""
    if isinstance(value, datetime.datetime) and value.tzinfo is None:
        return str(value).removesuffix(" 00:00:00")
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()


def changes_as_number(text: str) -> bool:
    """Whether a category reads as a number that is written in another way, such as 2.0."""
    try:
        return text_of(float(text)) != text
    except ValueError:
        return False


def label_of(parts: Iterable[str]) -> str:
    """A combination "a:b" of categories, those that hold a colon told apart."""
    return ":".join(part.replace("\\", "\\\\").replace(":", "\\:") for part in parts)


def parts_of_label(label: str) -> list[str]:
    """Categories of which `label_of` makes a combination.

    Example:
        >>> parts_of_label(label_of(["8:30", "york"]))
        ['8:30', 'york']
    """
    parts = re.split(r"(?<!\\)((?:\\\\)*):", label)
    whole = [a + b for a, b in zip(parts[::2], [*parts[1::2], ""], strict=True)]
    return [re.sub(r"\\(.)", r"\1", part) for part in whole]


def parts_of_labels(labels: Iterable[str], columns: int) -> list[list[str]]:
    """Categories of each of the columns whose combinations have these labels."""
    if columns == 1:
        return [list(labels)]
    parts = [own for own in map(parts_of_label, labels) if len(own) == columns]
    return [[own[place] for own in parts] for place in range(columns)]


def combined(columns: list[list[str | None]]) -> list[str | None]:
    """Combinations of categories of several columns, None where one is; of one as they are."""
    if len(columns) == 1:
        return columns[0]
    rows = zip(*columns)  # noqa: B905
    return [None if None in row else label_of(row) for row in rows]  # pyright: ignore[reportArgumentType]


def in_order(texts: Iterable[str]) -> list[str]:
    """Categories by number if all are numbers, else by letter.

    Example:
        >>> in_order({"10", "9", "-1"})
        ['-1', '9', '10']
    """
    by_letter = sorted(texts)
    numbers = _parsed(pd.Series(by_letter, dtype=object))
    if np.isnan(numbers).any():
        return by_letter
    return [by_letter[place] for place in np.argsort(numbers, kind="stable")]


def warn(what: str, more: str) -> None:
    """Warn whoever called the encoder, of something that may be seen in many rows."""
    warnings.warn(what + more, UserWarning, stacklevel=5)


def silent(what: str, more: str) -> None:
    """Tell nobody."""


def once(tell: Tell = warn) -> Tell:
    """Reporter that passes each message on once, for tables read in parts."""
    told: set[str] = set()

    def tell_once(what: str, more: str) -> None:
        if what not in told:
            told.add(what)
            tell(what, more)

    return tell_once
