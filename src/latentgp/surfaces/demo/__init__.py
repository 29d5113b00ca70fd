"""Demonstration on three real data sets, each with its baselines."""

import time
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from latentgp._version import __version__
from latentgp.runtime.writing import written_whole
from latentgp.surfaces.demo.counts import counts
from latentgp.surfaces.demo.digits import digits
from latentgp.surfaces.demo.forecast import forecast
from latentgp.surfaces.demo.section import Section

__all__ = ["run_demo"]

_STYLE = """
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #262626;
       font: 16px/1.5 system-ui, sans-serif; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 3rem; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .8rem; border-bottom: 1px solid #e4e4e4; text-align: right; }
th:first-child, td:first-child { text-align: left; } tbody tr:first-child { font-weight: 600; }
figure { margin: 1.5rem 0; } img { max-width: 100%; } figcaption, .data { color: #5a5a5a; }
"""


def run_demo(folder: Path) -> Path:
    """Fit, score, print and draw; end with a web page, `index.html` in a folder that exists."""
    from rich.console import Console

    console = Console()
    started = time.perf_counter()
    sections = []
    for make in (forecast, digits, counts):
        with console.status("") as status:
            sections.append(make(folder, status.update))
        _print(console, sections[-1])
    seconds = time.perf_counter() - started
    page = write_page(folder, sections, seconds)
    console.print(
        f"Done in {seconds:.0f} s. First fits of latentgp include compilation; `again` is the same "
        f"fit with what was compiled. The page with pictures:"
    )
    console.print(f"  {page}", soft_wrap=True)
    return page


def _print(console: Any, section: Section) -> None:
    from rich.table import Table

    console.print(f"[bold]{section.title}[/bold]")
    console.print(section.data, highlight=False)
    table = Table(box=None, pad_edge=False)
    for number, heading in enumerate(section.headings):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    for cells in section.cells:
        table.add_row(*cells)
    console.print(table)
    console.print(section.lesson, highlight=False)
    console.print()


def write_page(folder: Path, sections: Sequence[Section], seconds: float) -> Path:
    """Write `index.html` with texts, tables and pictures, which lie in the same folder."""
    parts = "\n".join(_section(section) for section in sections)
    text = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>latentgp: what Gaussian processes are for</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>What Gaussian processes are for</h1>
<p>Three data sets, each with what people would otherwise take. All of it was fitted and drawn by
<code>latentgp demo</code>, version {__version__}, in {seconds:.0f} s on this machine. Scores are of
rows that the models did not see, and lower is better. NLPD is the negative log predictive density
(the log loss, where classes are predicted) in nats a row, CRPS the continuous ranked probability
score, ECE the expected calibration error, deviance that of Poisson counts. The first fit of
latentgp includes the compilation of its programs, which the same fit again does not need.</p>
{parts}
</body>
</html>
"""
    path = folder / "index.html"
    with written_whole(path) as partial:
        partial.write_text(text, encoding="utf-8")
    return path


def _section(section: Section) -> str:
    heading = "".join(f"<th>{escape(words)}</th>" for words in section.headings)
    rows = "\n".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
        for cells in section.cells
    )
    return f"""<h2>{escape(section.title)}</h2>
<p class="data">{escape(section.data)}</p>
<p>{escape(section.question)}</p>
<figure><img src="{escape(section.picture.name)}" alt="{escape(section.caption)}">
<figcaption>{escape(section.caption)}</figcaption></figure>
<table><thead><tr>{heading}</tr></thead>
<tbody>
{rows}
</tbody></table>
<p>{escape(section.lesson)}</p>"""
