"""Notation of numbers, dates, times of day and durations other than that of Python and ISO."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from numbers import Real
from typing import Any, Literal, NamedTuple

import pandas as pd
from pandas.api import types

from latentgp.modules import stored
from latentgp.surfaces.files.csv import CODE

_SYMBOLS = "$€£¥₹₽₩₺₪₫₴₦฿"
_CURRENCIES = (
    *("USD", "EUR", "GBP", "CHF", "JPY", "CNY", "INR", "AUD", "CAD", "NZD", "HKD", "SGD", "SEK"),
    *("NOK", "DKK", "PLN", "CZK", "HUF", "RON", "TRY", "BRL", "MXN", "ZAR", "KRW", "ILS", "THB"),
)
_UNIT = rf"(?:[{_SYMBOLS}]|{'|'.join(_CURRENCIES)})"
_LETTERS = r"°?[^\W\d_]{1,4}\.?[²³]?"  # of a unit behind numbers
_BLANK = " \u00a0\u202f"  # Unicode's spaces that do not break a line are used between thousands
_NAME = r"(?P<name>[^\W\d_]{3,9})\.?"
_YEAR = r"(?P<year>\d{4})"
_SHORT = r"(?P<short>\d\d)"  # the year of two digits
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th|\.)?"
_CLOCK = (
    r"(?:,?[T ]\s*(?P<hour>\d{1,2}):(?P<minute>\d{2})(?P<second>:\d{2}(?:\.\d+)?)?"
    r"\s*(?P<half>[AaPp][Mm])?)?"
)
_IN_DIGITS = r"(?P<year>(?:19|20)\d\d)(?P<month>0[1-9]|1[0-2])"
# Dates other than ISO 8601. Of two that follow each other in `_EITHER_WAY` one is meant.
_DATES = {
    order: re.compile(pattern, re.IGNORECASE)
    for order, pattern in {
        "day, month, year": (
            rf"(?P<day>\d{{1,2}})(?P<mark>[./-])(?P<month>\d{{1,2}})(?P=mark){_YEAR}{_CLOCK}"
        ),
        "month, day, year": (
            rf"(?P<month>\d{{1,2}})(?P<mark>[./-])(?P<day>\d{{1,2}})(?P=mark){_YEAR}{_CLOCK}"
        ),
        "day, month, year of two digits": (
            rf"(?P<day>\d{{1,2}})(?P<mark>[./])(?P<month>\d{{1,2}})(?P=mark){_SHORT}{_CLOCK}"
        ),
        "month, day, year of two digits": (
            rf"(?P<month>\d{{1,2}})(?P<mark>[./])(?P<day>\d{{1,2}})(?P=mark){_SHORT}{_CLOCK}"
        ),
        "year, month, day": (
            rf"{_YEAR}(?P<mark>[./-])(?P<month>\d{{1,2}})(?P=mark)(?P<day>\d{{1,2}}){_CLOCK}"
        ),
        "year, month": rf"{_YEAR}(?:[/-]|[ -]?M)(?P<month>\d{{1,2}})",
        "month, year": rf"(?P<month>\d{{1,2}})[./-]{_YEAR}",
        "year, quarter": rf"{_YEAR}[ /-]?Q(?P<quarter>[1-4])",
        "quarter, year": rf"Q(?P<quarter>[1-4])[ /-]?{_YEAR}",
        "year, week": rf"{_YEAR}[ /-]?[KC]?W(?P<week>\d\d|\d)(?:-?(?P<weekday>[1-7]))?",
        "week, year": rf"[KC]?W ?(?P<week>\d{{1,2}})[ /-]{_YEAR}",
        "day, name of month, year": rf"(?:[a-z]+,? )?{_DAY}[ -]*{_NAME}[ ,-]*{_YEAR}{_CLOCK}",
        "name of month, day, year": rf"(?:[a-z]+, )?{_NAME}[ -]{_DAY}(?:, ?|[ -]){_YEAR}{_CLOCK}",
        "year, name of month, day": rf"{_YEAR}[ -]{_NAME}[ -]{_DAY}{_CLOCK}",
        "name of month, year": rf"{_NAME}[ ,/-]*{_YEAR}",
        "year, name of month": rf"{_YEAR}[ ,/-]*{_NAME}",
        "day, name of month, year of two digits": rf"{_DAY}[ -]?{_NAME}[ -]?{_SHORT}",
        "name of month, year of two digits": rf"{_NAME}(?:[ -]|[ -]?'){_SHORT}",
        "first day/last day": rf"{_YEAR}-(?P<month>\d\d)-(?P<day>\d\d)/\d{{4}}-\d\d-\d\d",
        "year and month in one number": _IN_DIGITS,
        "year, month and day in one number": (
            rf"{_IN_DIGITS}(?P<day>0[1-9]|[12]\d|3[01])"
            r"(?:(?P<hour>[01]\d|2[0-3])(?P<minute>[0-5]\d)(?P<digits>[0-5]\d)?)?"
        ),
    }.items()
}
_EITHER_WAY = (
    *("day, month, year", "month, day, year"),
    *("day, month, year of two digits", "month, day, year of two digits"),
)
_MONTHS = (
    *("january januar janvier enero", "february februar", "march märz maerz mrz", "april"),
    *("may mai", "june juni", "july juli", "august", "september sept", "october oktober"),
    *("november", "december dezember"),
)
_DURATION = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<days>\d+) ?days?(?:,? |$)\+?)?(?:"
    r"(?P<hours>\d+)(?::(?P<minutes>[0-5]\d)(?::(?P<seconds>[0-5]\d(?:[.,]\d+)?))?)?"
    r"\s*(?P<half>[ap]\.?m\.?)?)?",
    re.IGNORECASE,
)
_ISO_DURATION = re.compile(
    r"(?P<sign>[+-]?)P(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_YEARS = range(1500, 2200)  # others are rather numbers of something
_SECONDS = {"days": 86400, "hours": 3600, "minutes": 60, "seconds": 1}
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
_MOST_OF_THEM, _FEW_CATEGORIES, _FEWEST_MONTHS = 0.5, 10, 3
_TIMELY = re.compile("date|day|month|week|year|time|period|datum|monat|^y?y?ym", re.IGNORECASE)


@stored
@dataclass(frozen=True)
class NumberNotation:
    """Notation of the numbers in a column of text.

    Example:
        >>> NumberNotation(",", "€").plain("€ 9.876,54")
        '9876.54'
        >>> NumberNotation(".", "kg").plain("12.5 kg")
        '12.5'
    """

    # what stands before a fraction; the other of the two may group thousands, as spaces and
    # apostrophes may
    decimal: Literal[".", ","]
    unit: str = ""  # a currency, "%" or letters behind the number, empty if there is none

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


@stored
@dataclass(frozen=True)
class DateNotation:
    """Notation of the dates in a column, other than ISO 8601.

    Example:
        >>> DateNotation("day, month, year").plain("31.12.2024 9:30")
        '2024-12-31T09:30'
        >>> DateNotation("year, quarter").plain("2024Q2")
        '2024-04-01'
    """

    order: str  # in which day, month, quarter, week and year come, one of `_DATES`

    def plain(self, text: str) -> str:
        """The date in ISO 8601, of a month or week its first day; what is none stays as it is."""
        found = _DATES[self.order].fullmatch(text)
        return text if found is None else _iso(found.groupdict()) or text

    def describe(self) -> str:
        """Describe the notation in words."""
        return f"written as {self.order}"


def iso_of(text: str) -> str:
    """A date in ISO 8601 that is written in another way which has one meaning; else the text.

    Example:
        >>> iso_of("Jan 2015"), iso_of("1/2/2015")
        ('2015-01-01', '1/2/2015')
    """
    for order in _DATES:
        if order not in _EITHER_WAY:
            iso = DateNotation(order).plain(text)
            if iso != text:
                return iso
    return text


def _iso(found: dict[str, str | None]) -> str | None:
    """Parts of a date in ISO 8601; None if there is no such day."""
    year = int(found.get("year") or 0)
    if short := found.get("short"):
        year = int(short) + (1900 if int(short) > 68 else 2000)  # as POSIX does
    month = int(found.get("month") or 1)
    if quarter := found.get("quarter"):
        month = 3 * int(quarter) - 2
    if name := found.get("name"):
        meant = [any(own.startswith(name.lower()) for own in known.split()) for known in _MONTHS]
        month = 1 + meant.index(True) if any(meant) else 0
    hour, half = int(found.get("hour") or 0), found.get("half")
    if half:
        hour = hour % 12 + 12 * (half.lower() == "pm")
    minute = found.get("minute") or "00"
    second = f":{found['digits']}" if found.get("digits") else found.get("second") or ""
    try:
        if week := found.get("week"):
            weekday = int(found.get("weekday") or 1)
            date = datetime.date.fromisocalendar(year, int(week), weekday)
        else:
            date = datetime.date(year, month, int(found.get("day") or 1))
        datetime.time(hour, int(minute), int(second[1:3] or 0))
    except ValueError:
        return None
    if year not in _YEARS:
        return None
    has_time = found.get("hour") is not None
    return f"{date}T{hour:02}:{minute}{second}" if has_time else date.isoformat()


@stored
@dataclass(frozen=True)
class DurationNotation:
    """Notation of durations, and of times of day as the time since midnight.

    Example:
        >>> DurationNotation("hours").plain("8:30 PM"), DurationNotation("days").plain("P1DT12H")
        ('20.5', '1.5')
    """

    unit: str  # "days", "hours", "minutes" or "seconds", in which they are numbers
    of_day: bool = False  # whether they are times of day

    def plain(self, text: str) -> str:
        """The number of units as Python writes it; what is no duration stays as it is."""
        seconds = seconds_of(text)
        return text if seconds is None else repr(self.number(seconds))

    def number(self, seconds: Any) -> Any:
        """So many seconds in the unit."""
        return seconds / _SECONDS[self.unit]

    def describe(self) -> str:
        """Describe the notation in words."""
        if self.of_day:
            return "hours since midnight"
        each = f" of {_SECONDS[self.unit]} seconds" if self.unit != "seconds" else ""
        return f"duration in {self.unit}{each}"


def seconds_of(text: str) -> float | None:
    """Seconds of a duration such as 25:30, 1 days 02:00:00 or PT10M, or since midnight of 8:30 PM.

    Example:
        >>> seconds_of("1 days 02:00:00"), seconds_of("8:30 PM"), seconds_of("8")
        (93600.0, 73800.0, None)
    """
    found = _DURATION.fullmatch(text) or _ISO_DURATION.fullmatch(text)
    if found is None:
        return None
    parts = found.groupdict()
    half, hours = parts.get("half"), int(parts["hours"] or 0)
    is_clock = found.re is _DURATION
    if is_clock and parts["hours"] and not (parts["minutes"] or half):
        return None
    if all(parts[name] is None for name in ("days", "hours", "minutes", "seconds")):
        return None
    if half:
        if parts["days"] or parts["sign"] or not 0 < hours <= 12:
            return None
        hours = hours % 12 + 12 * half.lower().startswith("p")
    whole = 86400 * int(parts["days"] or 0) + 3600 * hours + 60 * int(parts["minutes"] or 0)
    part = float((parts["seconds"] or "0").replace(",", "."))
    # pandas writes minus one second as -1 days +23:59:59
    if parts["days"] and parts["sign"] == "-" and is_clock:
        return whole + part - 2 * 86400 * int(parts["days"] or 0)
    return -(whole + part) if parts["sign"] == "-" else whole + part


Notation = NumberNotation | DateNotation | DurationNotation


class RecognisedNotation(NamedTuple):
    """Notation of a column, and its ambiguities in words; None and empty if nothing."""

    notation: Notation | None
    doubt: str = ""

    def described(self, name: str) -> list[str]:
        """Line that describes the notation of a column; none for Python's own."""
        if self.notation is None:
            return []
        return [f"{name}: {self.notation.describe()}{f'; {self.doubt}' if self.doubt else ''}"]


def recognise(known: pd.Series) -> RecognisedNotation:
    """Find how the text of a column without missing values writes numbers, dates or durations.

    Every value must be of one notation, numbers all in one unit. Numbers that Python would read,
    and dates in ISO 8601, are left to others.
    """
    texts = sorted({str(value) for value in known})
    if are_codes(texts):
        return RecognisedNotation(None)
    return _dates(texts) or _durations(texts) or _numbers(texts) or RecognisedNotation(None)


def recognise_numbers(known: pd.Series) -> RecognisedNotation:
    """Find dates such as 20221231, 202212 and (as text) 12.2022 among what Python reads as numbers.

    Every value must be a date from 1900 to 2099. Of months alone there must be three, as other
    numbers of six digits may look like these, or the column's name must say so.
    """
    distinct = known.drop_duplicates().tolist()
    orders = ["year, month and day in one number"]
    if len(distinct) >= _FEWEST_MONTHS or _TIMELY.search(str(known.name)):
        orders.append("year and month in one number")
    if any(isinstance(value, str) and value.startswith("0") for value in distinct):
        orders.append("month, year")
    for order in orders:
        read = DateNotation(order).plain
        if distinct and all(read(text) != text for text in map(_digits_of, distinct)):
            doubt = "if they are no dates, subtract a constant to have them taken as numbers"
            doubt = doubt if order.endswith("number") else ""
            return RecognisedNotation(DateNotation(order), doubt)
    return RecognisedNotation(None)


def recognise_durations(seconds: Any) -> RecognisedNotation:
    """Unit for N durations: the largest of which a typical one has two."""
    size = sorted(abs(float(value)) for value in seconds if value)
    typical = size[len(size) // 2] if size else 0.0
    unit = next((unit for unit, one in _SECONDS.items() if typical >= 2 * one), "seconds")
    return RecognisedNotation(DurationNotation(unit))


def _digits_of(value: Any) -> str:
    """A whole number without a point."""
    return str(value) if isinstance(value, str) or value % 1 else str(int(value))


def are_codes(texts: Iterable[str]) -> bool:
    """Whether these are codes, such as of the post: digits alone, some with zeros in front."""
    texts = list(texts)
    return any(map(_CODE.fullmatch, texts)) and all(map(_DIGITS.fullmatch, texts))


def are_numbers(texts: Iterable[str]) -> bool:
    """Whether these are numbers of one notation, not codes, and there are any."""
    texts = sorted(texts)
    return not are_codes(texts) and _numbers(texts) is not None


def stays_text(notation: Notation | None) -> bool:
    """Whether a reader of numbers would take 1.200, of a decimal comma, or 12.2020 for others."""
    if isinstance(notation, DateNotation):
        return notation.order == "month, year"
    return isinstance(notation, NumberNotation) and notation.decimal == ","


def plain(values: pd.Series, notation: Notation | None) -> pd.Series:
    """The column with dates as ISO 8601 writes them, and numbers as Python does."""
    if notation is None:
        return values
    if types.is_timedelta64_dtype(values.dtype):
        if not isinstance(notation, DurationNotation):
            return values
        return notation.number(values.dt.total_seconds())
    once = cache(notation.plain)
    are_dates = isinstance(notation, DateNotation)

    def read(value: Any) -> Any:
        if are_dates and isinstance(value, Real) and value == value:
            value = _digits_of(value)
        return once(value) if isinstance(value, str) else value

    if not any(isinstance(value, str | Real if are_dates else str) for value in values):
        return values
    texts = [read(value) for value in values]
    return pd.Series(texts, index=values.index, name=values.name, dtype=object)


def resemblance(known: pd.Series) -> str:
    """Likely meaning of values that could not be read, to follow a comma; empty if none."""
    texts = [str(value) for value in known]
    if are_codes(texts):
        return ""
    ways: list[tuple[str, Callable[[str], Any], str]] = [
        ("dates", lambda text: _LIKE_DATE.fullmatch(text) or iso_of(text) != text, "2024-12-31"),
        ("times", lambda text: seconds_of(text) is not None, "23:59"),
    ]
    if len(set(texts)) > _FEW_CATEGORIES:
        ways.insert(0, ("numbers", _LIKE_NUMBER.fullmatch, "1234.5"))
    for what, looks, like in ways:
        looks = cache(looks)
        alike = [text for text in texts if looks(text)]
        if len(alike) >= max(1, _MOST_OF_THEM * len(texts)):
            others = sorted(set(texts) - set(alike))
            but = f", unlike {others[0]!r}" if others else ""
            return (
                f"though {len(alike)} of {len(texts)} values look like {what}, such as "
                f"{min(alike)!r}{but}: write all as {like} to have them used so"
            )
    return ""


def resemblance_of_numbers(known: pd.Series) -> str:
    """Doubt about whole numbers of which most are dates such as 20221231; empty if none."""
    if known.dtype.kind in "iuf" and known.between(19_000_101, 20_991_231).mean() < _MOST_OF_THEM:
        return ""
    texts = [_digits_of(value) for value in known]
    read = cache(DateNotation("year, month and day in one number").plain)
    alike = [text for text in texts if read(text) != text]
    others = sorted(set(texts) - set(alike))
    if not others or len(set(alike)) < _FEWEST_MONTHS or len(alike) < _MOST_OF_THEM * len(texts):
        return ""
    return (
        f"{len(alike)} of {len(texts)} values look like dates, such as {min(alike)}, unlike "
        f"{others[0]}: correct the others to have all used so"
    )


class _Number(NamedTuple):
    unit: str
    number: str


def _number_pattern(decimal: str, grouping: str) -> re.Pattern[str]:
    point = re.escape(decimal)
    grouped = rf"[1-9]\d{{0,2}}(?:(?P<mark>[{grouping}'’{_BLANK}])\d{{3}})(?:(?P=mark)\d{{3}})*"
    return re.compile(
        rf"(?P<sign>[+−-]?)\s*(?P<before>{_UNIT})?\s*(?P<inner>[+−-]?)"
        rf"(?:(?P<whole>{grouped}|\d+)(?:{point}(?P<part>\d*))?|{point}(?P<alone>\d+))"
        rf"(?P<power>[eE][+-]?\d+)?\s*(?P<after>{_UNIT}|%|{_LETTERS})?"
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


def _numbers(texts: list[str]) -> RecognisedNotation | None:
    ways = {}
    for decimal in (".", ","):
        read = [_read_number(text, decimal) for text in texts]
        units = {number.unit for number in read if number}
        if None not in read and len(units) == 1:
            values = [float(number.number) for number in read if number]
            unit = units.pop()
            # Letters behind a few whole numbers, such as 2wd and 4wd, are rather names.
            whole = len(texts) <= _FEW_CATEGORIES and all(value % 1 == 0 for value in values)
            if not (whole and unit and not re.fullmatch(f"{_UNIT}|%", unit)):
                ways[decimal] = unit, values
    if not ways:
        return None
    if len(ways) == 1 or ways["."][1] == ways[","][1]:
        decimal = next(iter(ways))
        return RecognisedNotation(NumberNotation(decimal, ways[decimal][0]))
    # Every mark has three digits behind it: these are thousands, or in percent thousandths.
    taken = (min if ways["."][0] == "%" else max)(ways, key=lambda way: sum(map(abs, ways[way][1])))
    other = "," if taken == "." else "."
    pairs = zip(texts, ways[taken][1], ways[other][1], strict=True)
    text, one, another = next(pair for pair in pairs if pair[1] != pair[2])
    doubt = f"{text!r} is taken as {one:g}, though it could be {another:g}"
    return RecognisedNotation(NumberNotation(taken, ways[taken][0]), doubt)


def _dates(texts: list[str]) -> RecognisedNotation | None:
    ways = [way for way in _DATES if all(DateNotation(way).plain(text) != text for text in texts)]
    if not ways:
        return None
    points = all(re.match(r"\d+\.", text) for text in texts)  # so the day is first
    doubt = ""
    if set(ways[:2]) <= set(_EITHER_WAY) and len(ways) > 1 and not points:
        doubt = f"no row tells days from months: {texts[0]!r} is taken with the day first"
    elif ways[0].endswith("year of two digits") and not ways[0].startswith("day, name"):
        doubt = f"{texts[0]!r} is taken as {DateNotation(ways[0]).plain(texts[0])}"
    return RecognisedNotation(DateNotation(ways[0]), doubt)


def _durations(texts: list[str]) -> RecognisedNotation | None:
    seconds = [seconds_of(text) for text in texts]
    if None in seconds:
        return None
    if any(re.search("d|^[+-]?P", text, re.IGNORECASE) for text in texts):  # or in ISO 8601
        return recognise_durations(seconds)
    of_day = all(0 <= (value or 0.0) < 86400 for value in seconds)
    return RecognisedNotation(DurationNotation("hours", of_day))
