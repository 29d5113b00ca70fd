"""Maps of rows that have places, their residuals and their variogram."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from latentgp.errors import InputError
from latentgp.extensions import present
from latentgp.kernels.per_latent import OwnKernels
from latentgp.kernels.sphere import along_surface, on_unit_sphere
from latentgp.likelihoods import Gaussian
from latentgp.rows.arrays import evenly
from latentgp.runtime.x64 import double_precision
from latentgp.surfaces.evaluation import plots
from latentgp.surfaces.evaluation.plots.drawing import tidy
from latentgp.surfaces.evaluation.plots.maps import map_on, scale
from latentgp.surfaces.report.figures import new_axes, picture
from latentgp.surfaces.report.judged import Assessment
from latentgp.surfaces.report.page import Block, Section

_CELLS, _DRAWN_CELLS, _DOTS = 1_200, 400, 800
_PAIRED, _TABLES, _BINS = 400, 99, 12  # rows and tables of the variogram, and its bins
_OF_MANY = "exposure", "trials", "noise_variance"


def places(judged: Assessment) -> Section | None:
    """Maps, residuals and variogram; None of rows without places."""
    if "fields" not in present():
        return None
    from latentgp.extensions.fields import Places, places_of

    X, fitted = judged.X, judged.model.estimator.model_
    found: Places | None = places_of(fitted.of_inputs, X.shape[1])
    if found is None or judged.y.ndim != 1:
        return None
    names = judged.model.encoder.feature_names
    labels = names[found.columns[0]], names[found.columns[1]]
    blocks: list[Block] = [*_maps(judged, found, labels), *_residuals(judged, found, labels)]
    blocks += _variogram(judged, found)
    return Section("places", "How does it look on a map?", blocks)


def _maps(judged: Assessment, found: Any, labels: tuple[str, str]) -> list[Block]:
    """Prediction, standard deviation and draws of the latent function on a grid."""
    from latentgp.extensions.fields import grid_over

    model, posterior, X = judged.model, judged.model.estimator.posterior_, judged.X
    own = list(found.columns)
    others = [d for d in range(X.shape[1]) if d not in own]
    off = np.abs(X - np.median(X, axis=0)) / np.maximum(np.std(X, axis=0), 1e-300)
    row = int(np.argmin(off[:, others].sum(axis=1)))  # a row, so that its categories are ones

    def gridded(cells: int) -> tuple[Any, Float[np.ndarray, "cells D"]]:
        grid = grid_over(X[:, own], cells=cells, degrees=found.degrees)
        rows = np.repeat(X[row][None], len(grid.points), axis=0)
        rows[:, own] = grid.points
        return grid, rows

    grid, rows = gridded(_CELLS)
    known = judged.data.side_information
    side = {n: np.full(len(rows), np.median(known[n])) for n in _OF_MANY if n in known}
    blocks: list[Block] = []
    held = f"; other columns are those of row {judged.frame.index[row]}" if others else ""
    held += "".join(f", {name} {values[0]:g}" for name, values in side.items())
    predictive = posterior.predict(rows, **side)
    if judged.classes is not None:
        k = _class(judged)
        shown, what = predictive.probabilities[:, k], model.probability_of(judged.classes[k])
    else:
        shown, what = predictive.mean, model.response
    deviation = np.sqrt(posterior.predict_f(rows).variance.reshape(len(rows), -1)[:, 0])
    unit = f", in the unit of {model.target}" if _is_gaussian(judged) else ""
    for name, values, colour, words, more in (
        ("map", shown, "viridis", f"Prediction of {what}", f"{held}; dots are rows"),
        (
            "map-deviation",
            deviation,
            "Purples",
            "Standard deviation of the latent function f",
            f"{unit}: dark where rows say little",
        ),
    ):
        axes = new_axes(3.9)
        image = map_on(
            axes,
            grid,
            grid.values(values),
            degrees=found.degrees,
            colour=colour,
            places=X[evenly(len(X), _DOTS)][:, own],
        )
        scale(image, axes)
        tidy(axes, *labels).grid(visible=False)
        blocks.append(picture(axes, name, f"{words} on a map.", f"{words}{more}."))
    grid, rows = gridded(_DRAWN_CELLS)
    try:
        drawn = posterior.sample_f(rows, key=jax.random.key(0), number=2)
    except InputError:
        return blocks
    panels = {f"draw {s + 1}": f for s, f in enumerate(drawn.reshape(2, len(rows), -1)[..., 0])}
    figure = plots.maps(grid, panels, degrees=found.degrees, shared=True, labels=labels)
    words = "Two maps of f that the model holds possible"
    more = "the prediction is smoother than any of them, and what both have is known"
    blocks.append(picture(figure, "map-draws", f"{words}.", f"{words}: {more}."))
    return blocks


def _residuals(judged: Assessment, found: Any, labels: tuple[str, str]) -> list[Block]:
    """Residuals at their places."""
    if judged.probabilities is not None and judged.classes is not None:
        k = _class(judged)
        values = (judged.y == judged.classes[k]) - judged.probabilities[:, k]
        label = f"{judged.model.target} = {judged.classes[k]}, less its probability"
    elif judged.mean is not None and judged.std is not None:
        values = np.where(judged.uncensored, (judged.y - judged.mean) / judged.std, np.nan)
        label = "residual [standard deviations]"
    else:
        return []
    drawn = np.flatnonzero(np.isfinite(values))
    if not len(drawn):
        return []
    drawn = drawn[evenly(len(drawn), _DOTS)]
    own = judged.X[drawn][:, found.columns]
    axes = plots.residual_map(
        new_axes(3.9), own, values[drawn], degrees=found.degrees, label=label, labels=labels
    )
    some = _some(len(drawn), len(values))
    words = "Residuals on a map"
    caption = f"{words}: patches of one colour are what the model has missed.{some}"
    return [picture(axes, "map-residuals", f"{words}.", caption)]


def _variogram(judged: Assessment, found: Any) -> list[Block]:
    """Variogram of the targets, beside those of tables that the model draws."""
    from latentgp.extensions.fields import ModelVariogram, variogram

    rows = np.flatnonzero(judged.uncensored)
    rows = rows[evenly(len(rows), _PAIRED)] if len(rows) else rows
    points = found.metric(judged.X[rows])
    if len(rows) < 2 or not np.ptp(points, axis=0).any():
        return []
    data, posterior = judged.data, judged.model.estimator.posterior_
    numbers, of = np.asarray(data.y, np.float64)[rows], judged.model.target
    side = {name: values[rows] for name, values in data.side_information.items()}
    settings: dict[str, Any] = {"bins": _BINS, "degrees": found.degrees}
    k = None if judged.classes is None else _class(judged)
    if judged.classes is not None:
        of = f"{of} = {judged.classes[k]} (0 or 1)"

    def seen(values: Float[np.ndarray, "*S some"]) -> Float[np.ndarray, "*S some"]:
        return values if k is None else (values == k).astype(float)

    empirical = variogram(points, seen(numbers), **settings)
    band, held = None, ""
    try:
        key = jax.random.key(0)
        tables = posterior.sample_y(judged.X[rows], key=key, number=_TABLES, **side)
        every = [variogram(points, seen(own), **settings).classical[0] for own in tables]
    except InputError as error:
        held = f" The posterior draws no tables: {error}"
    else:
        band = tuple(np.quantile(every, [0.025, 0.975], axis=0))
        there = empirical.pairs[0] > 0
        own = empirical.classical[0]
        inside = int(np.sum(((band[0] <= own) & (own <= band[1]))[there]))
        held = (
            f" {inside} of {int(there.sum())} points are in the band, which holds 95 % of tables "
            "that the model draws at these places: points beyond it at short distances are detail "
            "that the model lacks (above) or invents (below)."
        )
    curve = None
    if _is_gaussian(judged):
        gamma = _expected(judged, rows, points, empirical.edges, found.degrees)
        curve = ModelVariogram(empirical.distance[0], gamma[None], None)
        held += " The line is what the kernel and the noise expect before any target is seen."
    unit = "km" if found.degrees else "length-scales" if found.in_lengthscales else None
    distance = f"distance [{unit}]" if unit else "distance"
    axes = plots.variogram(new_axes(3.9), empirical, curve, band=band, x_label=distance)
    words = f"Variogram of {of}: half the mean squared difference of rows, by their distance"
    some = _some(len(rows), len(judged.y))
    return [picture(axes, "variogram", f"{words}.", f"{words}.{held}{some}")]


def _some(drawn: int, rows: int) -> str:
    return f" Of {drawn:,} of {rows:,} rows, evenly spaced." if drawn < rows else ""


def _class(judged: Assessment) -> int:
    """Number of the class that is drawn: the second of two, the most frequent of more."""
    assert judged.classes is not None
    counts = [np.sum(judged.y == label) for label in judged.classes]
    return len(counts) - 1 if len(counts) == 2 else int(np.argmax(counts))


def _is_gaussian(judged: Assessment) -> bool:
    model = judged.model.estimator.model_
    return isinstance(model.likelihood, Gaussian) and not isinstance(model.of_inputs, OwnKernels)


@double_precision
def _expected(
    judged: Assessment,
    rows: Int[np.ndarray, "some"],
    points: Float[np.ndarray, "some 2"],
    edges: Float[np.ndarray, "edges"],
    degrees: bool,
) -> Float[np.ndarray, "bins"]:
    """Half the expected squared difference of rows before targets are seen, a bin each."""
    model: Any = judged.model.estimator.model_
    X = jnp.asarray(judged.X[rows])
    first, second = np.triu_indices(len(rows), 1)
    covariance = np.asarray(model.of_inputs.symmetric_gram(X))
    mean, variance = np.asarray(model.mean(X)).reshape(-1), np.diag(covariance)
    half = (variance[first] + variance[second]) / 2 - covariance[first, second]
    half += (mean[first] - mean[second]) ** 2 / 2 + float(model.likelihood.noise_variance)
    there = np.asarray(on_unit_sphere(jnp.asarray(points))) if degrees else points
    apart = np.linalg.norm(there[first] - there[second], axis=1)
    apart = along_surface(apart) if degrees else apart
    bins = np.maximum(np.searchsorted(edges, apart) - 1, 0)
    near: Bool[np.ndarray, "pairs"] = apart <= edges[-1]
    counts, sums = (np.bincount(bins[near], w, len(edges) - 1) for w in (None, half[near]))
    return sums / np.where(counts > 0, counts, np.nan)
