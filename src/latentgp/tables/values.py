"""Contents of a column: numbers, text, dates, categories, and missing values."""

from __future__ import annotations

import datetime
import difflib
import re
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from latentgp.errors import InputError
from latentgp.rows.csv import MISSING_MARKERS
from latentgp.tables.notation import Recognised, are_codes, plain, recognise, resemblance

if TYPE_CHECKING:
    import pandas as pd

Tell = Callable[[str, str], None]  # what was seen in some rows, and what else is to be said
_IDENTIFIERS = {
    *("id", "ids", "identifier", "uid", "uuid", "guid", "pk", "key", "index", "idx"),
    *("no", "nr", "num", "number", "nummer", "serial", "row", "rownum"),
}
_ROWS_IN_STEPS = 20
ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}.*)?$")


def checked_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Give the table with its column names as text."""
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise InputError(f"the table is a {type(frame).__name__}: pass a pandas DataFrame")
    if frame.shape[1] == 0:
        raise InputError("the table has no columns: pass at least one")
    frame = frame.rename(columns=str)
    refuse_duplicates(frame.columns, "the table")
    return frame


def column_of(frame: pd.DataFrame, name: str) -> pd.Series:
    """Give one column, with text trimmed and missing-value markers missing."""
    column: Any = frame[name]  # names are unique, so it is a series
    return with_markers_missing(column)


def known_column(frame: pd.DataFrame, name: str) -> str:
    """A column's name as text, if the table has it; an InputError names the nearest ones."""
    names, name = list(frame.columns), str(name)
    if name in names:
        return name
    lowered: dict[str, str] = {}
    for other in names:
        lowered.setdefault(other.lower().strip(), other)
    near = difflib.get_close_matches(name.lower().strip(), lowered, n=3, cutoff=0.6)
    did = "did you mean" if near else "the columns are"
    matches = [lowered[other] for other in near] or names
    raise InputError(f"there is no column {name!r}: {did} {listed(matches)}")


def read_column(values: pd.Series) -> tuple[pd.Series, Recognised]:
    """The column with text as Python and ISO 8601 write it, and how it was written before."""
    import pandas as pd

    known = values.dropna()
    recognised = Recognised(None)
    textual = _is_textual(values) and not isinstance(values.dtype, pd.CategoricalDtype)
    if textual and len(known) and source_of(known) == "category":
        recognised = recognise(known)
    return plain(values, recognised.notation), recognised


def _is_textual(values: pd.Series) -> bool:
    from pandas.api import types

    return types.is_object_dtype(values.dtype) or types.is_string_dtype(values.dtype)


def with_markers_missing(values: pd.Series) -> pd.Series:
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


def reason_to_leave_out(values: pd.Series) -> str | None:
    """Why a column can be no input, or None."""
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
    if distinct < rows:
        return None
    differ = f"all {rows} values differ"
    if str(values.name).startswith("Unnamed: "):  # pandas' index, saved
        return "it has no name and its values all differ"
    if rows == 2:
        return None
    if isinstance(values.dtype, pd.CategoricalDtype) or source_of(known) == "category":
        like = resemblance(known)
        return f"it looks like an identifier ({differ}){f', {like}' if like else ''}"
    if _names_an_identifier(str(values.name)) and _are_whole(known):
        return (
            f"it is an identifier by its name, and {differ} and are whole: rename the column to "
            "have it used"
        )
    return None


def doubt_of(values: pd.Series) -> str:
    """Doubt about a numeric column as an input, in words; empty if there is none.

    Whole numbers in steps of one size may number the rows, or be the time of a series.
    """
    known = values.dropna()
    if len(known) < max(len(values), _ROWS_IN_STEPS) or not _are_whole(known):
        return ""
    steps = np.unique(np.diff(np.sort(numbers_in(known, "number"))))
    if len(steps) > 1 or steps[0] == 0:
        return ""
    return "it looks like an identifier (it numbers the rows): if it is one, leave the column out"


def _names_an_identifier(name: str) -> bool:
    """Whether the last word of a column's name says so: id, house_id, HouseID, "order no."."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+", name)
    return bool(words) and words[-1].lower() in _IDENTIFIERS


def _are_whole(known: pd.Series) -> bool:
    source = source_of(known)
    return source in ("number", "text") and bool((numbers_in(known, source) % 1 == 0).all())


def source_of(known: pd.Series) -> Literal["number", "text", "boolean", "date", "category"]:
    """Type of contents of a column without missing values."""
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
    if are_codes(texts):
        return "category"
    if not np.isnan(_parsed(texts)).any():
        only_text = all(isinstance(value, str) for value in values)
        return "text" if only_text else "number"
    if texts.map(lambda text: ISO_DATE.match(text) is not None).all():
        parsed = pd.to_datetime(texts, format="ISO8601", errors="coerce", utc=True)
        return "date" if parsed.notna().all() else "category"
    return "category"


def numbers_in(values: pd.Series, source: str) -> NDArray[np.float64]:
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
                f"{rows_listed(values.index[wrong])}: give numbers, or leave the value empty"
            )
    infinite = np.isinf(numbers)
    if infinite.any():
        raise InputError(
            f"column {values.name!r} holds infinity in {rows_listed(values.index[infinite])}: "
            "replace it by a finite number, or leave the value empty"
        )
    return numbers


def _parsed(texts: pd.Series) -> NDArray[np.float64]:
    """Give (N,) numbers read from text, NaN where the text is not a number."""
    import pandas as pd

    numbers: Any = pd.to_numeric(texts, errors="coerce")
    return numbers.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)


def dates_in(values: pd.Series) -> pd.Series:
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
                f"{rows_listed(values.index[wrong])}: give dates as 2026-01-31, or leave the value "
                "empty"
            )
        values = dates
    return values.dt.tz_convert("UTC").dt.tz_localize(None) if values.dt.tz is not None else values


def texts_in(values: pd.Series) -> pd.Series:
    """Give each category as text, None where missing; 3 and 3.0 are one category."""
    import pandas as pd

    gaps = values.isna()
    texts = [None if gap else text_of(value) for value, gap in zip(values, gaps, strict=True)]
    return pd.Series(texts, index=values.index, dtype=object)


def text_of(value: Any) -> str:
    """A category as text: 3 and 3.0 are one, and a day is one as text, date and time."""
    if isinstance(value, datetime.datetime) and value.tzinfo is None:
        return str(value).removesuffix(" 00:00:00")
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()


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


def rows_listed(rows: pd.Index) -> str:
    """Number of rows, and the table's label of the first of them."""
    names = listed([str(row) for row in rows], quoted=False)
    return f"{len(rows)} row{'s' if len(rows) > 1 else ''} (index {names})"


def in_order(texts: Iterable[str]) -> list[str]:
    """Categories by number if all are numbers, else by letter.

    Example:
        >>> in_order({"10", "9", "-1"})
        ['-1', '9', '10']
    """
    import pandas as pd

    by_letter = sorted(texts)
    numbers = _parsed(pd.Series(by_letter, dtype=object))
    if np.isnan(numbers).any():
        return by_letter
    return [by_letter[place] for place in np.argsort(numbers, kind="stable")]


def listed(names: Iterable[str], at_most: int = 5, *, quoted: bool = True) -> str:
    """The first names of a list, for messages."""
    names = [f"{name!r}" if quoted else name for name in names]
    more = f" and {len(names) - at_most} more" if len(names) > at_most else ""
    return ", ".join(names[:at_most]) + more


def warn(what: str, more: str) -> None:
    """Warn whoever called the encoder, of something that may be seen in many rows."""
    warnings.warn(what + more, UserWarning, stacklevel=4)


def once(tell: Tell = warn) -> Tell:
    """Reporter that passes each message on once, for tables read in parts."""
    told: set[str] = set()

    def tell_once(what: str, more: str) -> None:
        if what not in told:
            told.add(what)
            tell(what, more)

    return tell_once


def refuse_duplicates(names: Iterable[str], where: str) -> None:
    """Raise InputError where two columns have one name."""
    names = list(names)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"{where} has more than one column named {listed(twice)}: rename them")
