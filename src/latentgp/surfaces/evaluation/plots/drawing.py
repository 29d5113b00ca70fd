"""Colours and axes that all pictures have in common."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentgp.errors import InputError
from latentgp.runtime.writing import check_writable, written_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
CURVES = (BLUE, ORANGE, GREEN, PURPLE)
DASHES = "-", "--", ":", "-."  # with colours tell more than four curves apart
MARKERS = "osD^vPX*"  # with colours tell more than four sets apart
INK, GREY, LIGHT = "#262626", "#6E6E6E", "#E4E4E4"
NORMAL_95 = 1.959963984540054  # the 97.5 % quantile of N(0, 1)
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


def save_figure(drawn: Axes | Figure, path: str | Path, *, dots_per_inch: int = 160) -> Path:
    """Save the figure of the axes, and return the path; its suffix is the format: png, pdf, svg.

    Args:
        drawn: axes or figure.
        path: where to; missing folders are made.
        dots_per_inch: resolution of pixel formats.

    Raises:
        InputError: if the ending is not a known format or the file cannot be written.

    Example:
        >>> import tempfile
        >>> save_figure(axes_of(None, (3, 2)), tempfile.mkdtemp() + "/axes.svg").suffix
        '.svg'
    """
    from matplotlib.figure import Figure

    path = check_picture_path(path)
    figure: Any = drawn if isinstance(drawn, Figure) else drawn.figure
    with written_whole(path) as partial:
        path.parent.mkdir(parents=True, exist_ok=True)
        kind = path.suffix[1:].lower()
        figure.savefig(partial, dpi=dots_per_inch, facecolor="white", format=kind)
    return path


def check_picture_path(path: str | Path) -> Path:
    """The path, if a picture can be written in the format of its ending; ask before long work.

    Raises:
        InputError: if Matplotlib does not know the ending, or the file cannot be written.

    Example:
        >>> check_picture_path("bands.svg").name
        'bands.svg'
    """
    from matplotlib.backend_bases import FigureCanvasBase

    path = Path(path)
    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        raise InputError(f"{path} has no picture's ending: use one of {', '.join(sorted(known))}")
    return check_writable(path, makes_folders=True)


def shortened(name: str, characters: int = 26) -> str:
    """A name in lines of so many characters, and with no mathematics between dollars."""
    return in_lines(name, characters).replace("$", r"\$")


def with_rows(ax: Axes, names: Sequence[str], x_label: str, y_label: str = "") -> Axes:
    """Tidy axes with a row for each name, from top to bottom."""
    tidy(ax, x_label, y_label)
    ax.set_yticks(np.arange(len(names)), [shortened(name) for name in names])
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
    return ax


def rows_height(names: Sequence[str], curves: int = 1) -> float:
    """Height in inches of a figure with a row for each name, and so many curves in a row."""
    lines = max((in_lines(name, 26).count("\n") + 1 for name in names), default=1)
    return 1.1 + max(len(names), 2) * max(0.28, 0.05 + 0.16 * lines, 0.1 * curves)


def legend_above(ax: Axes, **more: Any) -> None:
    """A legend that hides nothing, in as many columns as there is room for."""
    handles, names = ax.get_legend_handles_labels()
    across = characters_along(ax)[0]
    columns = min(max(1, across // (max(map(len, names)) + 6)), len(names), 5)
    above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": columns}
    written = [shortened(name, max(across - 6, 8)) for name in names]
    ax.legend(handles, written, **legend_style(**above, **more))


def in_days(dates: ArrayLike) -> NDArray[np.float64]:
    """Dates as Matplotlib counts them, NaN for what is missing."""
    from matplotlib.dates import date2num

    array = np.asarray(dates)
    there = array == array  # unlike pandas's NaT, of which Matplotlib makes no date
    days = np.full(array.shape, np.nan)
    days[there] = date2num(array[there])
    return days


def view_the_end(ax: Axes) -> None:
    """Cut the start of the curves where it would squeeze the rest into a fifth of the height."""
    runs = [np.asarray(line.get_ydata(), dtype=np.float64) for line in ax.get_lines()]
    runs = [run[np.isfinite(run)] for run in runs if np.isfinite(run).any()]
    if not runs:
        return
    top, bottom = max(run.max() for run in runs), min(run.min() for run in runs)
    end = min(run[run.size // 5 :].min() for run in runs)
    if end < top and top - bottom > 5 * (top - end):
        bottom = end
    ax.set_ylim(*with_margin(bottom, top))


def date_axis(ax: Axes) -> None:
    """Dates of the horizontal axis, written short."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(maxticks=7)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def with_margin(low: float, high: float) -> tuple[float, float]:
    """Ends of an axis a little beyond its values."""
    margin = 0.06 * (high - low) if high > low else 1.0
    return low - margin, high + margin
