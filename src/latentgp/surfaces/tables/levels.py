"""Texts and numbers of columns as encoded ones, by NumPy alone: exported files have these too."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentgp.errors import InputError

GAP = " missing"  # the level of missing values: no category begins with a space
TRUTH = {"true": True, "false": False, "1": True, "0": False}


def settled(texts: Iterable[str | None]) -> list[str | None]:
    """Texts of training where a truth value is one level, however it is written.

    Example:
        >>> settled(["True", "1", "false", None]), settled(["1", "0"])
        (['True', 'True', 'False', None], ['1', '0'])
    """
    texts = list(texts)
    written = {text for text in texts if text is not None}
    truths = {TRUTH.get(text.lower()) for text in written}
    if None in truths or len(truths) == len(written):
        return texts
    return [None if text is None else str(TRUTH[text.lower()]) for text in texts]


def as_levels(
    texts: Iterable[str | None], levels: Collection[str], gaps: Collection[str]
) -> list[str | None]:
    """Texts as the levels of training that they mean; of gaps None.

    Example:
        >>> as_levels(["True", "0", "2", "-"], ["0", "1"], ["-"])
        ['1', '0', '2', None]
    """
    truths = {TRUTH.get(level.lower()): level for level in levels if level != GAP}
    same = {} if None in truths else truths
    known = set(levels)

    def of(text: str | None) -> str | None:
        if text is None or text in gaps:
            return None
        return text if text in known else same.get(TRUTH.get(text.lower()), text)

    return [of(text) for text in texts]


def filled(
    column: Any, numbers: NDArray[np.float64], rows: Any, tell: Callable[[str, str], None]
) -> NDArray[np.float64]:
    """Numbers (N,) without gaps, beside marks of these if training had any; InputError of time."""
    missing = np.isnan(numbers)
    if missing.any() and column.required:
        raise InputError(
            f"the column of time {column.name!r} is missing in {rows_listed(rows[missing])}: "
            "fill it, or leave these rows out"
        )
    if missing.any() and not column.marks_missing:
        tell(
            f"column {column.name!r} is missing",
            f" in {rows_listed(rows[missing])} and never was in training: the training "
            f"median {column.median:g} is used",
        )
    found = np.where(missing, column.median, numbers)
    return np.stack([found, missing], axis=1) if column.marks_missing else found[:, None]


def indicators(
    column: Any, texts: Sequence[str | None], rows: Any, tell: Callable[[str, str], None]
) -> NDArray[np.float64]:
    """Zeros and ones (N, categories); a category unseen in training has only zeros."""
    number_of = {category: number for number, category in enumerate(column.categories)}
    number_of |= dict.fromkeys(column.others, len(column.categories))
    missing = np.array([text is None for text in texts], dtype=bool)
    numbers = np.array([number_of.get(text or "", -1) for text in texts], dtype=np.int64)
    known = numbers >= 0
    unseen = sorted({text for text in texts if text is not None and text not in number_of})
    if unseen:
        tell(
            f"column {column.name!r} holds categories that training never saw",
            f": {listed(unseen)}; their 0/1 columns are all zero",
        )
    if missing.any() and not column.marks_missing:
        tell(
            f"column {column.name!r} is missing",
            f" in {rows_listed(rows[missing])} and never was in training: its 0/1 "
            "columns are all zero there",
        )
    width = len(column.categories) + bool(column.others) + column.marks_missing
    encoded = np.zeros((len(texts), width))
    encoded[known, numbers[known]] = 1.0
    if column.marks_missing:
        encoded[missing, -1] = 1.0
    return encoded


def series_numbers(
    column: Any, texts: Iterable[str | None], tell: Callable[[str, str], None]
) -> NDArray[np.float64]:
    """Numbers of series (N, 1), further ones for those that training never saw."""
    number_of = {label: number for number, label in enumerate(column.labels)}
    named = [GAP if text is None else text for text in texts]
    unseen = sorted(set(named) - set(number_of))
    if GAP in unseen:
        _tell_gaps(column, named.count(GAP), "what is said of them is the prior", tell)
    if others := [text for text in unseen if text != GAP]:
        tell(
            f"column {column.name!r} holds {column.noun} that training never saw",
            f": {listed(others)}; what is said of them is the prior",
        )
    number_of |= {label: len(column.labels) + i for i, label in enumerate(unseen)}
    return np.array([number_of[text] for text in named], dtype=np.float64)[:, None]


def level_numbers(
    column: Any, texts: Sequence[str | None], tell: Callable[[str, str], None]
) -> NDArray[np.int64]:
    """Numbers of levels (N,); a gap and what training never saw are the first level."""
    number_of: dict[str | None, int] = {text: i for i, text in enumerate(column.levels)}
    gaps = sum(text is None for text in texts)
    if gaps:
        _tell_gaps(column, gaps, f"taken as {column.levels[0]!r}", tell)
    unseen = sorted({text for text in texts if text is not None and text not in number_of})
    if unseen:
        tell(
            f"column {column.name!r} holds categories that training never saw",
            f": {listed(unseen)}; they are taken as {column.levels[0]!r}",
        )
    return np.array([number_of.get(text, 0) for text in texts], np.int64)


def _tell_gaps(column: Any, rows: int, taken: str, tell: Callable[[str, str], None]) -> None:
    """Say of so many rows that they have gaps, which training had not."""
    tell(
        f"column {column.name!r} is missing",
        f" in {rows} row{'s' * (rows > 1)} and never was in training: {taken}",
    )


def refuse_others(
    name: Any, values: Any, wrong: NDArray[np.bool_], rows: Any, was: str, better: str
) -> None:
    """Raise InputError where values are of another kind than in training."""
    if wrong.any():
        example = values[int(np.flatnonzero(wrong)[0])]
        raise InputError(
            f"column {name!r} was {was} in training and holds {str(example)!r} in "
            f"{rows_listed(rows[wrong])}: give {better}, or leave the value empty"
        )


def refuse_infinite(name: Any, numbers: NDArray[np.float64], rows: Any) -> None:
    """Raise InputError where numbers are infinite."""
    infinite = np.isinf(numbers)
    if infinite.any():
        raise InputError(
            f"column {name!r} holds infinity in {rows_listed(rows[infinite])}: "
            "replace it by a finite number, or leave the value empty"
        )


def rows_listed(rows: Any) -> str:
    """Number of rows, and the table's label of the first of them."""
    names = listed([str(row) for row in rows], quoted=False)
    return f"{len(rows)} row{'s' if len(rows) > 1 else ''} (index {names})"


def listed(names: Iterable[str], at_most: int = 5, *, quoted: bool = True) -> str:
    """The first names of a list, for messages."""
    names = [f"{name!r}" if quoted else name for name in names]
    more = f" and {len(names) - at_most} more" if len(names) > at_most else ""
    return ", ".join(names[:at_most]) + more
