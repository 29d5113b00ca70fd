"""Predictions of tables: columns of any type, encoded as in training, and CSV files."""

# pyright: reportArgumentType=false, reportOptionalOperand=false, reportOperatorIssue=false

from __future__ import annotations

import csv
import datetime
import re
import sys
import warnings
from pathlib import Path
from statistics import NormalDist
from types import SimpleNamespace

import numpy as np

from latentgp.surfaces.export.runtime.predictor import (
    ABOUT,
    PROGRAMS,
    TESTS,
    PredictorError,
    ask,
    deviation,
    difference,
    self_test,
    twice,
)
from latentgp.surfaces.files.csv import GAPS_AMONG_NUMBERS, KEPT_AS_TEXT, MISSING_MARKERS, header_of
from latentgp.surfaces.tables.formula.arithmetic import value_of
from latentgp.surfaces.tables.levels import (
    TRUTH,
    as_levels,
    filled,
    indicators,
    level_numbers,
    listed,
    refuse_infinite,
    refuse_others,
    rows_listed,
    series_numbers,
)
from latentgp.surfaces.tables.notation import DateNotation, DurationNotation, NumberNotation, iso_of
from latentgp.surfaces.tables.values import combined, parts_of_labels, text_of

# Copied from here.

InputError = PredictorError  # as what is taken from the library calls it
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
INFINITE = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
ISO = re.compile(
    r"(?P<year>\d{4})(?:-?(?P<month>\d{2})(?:-?(?P<day>\d{2}))?)?"
    r"(?:[T ](?P<hour>\d{2})(?::?(?P<minute>\d{2})(?::?(?P<second>\d{2})(?:\.(?P<part>\d+))?)?)?"
    r"\s*(?P<zone>Z|[+-]\d{2}(?::?\d{2})?)?)?"
)
SECOND = 10**9  # nanoseconds, in which dates are counted from 1970


def predict_table(columns, level=0.95):
    """Predictions, one a row of a table.

    Numbers and counts give "mean", "std", "lower" and "upper"; classes "prediction" and a
    "probability_" of each, of two with one latent function the ends of an interval of the
    second's, "probability_..._lower" and "probability_..._upper".

    Args:
        columns: values of each column by its name, such as lists; columns that the model does not
            use are ignored.
        level: probability that an interval holds.

    Raises:
        PredictorError: columns that are missing or do not hold what they held in training.
    """
    if np.ndim(level) or not 0 < level < 1:
        raise PredictorError(f"level must be strictly between 0 and 1, got {level}.")
    columns = checked_columns(columns)
    side = side_columns(columns)
    X = encode(columns)
    if ABOUT["classes"] is None:
        return of_numbers(X, side, level)
    return of_classes(X, level)


def of_numbers(X, side, level):
    """Mean, standard deviation and interval of a number or a count."""
    ends = np.array([(1 - level) / 2, (1 + level) / 2])
    found = ask(["moments", "quantiles"], X, side, ends)
    mean, variance = found["moments"]
    (ends,) = found["quantiles"]
    if not np.isfinite(variance).all():
        told("the standard deviation is infinite: go by the interval")
    return {"mean": mean, "std": np.sqrt(variance), "lower": ends[..., 0], "upper": ends[..., 1]}


def of_classes(X, level):
    """Label and probabilities of classes."""
    found = ask(["probabilities", "latent"], X, {})
    (probabilities,) = found["probabilities"]
    labels = np.asarray(ABOUT["classes"])
    pairs = zip(labels, probabilities.T)  # noqa: B905
    columns = {"prediction": labels[np.argmax(probabilities, axis=1)]}
    columns.update({f"probability_{label}": own for label, own in pairs})
    if ABOUT["second_class"]:
        mean, variance = (part[:, 0] for part in found["latent"])
        reach = NormalDist().inv_cdf((1 + level) / 2) * np.sqrt(variance)
        ends = np.sort([second_class(mean - reach), second_class(mean + reach)], axis=0)
        second = f"probability_{labels[1]}"
        columns[f"{second}_lower"], columns[f"{second}_upper"] = ends
    return columns


def second_class(f):
    """Probability of the second class at values of the latent function."""
    width = ABOUT["rows_at_once"]
    filled = np.pad(f, (0, -len(f) % width or width * (len(f) == 0)))
    with np.errstate(all="ignore"):
        parts = [PROGRAMS["second_class"](own)[0] for own in np.split(filled, len(filled) // width)]
    return np.concatenate(parts)[: len(f)]


def told(message, more=""):
    """Warn."""
    warnings.warn(message + more, UserWarning, stacklevel=2)


def checked_columns(columns):
    """Lists of equally many values by column."""
    found = {}
    for name, values in columns.items():
        if str(name) in found:
            raise PredictorError(f"the table has more than one column named '{name}': rename them")
        found[str(name)] = values_of(values)
    if not found:
        raise PredictorError("the table has no columns: pass at least one")
    if len({len(values) for values in found.values()}) > 1:
        raise PredictorError("the columns have different numbers of values: give one a row")
    return found


def values_of(values):
    """Values of a column as Python has them; missing ones are None."""
    kind = getattr(getattr(values, "dtype", None), "kind", "")
    if kind in ("m", "M"):
        times = np.asarray(values).astype(f"{kind}8[us]")
        return [None if np.isnat(value) else value.item() for value in times]
    plain = values.tolist() if hasattr(values, "tolist") else list(values)
    return [None if is_missing(value) else trimmed(value) for value in plain]


def is_missing(value):
    """Whether a value is None, NaN, not a time, or a text that stands for one."""
    if isinstance(value, str):
        return value.strip() in MISSING_MARKERS
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas' NA, of which nothing can be said
        return True


def trimmed(value):
    """Text without spaces around it, times of day as text; other values as they are."""
    if isinstance(value, datetime.time):
        return value.isoformat()
    return value.strip() if isinstance(value, str) else value


def side_columns(columns):
    """Side information of each row, by the likelihood's name for it."""
    side = {}
    for name, (column, without) in ABOUT["side_columns"].items():
        if column not in columns:
            if without is not None:
                told(f"the table has no column {column!r}: {without}")
            continue
        values = columns[column]
        gaps = sum(value is None for value in values)
        if gaps:
            raise PredictorError(
                f"the {name} column {column!r} is missing in {gaps} row(s): fill it"
            )
        try:
            side[name] = np.array([float(value) for value in values], dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise PredictorError(
                f"the {name} column {column!r} is not a number in every row ({error}): give a "
                "number in every row"
            ) from None
    return side


def encode(columns):
    """Columns as numbers, shape (N, D), as in training."""
    known, formula = [SimpleNamespace(**own) for own in ABOUT["encoder"]], ABOUT["formula"]
    names = [column.name for column in known] if formula is None else formula["columns"]
    absent = [name for name in names if name not in columns]
    if absent:
        raise PredictorError(
            f"the table lacks {len(absent)} column(s) "
            + ("that the model was trained on: " if formula is None else "of the formula: ")
            + f"add {listed(absent, at_most=20)}"
        )
    if formula is not None:
        return encode_formula(known, formula, columns)
    blocks = [encoded(column, columns[column.name]) for column in known]
    return np.concatenate(blocks, axis=1, dtype=np.float64)


def encoded(column, values):
    """A column as numbers, (N, 1) or more."""
    rows = np.arange(len(values))
    if column.kind == "number":
        values = in_plain_notation(values, column.notation)
        read = dates_in if column.source == "date" else numbers_in
        return filled(column, read(column, values, rows), rows, told)
    if column.kind == "category":
        texts = levels_in(values, (*column.categories, *column.others), column.gaps)
        return indicators(column, texts, rows, told)
    return series_numbers(column, levels_in(values, column.labels, column.gaps), told)


def levels_in(values, levels, gaps):
    """Texts of categories, as training has them."""
    texts = [None if value is None else text_of(value) for value in values]
    return as_levels(texts, levels, gaps)


def encode_formula(known, formula, columns):
    """Products of columns that have fixed effects, what other terms are of, and groups."""
    numbers = {}
    for column in known:
        if column.kind == "number":
            numbers[column.name,] = encoded(column, columns[column.name])[:, 0]
        elif column.kind == "levels":
            texts = levels_in(columns[column.name], column.levels, column.gaps)
            own = level_numbers(column, texts, told)
            for level in range(len(column.levels)):
                numbers[column.name, level] = (own == level).astype(np.float64)
    rows, found = len(next(iter(columns.values()))), []
    for product in formula["products"]:
        total = np.ones(rows)
        for text, steps in product:
            value = value_of(steps, lambda *which: numbers[which])
            wrong = np.flatnonzero(~np.isfinite(value)).tolist()
            if wrong:
                raise PredictorError(
                    f"{text!r} of the formula is not finite in {rows_listed(wrong)}"
                )
            total = total * value
        found.append(total)
    groups = [column for column in known if column.kind == "series"]
    for column, (together, place, gaps) in zip(groups, formula["groups"]):  # noqa: B905
        texts = []
        for names, own in zip(together, gaps):  # noqa: B905
            parts = zip(names, parts_of_labels(column.labels, len(names)), own)  # noqa: B905
            texts += combined([levels_in(columns[name], *more) for name, *more in parts])
        every = encoded(column, texts)
        found.append(np.split(every[:, 0], len(together))[place])
    return np.stack(found, axis=1) if found else np.zeros((rows, 0))


def in_plain_notation(values, notation):
    """Text as Python and ISO 8601 write it, durations as numbers."""
    kinds = {"number": NumberNotation, "date": DateNotation, "duration": DurationNotation}
    own = None if notation is None else kinds[notation[0]](*notation[1])

    def plain(value):
        if isinstance(value, datetime.timedelta):
            seconds = value.total_seconds()
            return own.number(seconds) if isinstance(own, DurationNotation) else seconds
        return own.plain(value) if isinstance(value, str) and own is not None else value

    return [plain(value) for value in values]


def numbers_in(column, values, rows):
    """Numbers, NaN where missing."""
    only_flags = all(isinstance(value, (bool, np.bool_)) for value in values)
    of_truth = column.source == "boolean" or only_flags
    values = [None if isinstance(v, str) and v in GAPS_AMONG_NUMBERS else v for v in values]
    found = [np.nan if value is None else as_number(value, of_truth) for value in values]
    wrong = np.array([number is None for number in found], dtype=bool)
    refuse_others(column.name, values, wrong, rows, "numeric", "numbers")
    numbers = np.array(found, dtype=np.float64)
    refuse_infinite(column.name, numbers, rows)
    return numbers


def as_number(value, of_truth=False):
    """A number, or None if it is none."""
    text = str(value)
    if of_truth and text.lower() in TRUTH:
        return float(TRUTH[text.lower()])
    return float(text) if NUMBER.fullmatch(text) or INFINITE.fullmatch(text) else None


def dates_in(column, values, rows):
    """Dates as numbers of the column's unit since its origin, NaN where missing."""
    unit = SECOND * (86400 if column.unit == "days" else 1)
    origin = nanoseconds(column.origin)
    found = [None if value is None else nanoseconds(value) for value in values]
    pairs = zip(values, found)  # noqa: B905
    wrong = np.array([value is not None and time is None for value, time in pairs], dtype=bool)
    refuse_others(column.name, values, wrong, rows, "a date", "dates as 2026-01-31")
    return np.array([np.nan if time is None else (time - origin) / unit for time in found])


def nanoseconds(value):
    """A date or time since 1970 in UTC; None if it is none."""
    found = ISO.fullmatch(iso_of(text_of(value)))
    if found is None:
        return None
    parts = [int(found[name] or least) for name, least in (("year", 0), ("month", 1), ("day", 1))]
    clock = [int(found[name] or 0) for name in ("hour", "minute", "second")]
    try:
        time = datetime.datetime(*parts, *clock)
    except ValueError:
        return None
    away = time - datetime.datetime(1970, 1, 1)
    whole = away.days * 86400 + away.seconds - zone_seconds(found["zone"])
    return whole * SECOND + int((found["part"] or "").ljust(9, "0")[:9])


def zone_seconds(zone):
    """Offset of a time zone from UTC, such as +01:30."""
    if zone in (None, "Z"):
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    return (-1 if zone[0] == "-" else 1) * (int(digits[:2]) * 3600 + int(digits[2:]) * 60)


def read_csv(path):
    """Columns of a CSV file, typed as pandas would."""
    path = Path(path)
    try:
        header = header_of(path)
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = csv.reader(file, delimiter=header.separator, skipinitialspace=True)
            rows = [row for row in lines if row and lines.line_num > header.lines]
            if header.comments:
                rows = [row for row in rows if not row[0].startswith("#")]
    except OSError as error:
        raise PredictorError(f"{path} cannot be read: {error}") from None
    except UnicodeDecodeError:
        raise PredictorError(f"{path} is not UTF-8 text: save it in that encoding") from None
    if not rows:
        raise PredictorError(f"{path} has a header but no rows: pass at least one row")
    names = header.names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise PredictorError(f"{path} has more than one column named {listed(twice)}: rename them")
    for number, row in enumerate(rows):
        if len(row) > len(names):
            raise PredictorError(
                f"{path} cannot be read as csv: row {number} has {len(row)} fields, but the header "
                f"has {len(names)}"
            )
    columns = zip(*(row + [""] * (len(names) - len(row)) for row in rows))  # noqa: B905
    as_text = ABOUT["read_as_text"]
    pairs = zip(names, columns)  # noqa: B905
    return {name: list(own) if name in as_text else typed(own) for name, own in pairs}


def typed(texts):
    """Numbers or truth values where all of a column's texts are; else the texts."""
    known = [text.strip() for text in texts if not is_missing(text)]
    if all(text in ("True", "TRUE", "true", "False", "FALSE", "false") for text in known):
        return [None if is_missing(text) else TRUTH[text.strip().lower()] for text in texts]
    codes = any(re.fullmatch(KEPT_AS_TEXT, text) for text in known)
    if codes or any(as_number(text) is None for text in known):
        return list(texts)
    return [None if is_missing(text) else as_number(text.strip()) for text in texts]


def table_deviation():
    """Largest difference from the library over the test rows as a table of columns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, near = twice(lambda: predict_table(ABOUT["test_columns"]))
    worst = 0.0 if list(found) == ABOUT["test_answers"] else np.inf
    for place, (name, values) in enumerate(found.items()):
        expected = TESTS[f"table_{place}"]
        if values.dtype.kind in "US":
            worst = max(worst, 0.0 if (values == expected).all() else np.inf)
        else:
            worst = max(worst, difference(values, expected, near[name]))
    return worst


def whole_deviation():
    """Largest difference from the library, of arrays and of the table."""
    return max(deviation(), table_deviation())


def main(arguments):
    """Predict a CSV file, or compare with the library."""
    warnings.showwarning = lambda message, *_: print(f"warning: {message}", file=sys.stderr)
    if arguments == ["--self-test"]:
        return self_test(whole_deviation)
    level = 0.95
    if len(arguments) == 3 and arguments[1] == "--level":
        level = as_number(arguments[2]) or 0.0
    elif len(arguments) != 1:
        print(f"usage: {sys.argv[0]} rows.csv [--level 0.95] | --self-test", file=sys.stderr)
        return 2
    try:
        found = predict_table(read_csv(arguments[0]), level)
    except PredictorError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(found)
    columns = [values.tolist() for values in found.values()]
    out.writerows(zip(*columns))  # noqa: B905
    return 0
