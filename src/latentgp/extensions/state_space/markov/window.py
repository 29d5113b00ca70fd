"""The rows of a series within a lag of the newest, and the states that the others lead to.

Fixed-lag smoothing (Särkkä & Svensson 2023, section 12.4): given the state before a window, the
rows in it need no earlier one. That state is the filtered one, with the sites held.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentgp.extensions.state_space.kernels import time_columns
from latentgp.extensions.state_space.lanes import Matrix, UnrolledMatrix
from latentgp.extensions.state_space.markov.beliefs import Filter, Starts
from latentgp.extensions.state_space.markov.filtering import filtered, from_lower
from latentgp.extensions.state_space.markov.processes import (
    ProcessPosterior,
    in_groups,
    latents_of_groups,
)
from latentgp.extensions.state_space.markov.remembered import RememberedRows
from latentgp.extensions.state_space.markov.series import Series, order_of
from latentgp.kernels import LatentKernel
from latentgp.rows.data import Data
from latentgp.runtime.programs import Program
from latentgp.typing import Inputs, Scalar


class Window(NamedTuple):
    """State that an update with a lag continues from."""

    # states before the window, and rows in it whose targets are no longer known
    remembered: RememberedRows
    rows: Data | None  # the others in it, whose sites are made anew; None without any


def window_of(posterior: Any, lag: float, new: Inputs, log_evidence: float) -> Window:
    """Rows within a lag of the newest one, and all that are not before the oldest of further rows.

    The posterior is a `MarkovPosterior` of all rows so far, as is the log evidence, in nats.
    """
    columns, _ = time_columns(posterior.kernel, new.shape[1])
    X, numbers = np.asarray(posterior.X), np.arange(len(posterior.X))
    times, later = X[:, columns.time], new[:, columns.time]
    since = min(max(times.max(), later.max()) - lag, later.min())
    gone = (numbers < posterior.known) | (times < since)
    places = _last_places(posterior.series, gone, X, columns.series)
    order = posterior.series.order
    first = places if order is None else np.asarray(order.rows)[places]
    starts = tuple(_states_after(part, posterior.series, places) for part in posterior.parts)
    starts = starts if len(first) else ()
    again = np.zeros(len(X), bool)  # rows kept with their targets, that count
    if posterior.rows is not None:
        weights = posterior.rows.weights
        again[posterior.earlier :] = True if weights is None else np.asarray(weights) > 0
    again &= ~gone
    all_in = posterior.keeping(numbers[~gone], first, starts, 0.0)
    pairs = zip(posterior.filters, starts or [None] * len(posterior.parts), strict=True)
    filters = [Filter(process.space, process.signed, own) for process, own in pairs]
    constants = np.asarray(posterior.sites.log_constant)[again]
    in_window = float(_log_evidence(posterior.kernel, filters, all_in)) + float(constants.sum())
    held = posterior.keeping(numbers[~gone & ~again], first, starts, log_evidence - in_window)
    if not again.any():
        return Window(held, None)
    rows = jax.tree.map(np.asarray, posterior.rows)
    return Window(held, rows.select(again[posterior.earlier :]))


def _last_places(
    series: Series, gone: Any, X: Inputs, column: int | None
) -> Int[np.ndarray, "series"]:
    """Place in the order of time of the last row of each series among those that are gone."""
    ranks = np.arange(len(X)) if series.order is None else np.asarray(series.order.ranks)
    labels = np.zeros(len(X)) if column is None else X[:, column]
    distinct, of = np.unique(labels[gone], return_inverse=True)
    places = np.full(len(distinct), -1)
    np.maximum.at(places, of, ranks[gone])
    return places


def _states_after(
    part: ProcessPosterior, series: Series, places: Int[np.ndarray, "series"]
) -> Starts:
    """Filtered states after rows at places in the order of time."""
    steps, lanes = series.lanes.gap.shape
    slots = np.minimum(places + 1, steps * lanes - 1)
    at_end = (places + 1 >= steps * lanes)[:, None, None, None]
    mean, lower = part.filtered.before

    def taken(before: Matrix, last: Matrix) -> Float[np.ndarray, "Q series rows columns"]:
        inside = _table(before)[slots % steps, :, slots // steps]
        return np.moveaxis(np.where(at_end, _table(last)[:, -1], inside), 1, 0)

    last = part.filtered.last
    return Starts(taken(mean, last.mean)[..., 0], taken(from_lower(lower), last.spread))


def _table(M: Matrix) -> Float[np.ndarray, "*S rows columns"]:
    """Matrices in the last two axes."""
    if not isinstance(M, UnrolledMatrix):
        return np.asarray(M)
    return np.stack([np.stack([np.asarray(e) for e in row], -1) for row in M.rows], -2)


@Program
def _log_evidence(
    kernel: LatentKernel, filters: list[Filter], remembered: RememberedRows
) -> Scalar:
    """Log evidence of the sites of remembered rows, given the states."""
    X, inputs = remembered.centres, remembered.centres.shape[1]
    columns, _ = time_columns(kernel, inputs)
    series = Series.of(X, columns, order_of(X, columns), 1, remembered.known)
    groups = latents_of_groups(kernel, inputs, remembered.latents)
    sites = (series.to_lanes(jnp.asarray(a)) for a in (remembered.linear, remembered.precision))
    each = zip(filters, *(in_groups(values, groups) for values in sites), strict=True)
    return jnp.sum(
        jnp.stack([jnp.sum(filtered(p, series, told, w).log_evidence) for p, told, w in each])
    )
