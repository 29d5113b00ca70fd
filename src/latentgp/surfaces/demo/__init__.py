"""Demonstration on three real data sets, each with its baselines."""

import time
from pathlib import Path
from typing import Any

from latentgp.surfaces.demo.counts import counts
from latentgp.surfaces.demo.digits import digits
from latentgp.surfaces.demo.forecast import forecast
from latentgp.surfaces.demo.page import write_page
from latentgp.surfaces.demo.section import Section

__all__ = ["run_demo"]


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
