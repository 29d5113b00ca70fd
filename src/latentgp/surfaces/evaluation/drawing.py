"""Colours and axes that all pictures have in common."""

from __future__ import annotations

import textwrap
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
CURVES = (BLUE, ORANGE, GREEN, PURPLE)
DASHES = "-", "--", ":", "-."  # with colours tell more than four curves apart
MARKERS = "osD^vPX*"  # with colours tell more than four sets apart
INK, GREY, LIGHT = "#262626", "#6E6E6E", "#E4E4E4"
_LABEL_SIZE = 10  # points, Matplotlib's


def axes_of(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """The axes, or those of a new figure of so many inches."""
    if ax is not None:
        return ax
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained").add_subplot()


def tidy(ax: Axes, x_label: str, y_label: str) -> Axes:
    """Label the axes, in lines that fit, leave a light grid and no frame on top and right."""
    across, up = characters_along(ax)
    ax.set_xlabel(in_lines(x_label, across), color=INK, parse_math=False)
    ax.set_ylabel(in_lines(y_label, up), color=INK, parse_math=False)
    ax.grid(visible=True, color=LIGHT, linewidth=0.7)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(GREY)
    ax.tick_params(colors=INK, labelsize=9, color=GREY)
    return ax


def in_lines(label: str, characters: int) -> str:
    """A label in lines of so many characters, at most three for each line that it had."""
    wrap = partial(textwrap.wrap, width=characters, max_lines=3, placeholder=" …")
    return "\n".join(line for written in label.split("\n") for line in wrap(written))


def legend_style(**placement: Any) -> dict[str, Any]:
    """Arguments of a legend."""
    style = {"fontsize": 9, "labelcolor": INK, "frameon": True, "framealpha": 0.9}
    return {**style, "edgecolor": "none", "borderpad": 0.3, **placement}


def opacity(points: int) -> float:
    """From 0.9 for a few points down to 0.3 for ten thousand, so that crowds stay readable."""
    return 0.9 - 0.6 * float(np.clip(np.log10(max(points, 1) / 60) / 2.2, 0, 1))


def characters_along(ax: Axes) -> tuple[int, int]:
    """Number of characters of a label that fit along the axes, across and up."""
    sizes = np.array([ax.bbox.width, ax.bbox.height]) / ax.figure.dpi  # in inches
    across, up = np.maximum(sizes * 72 / (0.6 * _LABEL_SIZE), 8).astype(int).tolist()
    return across, up
