"""Sections of texts, tables and figures, and their page, which needs nothing else to be shown."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from latentgp._version import __version__

_STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1f2328; --grey: #59636e;
  --light: #e1e4e8; --card: #f6f8fa; --blue: #0072b2; --orange: #c04f00; --green: #00815f;
  --purple: #a9538b; --good: #1a7f37; --look: #9a4a00; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181d; --ink: #e6edf3; --grey: #9aa6b2;
  --light: #30363d; --card: #1c2229; --blue: #56b4e9; --orange: #ff9a4d; --green: #3fc79a;
  --purple: #e3a6cc; --good: #57c97a; --look: #f0a35e; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem 1rem 4rem; max-width: 76rem; background: var(--paper);
  color: var(--ink); font: 16px/1.55 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 1rem 0 .3rem; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 0 0 .6rem; }
a { color: var(--blue); } a:focus-visible, summary:focus-visible, .scroll:focus-visible {
  outline: 3px solid var(--orange); outline-offset: 2px; }
.skip { position: absolute; left: -100vw; } .skip:focus { left: 1rem; background: var(--paper); }
nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; padding: .6rem 0;
  margin: 0; border-bottom: 1px solid var(--light); }
section { padding: 1.6rem 0 .4rem; border-bottom: 1px solid var(--light); }
p { max-width: 46rem; margin: .5rem 0; }
.figures { display: grid; gap: 1.2rem; margin: 1rem 0;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 21rem), 1fr)); }
figure { margin: 0; max-width: 31rem; } figure svg { display: block; width: 100%; height: auto; }
figure svg text { font-family: "DejaVu Sans", Verdana, Arial, sans-serif !important; }
figcaption, .caption, .lead { color: var(--grey); font-size: .92rem; }
.caption { margin: .8rem 0 -.5rem; }
.scroll { overflow-x: auto; margin: .8rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { padding: .25rem .8rem .25rem 0; text-align: right; border-bottom: 1px solid var(--light);
  white-space: nowrap; }
th { white-space: normal; vertical-align: bottom; min-width: 4.5rem; max-width: 16rem; }
th:first-child, td:first-child { text-align: left; white-space: normal; min-width: 6rem; }
.wordy { max-width: 60rem; } .wordy th, .wordy td { text-align: left; white-space: normal;
  vertical-align: top; overflow-wrap: anywhere; min-width: 5.5rem; }
pre { background: var(--card); padding: .8rem; border-radius: .4rem; overflow-x: auto;
  font-size: .85rem; line-height: 1.45; }
summary { cursor: pointer; color: var(--blue); }
.verdict { border-left: .3rem solid var(--good); background: var(--card); max-width: 52rem;
  padding: .5rem .8rem; margin: .6rem 0; border-radius: 0 .4rem .4rem 0; }
.verdict.look { border-color: var(--look); }
.verdict b { color: var(--good); } .verdict.look b { color: var(--look); }
@media print { nav, .skip { display: none; } section { break-inside: avoid; } }
"""


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


def page_of(title: str, lead: str, sections: Sequence[Section]) -> str:
    """The page of some sections, with a sentence below its title."""
    links = "".join(f'<li><a href="#{s.name}">{escape(s.title)}</a></li>' for s in sections)
    body = "\n".join(_section(section) for section in sections)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="latentgp {__version__}">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>{_STYLE}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the report</a>
<header><h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p></header>
<nav aria-label="Sections"><ul>{links}</ul></nav>
<main id="main">
{body}
</main>
</body>
</html>
"""


def _section(section: Section) -> str:
    inner = "\n".join(_blocks(section.blocks))
    return (
        f'<section id="{section.name}" aria-labelledby="{section.name}-title">\n'
        f'<h2 id="{section.name}-title">{escape(section.title)}</h2>\n{inner}\n</section>'
    )


def _blocks(blocks: Sequence[Block]) -> Iterator[str]:
    """Blocks in order; figures in a row share a grid."""
    for are_figures, group in itertools.groupby(blocks, lambda b: isinstance(b, Figure)):
        written = "\n".join(map(_block, group))
        yield f'<div class="figures">\n{written}\n</div>' if are_figures else written


def _block(block: Block) -> str:
    match block:
        case Text(words):
            return f"<p>{escape(words)}</p>"
        case Code(lines):
            return f"<pre tabindex=0>{escape(lines)}</pre>"
        case Verdict(good, words, remedy):
            kind, head = ("good", "Good") if good else ("look", "Look")
            remedy = f" {escape(remedy)}" if remedy and not good else ""
            return f'<div class="verdict {kind}"><b>{head}:</b> {escape(words)}{remedy}</div>'
        case Figure(svg, caption):
            return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"
        case Table():
            return _table(block)


def _table(table: Table) -> str:
    heads = "".join(f'<th scope="col">{escape(words)}</th>' for words in table.heads)
    rows = "\n".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
        for cells in table.rows
    )
    kind = ' class="wordy"' if table.wordy else ""
    label = f' aria-label="{escape(table.caption)}"'
    written = (
        f'<div class="scroll" tabindex=0><table{kind}{label}><thead><tr>{heads}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>"
    )
    if not table.folded:  # outside of what scrolls, so that a narrow screen shows it all
        caption = f'<p class="caption">{escape(table.caption)}</p>' if table.caption else ""
        return caption + written
    return f"<details><summary>{escape(table.caption)}</summary>{written}</details>"
