"""Reading and writing tables: CSV and Parquet."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from mmap import ACCESS_READ, mmap
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from latentgp.errors import InputError, in_a_line
from latentgp.runtime.writing import check_writable, written_whole
from latentgp.surfaces.files.csv import CODE, KEPT_AS_TEXT, MISSING_MARKERS, header_of
from latentgp.surfaces.files.pieces import kind_of, refuse_duplicates
from latentgp.surfaces.tables.values import pandas_of


def read_table(path: str | Path, as_text: Iterable[str] = ()) -> pd.DataFrame:
    r"""Read a CSV or Parquet file with a header into a data frame.

    CSV is UTF-8, separated by commas, semicolons, tabs or bars (whichever the header uses most),
    with a decimal point, double quotes around fields that need them, and any of `MISSING_MARKERS`,
    or nothing, for a missing value. A column with whole numbers that begin with zeros, such as
    01067, or have 16 digits and more, stays text. Lines that begin with # before the header are
    comments, as are such lines among the rows then.

    Args:
        path: file ending in .csv, .parquet or .pq.
        as_text: columns of CSV that stay text too.

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
    kind = kind_of(path)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise InputError(f"{path} {what}: pass the path of a CSV or Parquet file")
    try:
        frame = _read_csv(path, as_text) if kind == "csv" else _read_parquet(path)
    except InputError:
        raise
    except pd.errors.ParserWarning as error:
        raise InputError(
            f"{path} has rows with more fields than its header: begin with the line of names"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: save it in that encoding") from error
    except Exception as error:  # whatever pandas and Arrow make of damaged files
        raise InputError(f"{path} cannot be read as {kind}: {in_a_line(error)}") from error
    if len(frame) == 0:
        has = "has a header but no rows" if len(frame.columns) else "is empty"
        raise InputError(f"{path} {has}: pass a file with a header and at least one row")
    return frame


def write_table(frame: pd.DataFrame, path: str | Path) -> Path:
    r"""Write a data frame as CSV or Parquet, without its index, and return the path.

    Numbers keep all their digits. Missing folders are made. It is written whole or not at all.

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
    kind = kind_of(path)
    with written_whole(path, ValueError, TypeError) as partial:
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "csv":
            frame.to_csv(partial, index=False)
        else:
            frame.rename(columns=str).to_parquet(partial, index=False)
    return path


def check_table_path(path: str | Path, rows: Path) -> Path:
    """The path; InputError unless a table made of `rows` can be written there."""
    path = Path(path)
    kind_of(path)
    if rows.resolve() in (path.resolve(), *path.resolve().parents):
        raise InputError(
            f"predictions in {path} would be among the rows of {rows}: name a file elsewhere"
        )
    return check_writable(path, makes_folders=True)


def _read_csv(path: Path, as_text: Iterable[str]) -> pd.DataFrame:
    header = header_of(path)
    refuse_duplicates(header.names, path)
    if not header.has_rows:
        return pd.DataFrame(columns=header.names)
    comments = _comments_after(path, header.lines) if header.comments else []

    def read(text: Iterable[str]) -> pd.DataFrame:
        with warnings.catch_warnings():
            # pandas only warns when every row is longer than the header, and drops the rest.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.read_csv(
                path,
                sep=header.separator,
                encoding="utf-8-sig",
                skiprows=[*range(header.before), *comments],
                skipinitialspace=True,
                index_col=False,
                keep_default_na=False,
                na_values=list(MISSING_MARKERS),
                low_memory=False,
                dtype=dict.fromkeys(text, "str"),
                names=header.names,
                header=None if header.before == header.lines else 0,  # a comment has the names
            )

    frame = read(set(as_text) & set(header.names))
    if _may_hold_codes(path):
        numbers = frame.select_dtypes("number").columns
        as_written = read(numbers)
        for name in numbers:
            texts = as_written[name].str.strip()
            whole = pd.api.types.is_integer_dtype(frame[name].dtype)  # and has kept its digits
            if texts.str.fullmatch(CODE if whole else KEPT_AS_TEXT).any():
                frame[name] = texts
    return frame


def _comments_after(path: Path, line: int) -> list[int]:
    """Numbers of the lines from one on that begin with #."""
    with path.open("rb") as file:
        return [n for n, text in enumerate(file) if n >= line and text.startswith(b"#")]


def _may_hold_codes(path: Path) -> bool:
    """Whether any field of a file is one that stays text though it is of digits."""
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as text:
        return re.search(rb"[\s,;\"]" + KEPT_AS_TEXT.encode(), text) is not None


def _read_parquet(path: Path) -> pd.DataFrame:
    refuse_duplicates(pq.read_schema(path).names, path)  # Arrow cannot read such a table
    return pandas_of(pq.read_table(path))
