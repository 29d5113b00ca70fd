"""Encoding of single columns as numbers, the same at training and prediction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from latentgp.errors import InputError
from latentgp.modules import stored
from latentgp.surfaces.tables.levels import (
    GAP,
    filled,
    indicators,
    listed,
    rows_listed,
    series_numbers,
    settled,
)
from latentgp.surfaces.tables.notation import (
    DurationNotation,
    Notation,
    RecognisedNotation,
    plain,
    stays_text,
)
from latentgp.surfaces.tables.values import (
    Tell,
    about_zone,
    changes_as_number,
    checked_frame,
    column_of,
    dates_in,
    doubt_of,
    doubt_of_names,
    levels_in,
    levels_of_training,
    numbers_in,
    source_of,
    texts_in,
    warn,
)

MOST_CATEGORIES = 30


@stored
@dataclass(frozen=True)
class NumberColumn:
    """Encoding of a column as a number, with a 0/1 column for gaps if training had any."""

    name: str  # the column
    source: Literal["number", "text", "boolean", "date"]  # text is of numbers
    median: float  # what a missing value is replaced by, in the encoded unit
    marks_missing: bool  # whether a 0/1 column says where the value was missing
    origin: str | None = None  # for dates, the earliest of training in ISO 8601, which becomes zero
    unit: str | None = None  # for dates, "days" or "seconds"; for durations that of the notation
    notation: Notation | None = None  # of numbers, dates or durations; None if Python's, ISO 8601
    doubt: str = ""  # what may be meant otherwise, in words; empty if nothing
    required: bool = False  # whether a missing value is an error

    @classmethod
    def fit(cls, values: pd.Series, source: Any, recognised: RecognisedNotation) -> NumberColumn:
        """Learn the median, and for dates the origin and unit, from a column with some values.

        Their text is as Python and ISO 8601 write it; `recognised` is how the column itself does.
        """
        origin, unit = None, None
        if source == "date":
            dates = dates_in(values)
            origin = dates.min().isoformat()
            unit = "days" if (dates.max() - dates.min()).total_seconds() > 2 * 86400 else "seconds"
        if isinstance(recognised.notation, DurationNotation):
            unit = recognised.notation.unit
        counts = source in ("number", "text") and unit is None
        doubt = recognised.doubt or (doubt_of(values) if counts else "")
        doubt = doubt or (about_zone(values) if source == "date" else "")
        missing, dated = bool(values.isna().any()), (origin, unit)
        column = cls(str(values.name), source, 0.0, missing, *dated, recognised.notation, doubt)
        return replace(column, median=float(np.nanmedian(column._raw(values))))

    @property
    def feature_names(self) -> list[str]:
        """Names of the encoded columns."""
        value = self.name if self.unit is None else f"{self.name} [{self.unit}]"
        return [value, f"{self.name} is missing"] if self.marks_missing else [value]

    @property
    def calendar(self) -> dict[str, float]:
        """Lengths of what dates repeat by, in the column's unit; empty for numbers."""
        if self.source != "date":
            return {}
        day = 1.0 if self.unit == "days" else 86400.0
        return {"year": 365.2425 * day, "week": 7 * day, "day": day}

    @property
    def stays_text(self) -> bool:
        """Whether a reader of CSV must leave it as text."""
        return stays_text(self.notation)

    def describe(self) -> str:
        """Describe the encoding of the column in words."""
        kinds = {"number": "number", "text": "number stored as text"}
        kinds |= {"boolean": "false/true as 0/1", "date": f"{self.unit} since {self.origin}"}
        what = kinds[self.source]
        if self.notation is not None:
            written = self.notation.describe()
            what = f"{what}, {written}" if self.source == "date" else written
        if self.marks_missing:
            what += f", missing values become the median {self.median:g} and are marked in a column"
        return f"{self.name}: {what}{f'; {self.doubt}' if self.doubt else ''}"

    def encode(self, values: pd.Series, tell: Tell = warn) -> NDArray[np.float64]:
        """Give (N, 1) values, or (N, 2) with the mark of missing ones."""
        return filled(self, self._raw(values), values.index, tell)

    def read(self, values: pd.Series) -> pd.Series:
        """The column as dates or numbers, however it is written; truth values stay."""
        if self.source == "date":
            return dates_in(plain(values, self.notation))
        if self.source == "boolean":
            return values
        return pd.Series(self._raw(values), index=values.index, name=values.name)

    def _raw(self, values: pd.Series) -> NDArray[np.float64]:
        """Give (N,) numbers in the encoded unit, NaN where missing."""
        if self.source != "date":
            return numbers_in(plain(values, self.notation), self.source)
        dates = self.read(values)
        one = pd.Timedelta(1, "D" if self.unit == "days" else "s")
        return ((dates - pd.Timestamp(self.origin)) / one).to_numpy(dtype=np.float64)


def has_many_levels(values: pd.Series) -> bool:
    """Whether a column is of more categories than have 0/1 columns each."""
    known = values.dropna()
    return source_of(known) == "category" and texts_in(known).nunique() > MOST_CATEGORIES


def as_read(frame: pd.DataFrame, columns: Iterable[Any]) -> pd.DataFrame:
    """The table with those columns of numbers that it has as they are read."""
    frame = checked_frame(frame)
    numbers = [own for own in columns if isinstance(own, NumberColumn) and own.name in frame]
    return frame.assign(**{own.name: own.read(column_of(frame, own.name)) for own in numbers})


@stored
@dataclass(frozen=True)
class CategoryColumn:
    """Encoding of a column of categories as 0/1 columns, one a category."""

    name: str  # the column
    categories: tuple[str, ...]  # those with a column of their own, sorted
    others: tuple[str, ...]  # rarer ones seen in training, which share one column
    marks_missing: bool  # whether missing is a category, as it is where training had gaps
    doubt: str = ""  # what the categories look like instead, in words; empty if nothing

    @classmethod
    def fit(cls, values: pd.Series) -> CategoryColumn:
        """Learn the categories, the 30 most frequent apart and the rest together."""
        counts = Counter(text for text in settled(texts_in(values)) if text is not None)
        # A tie is decided by name, so that the order of the rows does not matter.
        frequent_first = sorted(counts, key=lambda category: (-counts[category], category))
        kept, rest = frequent_first[:MOST_CATEGORIES], frequent_first[MOST_CATEGORIES:]
        missing, doubt = bool(values.isna().any()), doubt_of_names(values.dropna())
        return cls(str(values.name), tuple(sorted(kept)), tuple(sorted(rest)), missing, doubt)

    @property
    def feature_names(self) -> list[str]:
        """Names of the encoded columns."""
        names = [f"{self.name} = {category}" for category in self.categories]
        names += [f"{self.name} = other"] if self.others else []
        return [*names, f"{self.name} is missing"] if self.marks_missing else names

    @property
    def stays_text(self) -> bool:
        """Whether a reader of CSV must leave it as text."""
        return any(map(changes_as_number, (*self.categories, *self.others)))

    def describe(self) -> str:
        """Describe the encoding of the column in words."""
        total = len(self.categories) + len(self.others)
        line = f"{self.name}: {total} categories ({listed(self.categories)}) as 0/1 columns"
        line += f", the {len(self.others)} rarest share one" if self.others else ""
        line += ", missing is one more" if self.marks_missing else ""
        return line + (f", {self.doubt}" if self.doubt else "")

    def encode(self, values: pd.Series, tell: Tell = warn) -> NDArray[np.float64]:
        """Give (N, categories) zeros and ones; a category unseen in training has only zeros."""
        texts = levels_in(values, (*self.categories, *self.others))
        return indicators(self, texts, values.index, tell)


@stored
@dataclass(frozen=True)
class SeriesColumn:
    """Encoding of a column that tells series, groups or levels apart as their numbers."""

    name: str  # the column
    labels: tuple[str, ...]  # in order; those that training never saw have further numbers
    noun: str = "series"  # what they are called
    # what levels look like instead, in words; empty if nothing
    doubt: str = field(default="", repr=False)

    @classmethod
    def of_levels(cls, values: pd.Series) -> SeriesColumn:
        """Learn the levels of a category, of which a missing value is one more."""
        gap = (GAP,) if values.isna().any() else ()
        known = levels_of_training(values)
        doubt = doubt_of_names(values.dropna())
        return cls(str(values.name), (*known, *gap), "levels", doubt)

    @classmethod
    def fit(cls, values: pd.Series) -> SeriesColumn:
        """Learn the labels; InputError if a value is missing."""
        missing = values.isna().to_numpy()
        if missing.any():
            raise InputError(
                f"column {values.name!r} tells series apart but is missing in "
                f"{rows_listed(values.index[missing])}: fill it, or leave these rows out"
            )
        return cls(str(values.name), tuple(levels_of_training(values)))

    @property
    def feature_names(self) -> list[str]:
        """Name of the encoded column."""
        return [f"{self.name} [number]"]

    @property
    def stays_text(self) -> bool:
        """Whether a reader of CSV must leave it as text."""
        return any(map(changes_as_number, self.labels))

    def describe(self) -> str:
        """Describe the encoding of the column in words."""
        names = listed(label for label in self.labels if label != GAP)
        if self.noun == "levels":
            gaps = ", missing is one of them" if GAP in self.labels else ""
            line = f"{self.name}: an effect for each of {len(self.labels):,} levels ({names}){gaps}"
            return line + (f", {self.doubt}" if self.doubt else "")
        return f"{self.name}: {len(self.labels)} independent {self.noun} ({names})"

    def encode(self, values: pd.Series, tell: Tell = warn) -> NDArray[np.float64]:
        """Give (N, 1) numbers of series."""
        return series_numbers(self, levels_in(values, self.labels), tell)
