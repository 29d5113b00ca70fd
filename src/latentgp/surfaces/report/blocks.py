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
    """A judgement in words."""

    good: bool  # whether all is well
    words: str  # what was found
    remedy: str = ""  # what to do if not


class Table(NamedTuple):
    """Cells of text, a tuple a row."""

    heads: Sequence[str]  # of the columns
    rows: Sequence[Sequence[str]]  # cells
    caption: str = ""  # what is in it
    folded: bool = False  # whether it is shown on request only
    wordy: bool = False  # whether cells are words, which wrap, rather than numbers


class Figure(NamedTuple):
    """A picture."""

    svg: str  # element of a page
    caption: str  # what it shows, and what to look for


Block = Text | Code | Verdict | Table | Figure


class Section(NamedTuple):
    """Blocks under a title."""

    name: str  # distinct on the page, in letters and dashes
    title: str  # in a few words
    blocks: Sequence[Block]  # in their order
