"""Pictures of the effects of groups in the order of their size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from latentgp.surfaces.coefficients import GroupEffects
from latentgp.surfaces.evaluation.plots.drawing import BLUE, GREY, INK, in_lines, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_NAMES = 40  # of groups, beyond which ranks alone are written


def caterpillar(
    effects: Mapping[str, GroupEffects],
    *,
    group: str = "group",
    level: float = 0.95,
    width: float = 6.4,
) -> Figure:
    """Draw the effects of groups from largest to smallest with their intervals, a panel an effect.

    Intervals that leave out zero are blue, others grey. Where they overlap the order of two groups
    is not known (Goldstein & Healy 1995). Above 40 groups ranks take the place of names.

    Args:
        effects: by name, as `group_effects` gives them.
        group: what the groups are.
        level: probability of the intervals.
        width: of the picture, in inches.

    Example:
        >>> own = GroupEffects(("a", "b"), np.array([0.2, 1.5]), np.array([0.4, 0.3]))
        >>> figure = caterpillar({"intercept": own}, group="clinic")
        >>> [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
        ['b', 'a']
    """
    from matplotlib import figure

    panels = {
        (name if own.estimate.ndim == 1 else f"{name} [{q}]"): (own, q)
        for name, own in effects.items()
        for q in range(own.estimate.reshape(len(own.names), -1).shape[1])
    }
    most = max(len(own.names) for own, _ in panels.values())
    named = most <= _MOST_NAMES
    height = 1.1 + (max(most, 2) * 0.24 if named else 4.4)
    drawn = figure.Figure(figsize=(width, height), layout="constrained")
    axes = np.ravel(drawn.subplots(1, len(panels)))
    for ax, (name, (own, q)) in zip(axes, panels.items(), strict=True):
        table = own.table(level).to_numpy().reshape(len(own.names), -1, 4)[:, q]
        order = np.argsort(-table[:, 0], kind="stable")
        places, (estimate, _, lower, upper) = np.arange(1, len(order) + 1), table[order].T
        apart = (lower > 0) | (upper < 0)
        colors = np.where(apart, BLUE, GREY).tolist()
        ax.axvline(0.0, color=INK, linewidth=0.9, zorder=1)
        ax.hlines(places, lower, upper, color=colors, linewidth=1.8 if named else 0.8, zorder=2)
        for color in dict.fromkeys(colors):
            own_color = np.array(colors) == color
            size = 4.5 if named else 2.0
            ax.plot(estimate[own_color], places[own_color], "o", color=color, markersize=size)
        tidy(ax, f"{name}, {100 * level:g} % interval", "")
        ax.set_ylim(len(order) + 0.5, 0.5)
        if named:
            names = [in_lines(own.names[place], 26).replace("$", r"\$") for place in order]
            ax.set_yticks(places, names)
            ax.grid(visible=False, axis="y")
            ax.tick_params(axis="y", length=0)
    if named:
        axes[0].set_ylabel(group, color=INK, parse_math=False)
    else:
        axes[0].set_ylabel(f"rank of {most} groups of {group}", color=INK, parse_math=False)
    return drawn
