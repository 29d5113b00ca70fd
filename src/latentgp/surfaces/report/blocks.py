"""Parts of a report: sections of texts, tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Text(NamedTuple):
    """A paragraph."""

    words: str


class Code(NamedTuple):
    """Lines to copy, or printed as they are."""

    lines: str


class Verdict(NamedTuple):
    """A judgement in words.

    Attributes:
        good: whether all is well.
        words: what was found.
        remedy: what to do if not.
    """

    good: bool
    words: str
    remedy: str = ""


class Table(NamedTuple):
    """Cells of text, a tuple a row.

    Attributes:
        heads: of the columns.
        rows: cells.
        caption: what is in it.
        folded: whether it is shown on request only.
        wordy: whether cells are words, which wrap, rather than numbers.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    folded: bool = False
    wordy: bool = False


class Figure(NamedTuple):
    """A picture.

    Attributes:
        svg: element of a page.
        caption: what it shows, and what to look for.
    """

    svg: str
    caption: str


Block = Text | Code | Verdict | Table | Figure


class Section(NamedTuple):
    """Blocks under a title.

    Attributes:
        name: distinct on the page, in letters and dashes.
        title: in a few words.
        blocks: in their order.
    """

    name: str
    title: str
    blocks: Sequence[Block]
