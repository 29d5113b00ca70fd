"""Notation of numbers and dates in text: decimal commas, thousands, currencies, percent."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from latentgp.rows.csv import CODE

if TYPE_CHECKING:
    import pandas as pd

_SYMBOLS = "$€£¥₹₽₩₺₪₫₴₦฿"
_CURRENCIES = (
    *("USD", "EUR", "GBP", "CHF", "JPY", "CNY", "INR", "AUD", "CAD", "NZD", "HKD", "SGD", "SEK"),
    *("NOK", "DKK", "PLN", "CZK", "HUF", "RON", "TRY", "BRL", "MXN", "ZAR", "KRW", "ILS", "THB"),
)
_UNIT = rf"(?:[{_SYMBOLS}]|{'|'.join(_CURRENCIES)})"
_BLANK = " \u00a0\u202f"  # Unicode's spaces that do not break a line are used between thousands
_DATE = re.compile(
    r"(?:(?P<one>\d{1,2})(?P<mark>[./-])(?P<two>\d{1,2})(?P=mark)(?P<year>\d{4})"
    r"|(?P<first>\d{4})(?P<sign>[./-])(?P<month>\d{1,2})(?P=sign)(?P<day>\d{1,2}))"
    r"(?:,?[T ]\s*(?P<hour>\d{1,2}):(?P<minute>\d{2})(?P<second>:\d{2}(?:\.\d+)?)?"
    r"\s*(?P<half>[AaPp][Mm])?)?"
)
_LIKE_NUMBER = re.compile(
    rf"[<>~≈±+-]?\s*{_UNIT}?\s*[+-]?\d[\d.,'’{_BLANK}]*\s*(?:[^\W\d]{{1,4}}\.?|%|[{_SYMBOLS}])?"
)
_MONTH = "(?:jan|feb|m[aä]r|apr|ma[iy]|jun|jul|aug|sep|o[ck]t|nov|de[cz])[a-zä]*"
_LIKE_DATE = re.compile(
    r"(?:\d{1,2}([./-])\d{1,2}\1(?:\d{2}|\d{4})|\d{4}([./-])\d{1,2}\2\d{1,2})(?:\D.*)?"
    rf"|(?:\d{{1,4}}[ .-]+)?{_MONTH}[ .,-]+\d{{1,4}}(?:\D.*)?",
    re.IGNORECASE,
)
_CODE, _DIGITS = re.compile(CODE), re.compile(r"\d+")
_MOST_OF_THEM, _FEW_CATEGORIES = 0.5, 10


_Order = Literal["year, month, day", "day, month, year", "month, day, year"]


@dataclass(frozen=True)
class NumberNotation:
    """Notation of the numbers in a column of text.

    Attributes:
        decimal: what stands before a fraction; the other of the two may group thousands, as spaces
            and apostrophes may.
        unit: a currency or "%", empty if there is none.

    Example:
        >>> NumberNotation(",", "€").plain("€ 9.876,54")
        '9876.54'
    """

    decimal: Literal[".", ","]
    unit: str = ""

    def plain(self, text: str) -> str:
        """The number as Python writes it; what is none stays as it is."""
        read = _read_number(text, self.decimal)
        return read.number if read and read.unit in ("", self.unit) else text

    def describe(self) -> str:
        """Describe the notation in words."""
        marks = "a decimal comma" if self.decimal == "," else "a decimal point"
        if self.unit == "%":
            return f"number in percent (50 % is 50), written with {marks}"
        return f"number{f' in {self.unit}' if self.unit else ''}, written with {marks}"


@dataclass(frozen=True)
class DateNotation:
    """Notation of the dates in a column of text, other than ISO 8601.

    Attributes:
        order: in which day, month and year come.

    Example:
        >>> DateNotation("day, month, year").plain("31.12.2024 9:30")
        '2024-12-31T09:30'
    """

    order: _Order

    def plain(self, text: str) -> str:
        """The date in ISO 8601; what is none stays as it is."""
        found = _DATE.fullmatch(text)
        if found is None or bool(found["year"]) == (self.order == "year, month, day"):
            return text
        year, month, day = found["first"], found["month"], found["day"]
        if found["year"]:
            year, month, day = found["year"], found["two"], found["one"]
            if self.order == "month, day, year":
                month, day = day, month
        if int(month) > 12 or int(day) > 31:
            return text
        date = f"{year}-{month:0>2}-{day:0>2}"
        if found["hour"] is None:
            return date
        hour = int(found["hour"])
        if found["half"]:
            hour = hour % 12 + 12 * (found["half"].lower() == "pm")
        return f"{date}T{hour:02}:{found['minute']}{found['second'] or ''}"

    def describe(self) -> str:
        """Describe the notation in words."""
        return f"written as {self.order}"


Notation = NumberNotation | DateNotation


class Recognised(NamedTuple):
    """Notation of a column, and its ambiguities in words; None and empty if nothing."""

    notation: Notation | None
    doubt: str = ""

    def described(self, name: str) -> list[str]:
        """Line that describes the notation of a column; none for Python's own."""
        if self.notation is None:
            return []
        return [f"{name}: {self.notation.describe()}{f'; {self.doubt}' if self.doubt else ''}"]


def recognise(known: pd.Series) -> Recognised:
    """Find how the text of a column without missing values writes numbers or dates.

    Every value must be of one notation, numbers all in one unit. Numbers that Python would read,
    and dates in ISO 8601, are left to others.
    """
    texts = sorted({str(value) for value in known})
    if are_codes(texts):
        return Recognised(None)
    return _dates(texts) or _numbers(texts) or Recognised(None)


def are_codes(texts: Iterable[str]) -> bool:
    """Whether these are codes, such as of the post: digits alone, some with zeros in front."""
    texts = list(texts)
    return any(map(_CODE.fullmatch, texts)) and all(map(_DIGITS.fullmatch, texts))


def commas(notation: Notation | None) -> bool:
    """Whether numbers have a decimal comma, so that their points stand between thousands."""
    return isinstance(notation, NumberNotation) and notation.decimal == ","


def plain(values: pd.Series, notation: Notation | None) -> pd.Series:
    """The column with text as Python and ISO 8601 write it."""
    import pandas as pd

    if notation is None or not any(isinstance(value, str) for value in values):
        return values
    once = cache(notation.plain)
    texts = [once(value) if isinstance(value, str) else value for value in values]
    return pd.Series(texts, index=values.index, name=values.name, dtype=object)


def resemblance(known: pd.Series) -> str:
    """Likely meaning of text that could not be read, to follow a comma; empty if none."""
    texts = [str(value) for value in known]
    if len(set(texts)) <= _FEW_CATEGORIES or are_codes(texts):
        return ""
    for what, pattern, like in (
        ("numbers", _LIKE_NUMBER, "1234.5"),
        ("dates", _LIKE_DATE, "2024-12-31"),
    ):
        alike = [text for text in texts if pattern.fullmatch(text)]
        if len(alike) < _MOST_OF_THEM * len(texts):
            continue
        others = sorted(set(texts) - set(alike))
        but = f", unlike {others[0]!r}" if others else ""
        return (
            f"though {len(alike)} of {len(texts)} values look like {what}, such as {min(alike)!r}"
            f"{but}: write all as {like} to have them used so"
        )
    return ""


class _Number(NamedTuple):
    unit: str
    number: str


def _number_pattern(decimal: str, grouping: str) -> re.Pattern[str]:
    point = re.escape(decimal)
    grouped = rf"[1-9]\d{{0,2}}(?:(?P<mark>[{grouping}'’{_BLANK}])\d{{3}})(?:(?P=mark)\d{{3}})*"
    return re.compile(
        rf"(?P<sign>[+−-]?)\s*(?P<before>{_UNIT})?\s*(?P<inner>[+−-]?)"
        rf"(?:(?P<whole>{grouped}|\d+)(?:{point}(?P<part>\d*))?|{point}(?P<alone>\d+))"
        rf"(?P<power>[eE][+-]?\d+)?\s*(?P<after>{_UNIT}|%)?"
    )


_NUMBERS = {".": _number_pattern(".", ","), ",": _number_pattern(",", ".")}


def _read_number(text: str, decimal: str) -> _Number | None:
    found = _NUMBERS[decimal].fullmatch(text)
    if found is None or (found["before"] and found["after"]) or (found["sign"] and found["inner"]):
        return None
    sign = "-" if (found["sign"] or found["inner"]) in ("-", "−") else ""
    whole = re.sub(r"\D", "", found["whole"] or "0")
    part = found["part"] or found["alone"] or ""
    number = f"{sign}{whole}{'.' if part else ''}{part}{found['power'] or ''}"
    return _Number(found["before"] or found["after"] or "", number)


def _numbers(texts: list[str]) -> Recognised | None:
    ways = {}
    for decimal in (".", ","):
        read = [_read_number(text, decimal) for text in texts]
        units = {number.unit for number in read if number}
        if None not in read and len(units) == 1:
            ways[decimal] = units.pop(), [float(number.number) for number in read if number]
    if not ways:
        return None
    if len(ways) == 1 or ways["."][1] == ways[","][1]:
        decimal = next(iter(ways))
        return Recognised(NumberNotation(decimal, ways[decimal][0]))
    # Every mark has three digits behind it: these are thousands, or in percent thousandths.
    taken = (min if ways["."][0] == "%" else max)(ways, key=lambda way: sum(map(abs, ways[way][1])))
    other = "," if taken == "." else "."
    pairs = zip(texts, ways[taken][1], ways[other][1], strict=True)
    text, one, another = next(pair for pair in pairs if pair[1] != pair[2])
    doubt = f"{text!r} is taken as {one:g}, though it could be {another:g}"
    return Recognised(NumberNotation(taken, ways[taken][0]), doubt)


def _dates(texts: list[str]) -> Recognised | None:
    import pandas as pd

    if not all(map(_DATE.fullmatch, texts)):
        return None

    def reads_all(order: _Order) -> bool:
        iso = pd.Series([DateNotation(order).plain(text) for text in texts], dtype=object)
        dates = pd.to_datetime(iso, format="ISO8601", errors="coerce", utc=True)
        return bool(dates.notna().all())

    ways = [order for order in get_args(_Order) if reads_all(order)]
    if not ways:
        return None
    points = all(re.match(r"\d+\.", text) for text in texts)  # so the day is first
    sure = len(ways) == 1 or points or ways[0] == "year, month, day"
    doubt = f"no row tells days from months: {texts[0]!r} is taken with the day first"
    return Recognised(DateNotation(ways[0]), "" if sure else doubt)
