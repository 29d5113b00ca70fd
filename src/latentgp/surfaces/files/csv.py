"""CSV for all readers: separator, names, missing values, types of columns."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute
from pyarrow import csv as reading

pc: Any = pyarrow.compute  # its functions are made when it is imported

MISSING_MARKERS = (
    *("", "?", "NA", "N/A", "n/a", "<NA>", "#N/A", "#NA", "NaN", "nan", "-NaN", "-nan", "NaT"),
    *("NULL", "Null", "null", "None"),
)
# What is missing among numbers, though a category may be called so.
GAPS_AMONG_NUMBERS = (
    *("-", "--", "---", "–", "—", ".", "..", "*", "missing", "unknown", "n.a."),
    *("#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#NULL!"),  # errors of spreadsheets
)


def _spaced(words: Iterable[str]) -> list[str]:
    """The words, and the words after the space that some write behind a separator."""
    return [f"{space}{word}" for word in words for space in ("", " ")]


_MISSING = _spaced(MISSING_MARKERS)
_TRUE, _FALSE = _spaced(["True", "TRUE", "true"]), _spaced(["False", "FALSE", "false"])
_BLOCK_BYTES = 8 << 20
CODE = r"0\d{2,}"  # of a post, say: as a number it would lose its zeros
# Long numbers would lose their last digits, and months such as 01.2020 their zeros.
KEPT_AS_TEXT = rf"(?:{CODE}|[+-]?\d{{16,}}|0[1-9]\.(?:19|20)\d\d)"


class Header(NamedTuple):
    """Header of a CSV file."""

    names: list[str]  # of its columns; one without a name is called as pandas calls it
    separator: str  # the one of comma, semicolon, tab and bar that the names use most
    before: int  # how many lines come before that of the names
    lines: int  # how many lines come before the first row
    has_rows: bool  # whether any row follows
    comments: bool = False  # whether lines that begin with # are none of the rows


def header_of(path: Path) -> Header:
    """Read how a CSV file begins.

    Blank lines, comments and the line sep=; of Excel may come before the header. The last comment
    is the header if it has a name for every field of the next line, of which some are numbers.
    UnicodeDecodeError of what is not UTF-8.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        before, comments, first, comment, separator = 0, 0, "", "", ""
        for first in file:
            told = re.fullmatch(r'"?sep=(.)"?', first.strip("\r\n"), re.IGNORECASE)
            if told and not before:
                separator = told[1]
            elif first.startswith("#"):
                comment, comments = re.sub(r"^#+\s+", "", first), comments + 1
            elif first.strip():
                break
            before += 1
        marks = separator or ",;\t|"
        separator = max(marks, key=re.sub(r'"[^"]*"', "", first).count)
        of_comment = max(marks, key=comment.count)
        heads, values = _fields(comment, of_comment), _fields(first, of_comment)
        numbers = any(re.fullmatch(r"\s*[+-]?[\d.,]*\d\s*(?:[eE][+-]?\d+)?\s*", v) for v in values)
        if comment and numbers and len(heads) == len(values):
            comments -= 1
            names, separator, lines, has_rows = heads, of_comment, before, True
        else:
            rows = csv.reader(chain([first], file), delimiter=separator, skipinitialspace=True)
            names = next(rows, [])
            lines, has_rows = before + rows.line_num, any(line.strip() for line in file)
    names = [name.strip() or f"Unnamed: {number}" for number, name in enumerate(names)]
    return Header(names, separator, before, lines, has_rows, comments > 0)


def _fields(line: str, separator: str) -> list[str]:
    return next(csv.reader([line.strip("\r\n")], delimiter=separator, skipinitialspace=True), [])


def batches_of(
    path: Path, header: Header, types: dict[str, pa.DataType]
) -> Iterator[pa.RecordBatch]:
    """The rows of a file, some megabytes at a time, in columns of these types."""
    if not header.has_rows:
        return
    yield from reading.open_csv(
        path,
        read_options=reading.ReadOptions(
            column_names=header.names,
            skip_rows=header.lines,
            block_size=_BLOCK_BYTES,
            use_threads=False,
        ),
        parse_options=reading.ParseOptions(
            delimiter=header.separator,
            newlines_in_values=True,
            invalid_row_handler=_skips_comments if header.comments else None,
        ),
        convert_options=reading.ConvertOptions(
            include_columns=list(types),
            column_types=types,
            null_values=_MISSING,
            strings_can_be_null=True,
            true_values=_TRUE,
            false_values=_FALSE,
        ),
    )


def _skips_comments(row: Any) -> str:
    return "skip" if str(row.text).startswith("#") else "error"


class Contents(NamedTuple):
    """Contents of a file."""

    rows: list[int]  # how many each piece has
    # as pandas would find them: whole numbers (without a gap), numbers, truth values, or text
    types: dict[str, pa.DataType]
    codes: frozenset[str] = frozenset()  # columns with a code, or numbers too long for a float


def contents_of(path: Path, header: Header) -> Contents:
    """Read all rows of a file for its contents."""
    rows, types = 0, dict.fromkeys(header.names, pa.null())
    codes, long = set[str](), set[str]()
    for batch in batches_of(path, header, dict.fromkeys(header.names, pa.string())):
        for name, texts in zip(header.names, batch.columns, strict=True):
            if pc.any(pc.match_substring_regex(texts, rf"^\s*{CODE}\s*$")).as_py():
                types[name] = pa.string()
                codes.add(name)
            if pc.any(pc.match_substring_regex(texts, rf"^\s*{KEPT_AS_TEXT}\s*$")).as_py():
                long.add(name)
            if types[name] != pa.string():
                here = _held_by(texts, may_be_whole=types[name] != pa.float64())
                types[name] = (wider(types[name], here) or pa.string()) if rows else here
        rows += batch.num_rows
    long = {name for name in long if types[name] == pa.float64()}
    return Contents([rows], types | dict.fromkeys(long, pa.string()), frozenset(codes | long))


def wider(one: Any, other: Any) -> Any:
    """Common type of two types, or None; whole numbers with gaps are none to pandas."""
    if one == other:
        return one
    kinds = {one, other} - {pa.null()}
    if len(kinds) == 1:
        (kind,) = kinds
        return pa.float64() if pa.types.is_integer(kind) else kind
    if kinds == {pa.string(), pa.large_string()}:
        return pa.large_string()
    if all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in kinds):
        return pa.from_numpy_dtype(np.promote_types(one.to_pandas_dtype(), other.to_pandas_dtype()))
    return None


def _held_by(texts: pa.StringArray, *, may_be_whole: bool) -> pa.DataType:
    if texts.null_count == len(texts):
        return pa.null()
    kinds = [pa.int64(), pa.float64()] if may_be_whole and not texts.null_count else [pa.float64()]
    for known, kind in product((texts, pc.ascii_trim_whitespace(texts)), kinds):
        with suppress(pa.ArrowInvalid):
            known.cast(kind)
            return kind
    truth = pc.all(pc.is_in(texts.drop_null(), value_set=pa.array(_TRUE + _FALSE))).as_py()
    return pa.bool_() if truth else pa.string()
