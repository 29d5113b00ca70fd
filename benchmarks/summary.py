"""Draw `results/summary.csv`: how many times as fast as the best peer, a task a line.

The file has the figures of `docs/benchmarks.md`. `latentgp` and `peer_value` are in `unit`; without
`latentgp`, the peer's score was not reached. `ratio` is given where the script prints it as the
median of turns, and is the quotient of the two elsewhere. `fit` is "first" where compilation
counts. `peer` is the one that was there first.
"""

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from latentgp import plots
from latentgp.surfaces.evaluation.plots import drawing

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "summary.csv"
PICTURE = HERE.parent / "docs" / "images" / "benchmarks.png"
LOWEST, HIGHEST = 0.002, 200.0
MARKERS = {"compiled": drawing.BLUE, "first": "white"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=PICTURE)
    with RESULTS.open(newline="") as file:
        figure = drawn(list(csv.DictReader(file)))
    print(plots.save_figure(figure, parser.parse_args().out, dots_per_inch=100))


def ratio(row: dict[str, str]) -> float | None:
    """How many times as fast as the peer; None where its score was not reached."""
    if row["ratio"]:
        return float(row["ratio"])
    if not row["latentgp"]:
        return None
    quotient = float(row["peer_value"]) / float(row["latentgp"])
    return quotient if row["unit"] == "s" else 1 / quotient


def drawn(rows: Sequence[dict[str, str]]) -> Figure:
    lines = list(dict.fromkeys((row["section"], row["task"], row["peer"]) for row in rows))
    sections = list(dict.fromkeys(section for section, _, _ in lines))
    # A line for each section's name, one for each of its tasks.
    places: dict[Any, int] = {}
    for section in sections:
        for key in (section, *(line for line in lines if line[0] == section)):
            places[key] = len(places)
    figure = Figure(figsize=(10.0, 0.19 * len(places) + 1.2), layout="constrained")
    ax = figure.add_subplot()
    ax.axvspan(LOWEST, 1.0, color=drawing.LIGHT, alpha=0.5, linewidth=0)
    ax.axvline(1.0, color=drawing.INK, linewidth=1.0)
    style: dict[str, Any] = {"linestyle": "none", "color": drawing.BLUE, "zorder": 3}
    for row in rows:
        place, times = places[row["section"], row["task"], row["peer"]], ratio(row)
        if times is None:
            ax.plot(LOWEST * 1.25, place, "x", markersize=6, **{**style, "color": drawing.ORANGE})
        else:
            fill = MARKERS[row["fit"]]
            ax.plot(times, place, "o", markersize=5.5, markerfacecolor=fill, **style)
    for (_, _, peer), place in ((key, place) for key, place in places.items() if key in lines):
        ax.text(HIGHEST * 1.15, place, peer, fontsize=7.5, va="center", color=drawing.GREY)
    ax.text(HIGHEST * 1.15, -1, "peer", fontsize=7.5, va="center", color=drawing.INK)
    ax.set_yticks(list(places.values()), [key if key in sections else key[1] for key in places])
    for label, key in zip(ax.get_yticklabels(), places, strict=True):
        label.set(fontsize=7.5, fontweight="bold" if key in sections else "normal")
    ax.set(xscale="log", xlim=(LOWEST, HIGHEST), ylim=(len(places) - 0.3, -0.7))
    ticks = [0.01, 0.1, 1, 10, 100]
    ax.set_xticks(ticks, [f"{tick:g}x" for tick in ticks])
    for kind, fill in MARKERS.items():
        label = "compiled" if kind == "compiled" else "first fit, with compilation"
        ax.plot([], [], "o", markersize=5.5, markerfacecolor=fill, label=label, **style)
    missed = {**style, "color": drawing.ORANGE}
    ax.plot([], [], "x", markersize=6, label="the peer's score not reached", **missed)
    ax.legend(**drawing.legend_style(loc="center left", fontsize=8))
    drawing.tidy(ax, "speed of latentgp / speed of the best peer", "")
    ax.tick_params(axis="y", length=0, labelsize=7.5)
    return figure


if __name__ == "__main__":
    main()
