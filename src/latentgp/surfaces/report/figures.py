"""Matplotlib's axes as SVG for a page: colours of the page, values where the pointer rests."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np

from latentgp.surfaces.evaluation.plots import drawing
from latentgp.surfaces.report.page import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as FigureOfPlots

WIDTH = 4.4  # inches: about what a phone shows
_SVG, _LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
# Colours by name, so that a page has them light and dark.
_COLOURS = {"#ffffff": "paper", "#000000": "ink"}
_COLOURS |= {
    getattr(drawing, name.upper()).lower(): name
    for name in ("blue", "orange", "green", "purple", "ink", "grey", "light")
}


def new_axes(height: float = 3.3) -> "Axes":
    """Axes of a figure as wide as a phone."""
    from matplotlib import figure

    return figure.Figure(figsize=(WIDTH, height), layout="constrained").add_subplot()


def picture(drawn: "Axes | FigureOfPlots", name: str, alt: str, caption: str) -> Figure:
    """A picture of axes, or of a figure; `alt` says what it shows, `name` is its own on the page.

    Markers and bars say their values where the pointer rests on them.
    """
    import matplotlib as mpl

    figure: Any = drawn.figure
    said = dict(_hover(figure))
    written = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _LINK)
    root = ElementTree.fromstring(written.getvalue())
    for child in list(root):  # rules of style would be those of the whole page
        if child.tag.endswith("metadata") or child.find(f"{{{_SVG}}}style") is not None:
            root.remove(child)
    for group in root.iter(f"{{{_SVG}}}g"):
        _title(group, said.get(group.get("id", ""), []))
    for unused in ("width", "height"):
        root.attrib.pop(unused)
    root.set("role", "img")
    root.set("aria-label", alt)
    text = ElementTree.tostring(root, encoding="unicode")
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)
    for colour, own in _COLOURS.items():
        text = re.sub(rf"{colour}\b", f"var(--{own})", text, flags=re.IGNORECASE)
    return Figure(text, caption)


def _hover(figure: Any) -> Iterator[tuple[str, list[str]]]:
    """Titles of markers and bars, by the group that holds them; names the groups."""
    number = 0
    for axes in figure.axes:
        x_name = (axes.get_xlabel() or "x").replace("\n", " ")
        y_name = (axes.get_ylabel() or "y").replace("\n", " ")
        for line in axes.get_lines():
            if line.get_marker() in ("None", None, "", " "):
                continue
            number += 1
            line.set_gid(f"markers{number}")
            x, y = line.get_xdata(orig=False), line.get_ydata(orig=False)
            tell_x, tell_y = axes.xaxis.get_major_formatter(), axes.yaxis.get_major_formatter()
            said = [
                f"{x_name}: {_told(tell_x, a)}\n{y_name}: {_told(tell_y, b)}"
                for a, b in zip(np.ravel(x), np.ravel(y), strict=True)
                if np.isfinite(a) and np.isfinite(b)
            ]
            yield f"markers{number}", said
        for bars in axes.containers:
            flat = getattr(bars, "orientation", "vertical") == "horizontal"
            for bar in bars.patches:
                number += 1
                bar.set_gid(f"bar{number}")
                value = bar.get_width() if flat else bar.get_height()
                yield f"bar{number}", [f"{x_name if flat else y_name}: {value:.4g}"]


def _told(formatter: Any, value: float) -> str:
    from matplotlib.dates import ConciseDateFormatter, num2date
    from matplotlib.ticker import FuncFormatter

    if isinstance(formatter, ConciseDateFormatter):
        return num2date(value).date().isoformat()
    if isinstance(formatter, FuncFormatter):  # of categories
        return str(formatter(float(round(value)), 0)).replace("\n", " ").replace(r"\$", "$")
    return f"{value:.4g}"


def _title(group: ElementTree.Element, said: list[str]) -> None:
    """Titles on the marks of a group, if they are as many as there are to say."""
    marks = list(group.iter(f"{{{_SVG}}}use")) or list(group.iter(f"{{{_SVG}}}path"))[:1]
    if len(marks) == len(said):
        for mark, words in zip(marks, said, strict=True):
            ElementTree.SubElement(mark, f"{{{_SVG}}}title").text = words
