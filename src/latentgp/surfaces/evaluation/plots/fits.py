"""Pictures of a run, of chains, and of several fits side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentgp.errors import InputError
from latentgp.surfaces.evaluation.metrics import (
    equally_long,
)
from latentgp.surfaces.evaluation.plots.drawing import (
    BLUE,
    CURVES,
    GREY,
    INK,
    axes_of,
    legend_above,
    legend_style,
    rows_height,
    tidy,
    view_the_end,
    with_rows,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_NAMES_AT = 4, -28, 36  # points above: neighbouring fits that are level keep apart


def learning_curve(
    ax: Axes | None,
    bound: ArrayLike,
    *,
    seconds: ArrayLike | None = None,
    label: str | None = None,
) -> Axes:
    """Draw the objective against time or evaluations; call again with the axes to compare runs.

    The view is on the end of the runs: a steep start may leave it at the bottom.

    Args:
        ax: axes to draw on, None for a new figure.
        bound: (evaluations,) objective after each evaluation, to be maximised, in nats.
        seconds: (evaluations,) seconds since the start; None counts evaluations from 1.
        label: legend entry of this run.

    Raises:
        InputError: if the arrays are not flat or differ in length.

    Example:
        >>> learning_curve(None, [-9.0, -2.0, -1.0]).get_xlabel()
        'evaluations of the objective'
    """
    seen = np.arange(1, np.size(bound) + 1) if seconds is None else seconds
    bound, at = equally_long(allow_infinity=True, bound=bound, seconds=seen)
    ax = axes_of(ax, (6.4, 3.8))
    color = CURVES[len(ax.get_lines()) % len(CURVES)]
    few = "o" if bound.size <= 40 else None
    ax.plot(at, bound, color=color, linewidth=1.6, marker=few, markersize=3.5, label=label)
    view_the_end(ax)
    if label is not None:
        ax.legend(**legend_style(loc="lower right"))
    x_label = "evaluations of the objective" if seconds is None else "time [s]"
    return tidy(ax, x_label, "log evidence bound [nats]")


def traces(ax: Axes | None, draws: ArrayLike, *, y_label: str = "hyper-parameter") -> Axes:
    """Draw the values of each chain in their order: chains that have mixed cannot be told apart.

    Args:
        ax: axes to draw on, None for a new figure.
        draws: (C, S) of C chains, S each, for instance of one of `posterior.hyperparameters`.
        y_label: what was drawn, with its unit.

    Raises:
        InputError: if the draws are not two-dimensional, are none, or hold NaN.

    Example:
        >>> draws = [[0.1, 0.4, 0.2], [0.3, 0.2, 0.5]]
        >>> traces(None, draws, y_label="length-scale [m]").get_ylabel()
        'length-scale [m]'
    """
    chains = _chains(draws)
    ax = axes_of(ax, (6.4, 3.8))
    for number, chain in enumerate(chains):
        style: dict[str, Any] = {"color": CURVES[number % len(CURVES)], "linewidth": 0.8}
        ax.plot(np.arange(chain.size), chain, alpha=0.75, label=f"chain {number}", **style)
    _with_legend_of_chains(ax, len(chains))
    return tidy(ax, "draw", y_label)


def ranks(
    ax: Axes | None,
    draws: ArrayLike,
    *,
    bins: int = 20,
    x_label: str = "rank of the draw among those of all chains",
) -> Axes:
    """Draw how the ranks of each chain's draws are spread (Vehtari et al. 2021, section 4.3).

    Ranks are among the draws of all chains. Of chains with one law they are uniform: the dashed
    line. A chain that stays high or low, or moves less than the others, leaves it.

    Args:
        ax: axes to draw on, None for a new figure.
        draws: (C, S) of C chains, S each.
        bins: number of equally wide bins.
        x_label: what the ranks are of.

    Raises:
        InputError: if the draws are not two-dimensional, are none, or hold NaN; fewer than one bin.

    Example:
        >>> ranks(None, [[0.1, 0.4, 0.2], [0.3, 0.2, 0.5]], bins=3).get_ylabel()
        'draws of the chain'
    """
    from scipy.stats import rankdata

    chains = _chains(draws)
    if bins < 1:
        raise InputError(f"bins must be at least 1, got {bins}: try 20")
    edges = np.linspace(0.5, chains.size + 0.5, bins + 1)
    order = rankdata(chains).reshape(chains.shape)
    ax = axes_of(ax, (6.4, 3.8))
    for number, chain in enumerate(order):
        counts = np.histogram(chain, edges)[0]
        style: dict[str, Any] = {"color": CURVES[number % len(CURVES)], "linewidth": 1.6}
        ax.stairs(counts, edges, label=f"chain {number}", **style)
    usual = chains.shape[1] / bins
    ax.axhline(usual, color=GREY, linestyle="--", linewidth=1.0, label="one law")
    ax.set_ylim(bottom=0.0)
    _with_legend_of_chains(ax, len(chains))
    return tidy(ax, x_label, "draws of the chain")


def comparison(
    ax: Axes | None,
    names: Sequence[str],
    scores: ArrayLike,
    standard_errors: ArrayLike,
    *,
    x_label: str = "negative log predictive density [nats a row]",
    bars: str = "two standard errors",
) -> Axes:
    """Draw a score of several contenders with bars of two standard errors, the first on top.

    Args:
        ax: axes to draw on, None for a new figure.
        names: (contenders,) of the contenders.
        scores: (contenders,) finite scores.
        standard_errors: (contenders,) theirs; NaN draws none.
        x_label: what the score is, with its unit.
        bars: what the bars are.

    Raises:
        InputError: if the arrays are not flat or differ in length.

    Example:
        >>> ax = comparison(None, ["ep", "laplace"], [0.31, 0.34], [0.01, 0.01])
        >>> [tick.get_text() for tick in ax.get_yticklabels()]
        ['ep', 'laplace']
    """
    errors = np.nan_to_num(np.asarray(standard_errors, float))
    scores, errors = equally_long(scores=scores, standard_errors=errors)
    if len(names) != scores.size:
        raise InputError(f"{len(names)} names and {scores.size} scores: pass one of each")
    ax = axes_of(ax, (7.2, 0.2 + rows_height(names)))
    places = np.arange(scores.size)
    style: dict[str, Any] = {"color": BLUE, "markersize": 5.5, "linewidth": 1.6, "zorder": 3}
    ax.errorbar(scores, places, xerr=2 * errors, fmt="o", **style)
    return with_rows(ax, names, f"{x_label}\nbars: {bars}")


def cost_front(
    ax: Axes | None,
    names: Sequence[str],
    seconds: ArrayLike,
    scores: ArrayLike,
    standard_errors: ArrayLike,
    *,
    y_label: str = "negative log predictive density [nats a row]",
    bars: str = "two standard errors",
) -> Axes:
    """Draw a score of several contenders against its cost, and the front of the best so far.

    Contenders on the front are in colour: every faster one has a worse score.

    Args:
        ax: axes to draw on, None for a new figure.
        names: (contenders,) of the contenders, written beside their points.
        seconds: (contenders,) positive costs.
        scores: (contenders,) finite scores, of which the lowest is best.
        standard_errors: (contenders,) theirs; NaN draws none.
        y_label: what the score is, with its unit.
        bars: what the bars are.

    Raises:
        InputError: if the arrays are not flat or differ in length.

    Example:
        >>> ax = cost_front(None, ["few", "many"], [2.0, 9.0], [0.4, 0.3], [0.01, 0.0])
        >>> ax.get_xlabel().splitlines()[0]
        'fit [s]'
    """
    errors = np.nan_to_num(np.asarray(standard_errors, float))
    seconds, scores, errors = equally_long(seconds=seconds, scores=scores, standard_errors=errors)
    if len(names) != scores.size:
        raise InputError(f"{len(names)} names and {scores.size} scores: pass one of each")
    from matplotlib.ticker import LogLocator

    ax = axes_of(ax, (7.2, 4.2))
    order = np.lexsort((scores, seconds))
    rank, best = np.argsort(order), np.minimum.accumulate(scores[order])
    front = order[np.concatenate([[True], best[1:] < best[:-1]])]
    ax.step(seconds[front], scores[front], where="post", color=BLUE, linewidth=1.2, zorder=2)
    for place, name in enumerate(names):
        color = BLUE if place in front else GREY
        at = seconds[place], scores[place]
        style: dict[str, Any] = {"color": color, "markersize": 6, "linewidth": 1.4, "zorder": 3}
        ax.errorbar(*at, yerr=2 * errors[place], fmt="o", **style)
        beside = 8, _NAMES_AT[rank[place] % len(_NAMES_AT)]
        words: dict[str, Any] = {"textcoords": "offset points", "xytext": beside, "zorder": 4}
        words["bbox"] = {"color": "white", "alpha": 0.8, "pad": 0.5, "linewidth": 0}
        ax.annotate(name, at, fontsize=9, color=INK if place in front else GREY, **words)
    ax.set_xscale("log")
    ax.set_xlim(seconds.min() / 1.3, seconds.max() * 2.5)  # room for names
    ax.margins(y=0.12)
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_locator(LogLocator(subs=()))
    return tidy(ax, f"fit [s]\nbars: {bars}", y_label)


def _chains(draws: ArrayLike) -> NDArray[np.float64]:
    """Draws (C, S), checked."""
    chains = np.asarray(draws, dtype=np.float64)
    if chains.ndim != 2 or not chains.size:
        raise InputError(
            f"draws has shape {chains.shape}: pass (chains, draws) of one number, such as one "
            "entry of an array"
        )
    if np.isnan(chains).any():
        raise InputError("draws holds NaN: pass numbers")
    return chains


def _with_legend_of_chains(ax: Axes, chains: int) -> None:
    ax.margins(x=0.01)
    if chains <= 2 * len(CURVES):
        legend_above(ax)
