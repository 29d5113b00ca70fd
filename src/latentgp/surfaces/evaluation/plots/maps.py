"""Pictures of fields: variograms, maps of a posterior, of its draws and of residuals.

Their names are those of `latentgp.plots` too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray

from latentgp.errors import InputError
from latentgp.posteriors.posterior import Posterior
from latentgp.rows.arrays import as_inputs, evenly
from latentgp.surfaces.evaluation.metrics import equally_long
from latentgp.surfaces.evaluation.plots.drawing import (
    CURVES,
    GREY,
    INK,
    MARKERS,
    axes_of,
    legend_style,
    opacity,
    tidy,
)
from latentgp.typing import RandomKey

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from latentgp.extensions.fields.places import MapGrid, Places
    from latentgp.extensions.fields.variograms import ModelVariogram, Variogram

__all__ = ["field_draws", "field_maps", "maps", "residual_map", "variogram"]
_VALUES, _DEVIATIONS, _BOTH_SIGNS = "viridis", "Purples", "RdBu_r"
_CELLS, _DRAWN_CELLS, _DOTS = 3_600, 900, 5_000
_OBLONG = 6.0  # ratio of sides beyond which a map is drawn out of proportion


def variogram(
    ax: Axes | None,
    empirical: Variogram,
    fitted: ModelVariogram | None = None,
    *,
    robust: bool = False,
    band: tuple[ArrayLike, ArrayLike] | None = None,
    band_label: str = "95 % of tables that the model draws",
    x_label: str = "distance",
    y_label: str = "semivariance",
) -> Axes:
    """Draw an empirical variogram, the larger a point the more pairs, with that of a model.

    Args:
        ax: axes to draw on, None for a new figure.
        empirical: by `latentgp.fields.variogram`, of one direction or of several.
        fitted: by `latentgp.fields.model_variogram`, of the same directions.
        robust: whether the robust estimator is drawn, in place of the classical one.
        band: lower and upper ends at the distances of the first direction, shape (B,) each.
        band_label: its entry of the legend.
        x_label: name and unit of the distance.
        y_label: name and unit of half the squared difference.

    Raises:
        InputError: a model's variogram of other directions.

    Example:
        >>> import latentgp as lgp, numpy as np
        >>> places = np.random.default_rng(0).uniform(size=(50, 2))
        >>> found = lgp.fields.variogram(places, places[:, 0])
        >>> variogram(None, found, x_label="distance [km]").get_xlabel()
        'distance [km]'
    """
    if fitted is not None and not _same(empirical.directions, fitted.directions):
        raise InputError(
            f"The variograms have directions {empirical.directions} and {fitted.directions}; give "
            "model_variogram the directions= of the empirical one."
        )
    ax = axes_of(ax, (6.4, 3.8))
    gamma = empirical.robust if robust else empirical.classical
    several = empirical.directions is not None
    if band is not None:
        seen = empirical.pairs[0] > 0
        low, high = (np.asarray(end, np.float64)[seen] for end in band)
        shade: dict[str, Any] = {"color": GREY, "alpha": 0.2, "linewidth": 0, "label": band_label}
        ax.fill_between(empirical.distance[0][seen], low, high, **shade)
    for a, pairs in enumerate(empirical.pairs):
        color, marker = CURVES[a % len(CURVES)], MARKERS[a % len(MARKERS)]
        label = f"direction {empirical.directions[a]:g}°" if several else "rows"  # pyright: ignore
        size = 12 + 60 * pairs / max(int(empirical.pairs.max()), 1)
        dots = np.where(pairs > 0, gamma[a], np.nan)
        style: dict[str, Any] = {"color": color, "marker": marker, "linewidths": 0, "zorder": 3}
        ax.scatter(empirical.distance[a], dots, size, label=label, **style)
        if fitted is not None:
            name = None if several else "model"
            apart = fitted.distance > 0  # where the noise begins
            curve = fitted.distance[apart], fitted.gamma[a][apart]
            ax.plot(*curve, color=color, linewidth=1.8, label=name)
    if several and fitted is not None:
        ax.plot([], [], color=INK, linewidth=1.8, label="model")
    ax.set(xlim=(0, None), ylim=(0, None))
    ax.legend(**legend_style(loc="lower right"))
    said = x_label if empirical.is_whole else f"{x_label}\npairs drawn at random"
    return tidy(ax, said, y_label)


def maps(
    grid: MapGrid,
    panels: Mapping[str, ArrayLike],
    *,
    places: ArrayLike | None = None,
    degrees: bool = False,
    shared: bool = False,
    colours: Sequence[str] = (),
    labels: tuple[str, str] = ("east", "north"),
) -> Figure:
    """Draw values on a grid as maps side by side.

    Args:
        grid: by `latentgp.fields.grid_over`.
        panels: values at `grid.points` by their titles, shape (cells,) each.
        places: where rows are, shape (N, 2), drawn as dots; at most 5,000 of them.
        degrees: whether columns are longitude and latitude in degrees.
        shared: whether panels have one scale of colours.
        colours: Matplotlib's colour maps, one a panel; "viridis" unless given.
        labels: names and units of the columns of places.

    Raises:
        InputError: no panels, colour maps or values that are not one each.

    Example:
        >>> import latentgp as lgp, numpy as np
        >>> grid = lgp.fields.grid_over(np.array([[0.0, 0.0], [3.0, 1.0]]), cells=12)
        >>> values = grid.points[:, 0]
        >>> len(maps(grid, {"east": values, "its square": values**2}).axes)
        2
    """
    from matplotlib.figure import Figure

    if not panels or 0 < len(colours) < len(panels):
        raise InputError(
            f"maps needs panels and a colour map for each, got {len(panels)} and {len(colours)}."
        )
    shape = _shape(grid, degrees)
    across = min(len(panels), 4)
    down = -(-len(panels) // across)
    wide = 4.6 if across <= 2 else 3.2
    figure = Figure(figsize=(wide * across, down * (0.9 + wide * shape)), layout="constrained")
    every = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)
    shown = [grid.values(np.asarray(values)) for values in panels.values()]
    ends = (min(map(np.nanmin, shown)), max(map(np.nanmax, shown))) if shared else (None, None)
    for number, (name, values) in enumerate(zip(panels, shown, strict=True)):
        ax, colour = every.flat[number], colours[number] if colours else _VALUES
        image = map_on(ax, grid, values, degrees=degrees, ends=ends, colour=colour, places=places)
        left, bottom = number % across == 0, number + across >= len(panels)
        tidy(ax, labels[0] if bottom else "", labels[1] if left else "")
        ax.grid(visible=False)
        ax.set_title(name, loc="left", fontsize=10, color=INK)
        if not shared or number % across == across - 1 or number == len(panels) - 1:
            scale(image, ax)
    for ax in every.flat[len(panels) :]:
        ax.set_axis_off()
    return figure


def field_maps(
    posterior: Posterior,
    X: Any,
    *,
    columns: tuple[int, int] | None = None,
    degrees: bool | None = None,
    cells: int = _CELLS,
    labels: tuple[str, str] = ("east", "north"),
    name: str = "f",
) -> Figure:
    """Draw posterior mean and standard deviation of the latent function as maps side by side.

    Places are the two columns that a stationary part of the kernel reads, on a plane or, by
    `OnSphere`, in degrees; further columns are at their medians. Cells far from all rows are empty.

    Args:
        posterior: with one latent function; of several the first is drawn.
        X: inputs of the rows, shape (N, D).
        columns: numbers of the columns of places, where the kernel does not tell.
        degrees: whether these are longitude and latitude, where the kernel does not tell.
        cells: about so many.
        labels: names and units of the columns of places.
        name: of the latent function.

    Raises:
        InputError: no columns are given, and no part of the kernel reads exactly two; columns that
            there are not; degrees that are none.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> places = np.random.default_rng(0).uniform(size=(30, 2))
        >>> model = lgp.LatentGP(lgp.RBF(0.5), lgp.Gaussian(0.01))
        >>> fit = lgp.fit(model, lgp.Data(places, places[:, 0]), key=jax.random.key(0))
        >>> [ax.get_title(loc="left") for ax in field_maps(fit.posterior, places).axes[:2]]
        ['mean of f', 'standard deviation of f']
    """
    X = as_inputs(X)
    places = _places(posterior, X, columns, degrees)
    grid, rows = _rows_on_grid(places, X, cells)
    mean, variance = (a.reshape(len(rows), -1)[:, 0] for a in posterior.predict_f(rows))
    panels = {f"mean of {name}": mean, f"standard deviation of {name}": np.sqrt(variance)}
    return maps(
        grid,
        panels,
        places=X[:, places.columns],
        degrees=places.degrees,
        colours=(_VALUES, _DEVIATIONS),
        labels=labels,
    )


def field_draws(
    posterior: Posterior,
    X: Any,
    *,
    key: RandomKey,
    number: int = 4,
    columns: tuple[int, int] | None = None,
    degrees: bool | None = None,
    cells: int = _DRAWN_CELLS,
    labels: tuple[str, str] = ("east", "north"),
) -> Figure:
    """Draw maps that the posterior holds possible side by side: joint draws on a grid.

    The mean is smoother than each of them: it is no map that may be.

    Args:
        posterior: with one latent function; of several the first is drawn.
        X: inputs of the rows, shape (N, D).
        key: random key.
        number: of draws.
        columns: as `field_maps`.
        degrees: as `field_maps`.
        cells: about so many; joint draws cost their third power.
        labels: names and units of the columns of places.

    Raises:
        InputError: as `field_maps`.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> places = np.random.default_rng(0).uniform(size=(30, 2))
        >>> model = lgp.LatentGP(lgp.RBF(0.5), lgp.Gaussian(0.01))
        >>> fit = lgp.fit(model, lgp.Data(places, places[:, 0]), key=jax.random.key(0))
        >>> drawn = field_draws(fit.posterior, places, key=jax.random.key(1), number=2, cells=25)
        >>> len(drawn.axes)
        2
    """
    X = as_inputs(X)
    places = _places(posterior, X, columns, degrees)
    grid, rows = _rows_on_grid(places, X, cells)
    draws = posterior.sample_f(rows, key=key, number=number).reshape(number, len(rows), -1)
    panels = {f"draw {s + 1}": draw for s, draw in enumerate(draws[:, :, 0])}
    return maps(grid, panels, degrees=places.degrees, shared=True, labels=labels)


def residual_map(
    ax: Axes | None,
    places: ArrayLike,
    residuals: ArrayLike,
    *,
    degrees: bool = False,
    label: str = "residual [standard deviations]",
    labels: tuple[str, str] = ("east", "north"),
) -> Axes:
    """Draw residuals at their places, red above and blue below the prediction.

    Patches of one colour are what the model has missed. At most 5,000 rows are drawn, evenly
    spaced among all, which the axis says.

    Args:
        ax: axes to draw on, None for a new figure.
        places: of the rows, shape (N, 2).
        residuals: targets less predictions, shape (N,).
        degrees: whether columns are longitude and latitude in degrees.
        label: what the residuals are, and their unit.
        labels: names and units of the columns of places.

    Raises:
        InputError: arrays of other shapes, or with NaN.

    Example:
        >>> residual_map(None, [[0.0, 0.0], [1.0, 2.0]], [-1.0, 0.5]).get_xlabel()
        'east'
    """
    points = as_inputs(places, "places")
    first, second, residuals = equally_long(
        east=points[:, 0], north=points[:, -1], residuals=residuals
    )
    drawn = evenly(len(residuals), _DOTS)
    ax = axes_of(ax, (5.6, 4.4))
    largest = max(float(np.quantile(np.abs(residuals), 0.98)), 1e-12)
    order = drawn[np.argsort(np.abs(residuals[drawn]), kind="stable")]  # the largest on top
    image = ax.scatter(
        first[order],
        second[order],
        c=residuals[order],
        s=8 + 30 * opacity(len(drawn)) ** 2,
        cmap=_BOTH_SIGNS,
        vmin=-largest,
        vmax=largest,
        edgecolors=GREY,
        linewidths=0.3,
    )
    ax.set_aspect(_aspect(np.ptp(first), np.ptp(second), float(np.mean(second)), degrees))
    scale(image, ax, label, extend="both")
    some = f"\n{len(drawn):,} of {len(residuals):,} rows" if len(drawn) < len(residuals) else ""
    return tidy(ax, f"{labels[0]}{some}", labels[1])


def map_on(
    ax: Axes,
    grid: MapGrid,
    values: Float[NDArray, "H W"],
    *,
    degrees: bool = False,
    ends: tuple[float | None, float | None] = (None, None),
    colour: str = _VALUES,
    places: ArrayLike | None = None,
) -> Any:
    """Draw values of cells on axes, and dots where rows are; the image."""
    half = [(own[-1] - own[0]) / max(len(own) - 1, 1) / 2 for own in (grid.across, grid.up)]
    half = [own or max(half) or 0.5 for own in half]  # of places in a line, or one
    sides = (grid.across[0], grid.across[-1]), (grid.up[0], grid.up[-1])
    extent: Any = [
        end + sign * by
        for by, own in zip(half, sides, strict=True)
        for end, sign in zip(own, (-1, 1), strict=True)
    ]
    aspect = _aspect(extent[1] - extent[0], extent[3] - extent[2], float(np.mean(grid.up)), degrees)
    image = ax.imshow(
        values,
        cmap=colour,
        vmin=ends[0],
        vmax=ends[1],
        origin="lower",
        extent=extent,
        aspect=aspect,
        interpolation="nearest",
    )
    if places is not None:
        rows = as_inputs(places, "places")
        rows = rows[evenly(len(rows), _DOTS)]
        east = grid.across[0] + (rows[:, 0] - grid.across[0]) % 360 if degrees else rows[:, 0]
        size = 0.6 + 1.6 * opacity(len(rows)) ** 2
        ax.plot(east, rows[:, 1], "o", color=INK, markersize=size, markeredgewidth=0, alpha=0.5)
        ax.set(xlim=extent[:2], ylim=extent[2:])
    return image


def _same(one: NDArray | None, other: NDArray | None) -> bool:
    if one is None or other is None:
        return one is other
    return np.shape(one) == np.shape(other) and np.allclose(one, other)


def _aspect(wide: float, tall: float, north: float, degrees: bool) -> Any:
    """Height over width of a unit; "auto" of a map that would be a line."""
    up = 1 / max(math.cos(math.radians(north)), 0.05) if degrees else 1.0
    sides = sorted([max(wide, 1e-300), max(tall * up, 1e-300)])
    return up if sides[1] < _OBLONG * sides[0] else "auto"


def _shape(grid: MapGrid, degrees: bool) -> float:
    """Height over width of a panel."""
    wide, tall = np.ptp(grid.across), np.ptp(grid.up)
    aspect = _aspect(wide, tall, float(np.mean(grid.up)), degrees)
    return (
        0.75 if aspect == "auto" else float(np.clip(tall * aspect / max(wide, 1e-300), 0.35, 1.6))
    )


def scale(image: Any, ax: Any, label: str = "", **more: Any) -> None:
    """A scale of colours as high as the map beside it."""
    bar = ax.figure.colorbar(image, cax=ax.inset_axes((1.02, 0.0, 0.03, 1.0)), label=label, **more)
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=INK, labelsize=9, color=GREY)
    bar.ax.yaxis.label.set_color(INK)


def _places(
    posterior: Posterior, X: NDArray, columns: tuple[int, int] | None, degrees: bool | None
) -> Places:
    """The places of a model, or those columns."""
    from latentgp.extensions.fields.places import Places, places_of

    kernel = posterior.model.of_inputs
    found = places_of(kernel, X.shape[1])
    if columns is not None and not 0 <= min(columns) <= max(columns) < X.shape[1]:
        raise InputError(f"columns must be two of the {X.shape[1]} inputs, got {columns!r}.")
    if columns is not None:
        return Places(columns, found.kernel if found else kernel, bool(degrees))  # pyright: ignore
    if found is None:
        raise InputError(
            f"No part of the kernel {kernel!r} reads exactly two columns as places; give columns=, "
            "the numbers of those of east and north, or of longitude and latitude with "
            "degrees=True."
        )
    return found if degrees is None else found._replace(degrees=degrees)


def _rows_on_grid(
    places: Places, X: Float[NDArray, "N D"], cells: int
) -> tuple[MapGrid, Float[NDArray, "cells D"]]:
    """A grid over the places, and rows at its points with further columns at their medians."""
    from latentgp.extensions.fields.places import grid_over

    grid = grid_over(X[:, places.columns], cells=cells, degrees=places.degrees)
    rows = np.repeat(np.median(X, axis=0)[None], len(grid.points), axis=0)
    rows[:, places.columns] = grid.points
    return grid, rows
