"""Posterior of state-space processes: marginals anywhere in O(d^3), joint draws by simulation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentgp.errors import InputError, lacks
from latentgp.extensions.state_space import lanes as small
from latentgp.extensions.state_space.kernels import (
    Columns,
    LeftOut,
    Truncation,
    measurements_of_parts,
    time_columns,
)
from latentgp.extensions.state_space.lanes import Matrix, UnrolledMatrix, number
from latentgp.extensions.state_space.markov.beliefs import Belief, Filter, Starts
from latentgp.extensions.state_space.markov.filtering import from_lower
from latentgp.extensions.state_space.markov.processes import (
    ProcessPosterior,
    latents_of_groups,
    means_given,
    perturbation,
    readings_of,
    together,
)
from latentgp.extensions.state_space.markov.remembered import (
    RememberedRows,
    before_states,
    known_in,
)
from latentgp.extensions.state_space.markov.series import Lanes, Series, order_of
from latentgp.extensions.state_space.markov.window import window_of
from latentgp.kernels import LatentKernel
from latentgp.kernels.parts import as_wholes, telling_parts
from latentgp.likelihoods.base import Marginals
from latentgp.modules import stored
from latentgp.representations.base import LatentPosterior
from latentgp.representations.latent_axis import distinct_kernels, latent_diagonals
from latentgp.rows.data import Data
from latentgp.sites.coupled import negative_left_out
from latentgp.sites.gaussian import GaussianSites
from latentgp.typing import Array, Coefs, Inputs, Points, RandomKey, RowLatents, Scalar

_COLUMNS = 64  # of a joint covariance that are found together


@stored
class MarkovPosterior(LatentPosterior):
    """Posterior of latent functions that are state-space processes."""

    kernel: LatentKernel
    X: Inputs  # inputs of the rows
    series: Series  # the rows in the order of time
    sites: GaussianSites  # as functions of g
    parts: tuple[ProcessPosterior, ...]  # the latent functions of one structure each
    at_all_rows: Marginals  # marginals at the rows
    log_evidence_of_sites: Scalar  # of all of them, without constants
    constant: Scalar  # of those of rows that were remembered
    jitter: Scalar
    trace_term: Scalar
    truncation: Truncation = eqx.field(static=True)  # of what is approximated
    earlier: int = eqx.field(static=True)  # number of these; they come first
    # number of parts of the kernel, whose coefficients are the last columns of new inputs; zero
    # where f alone is asked about
    told_apart: int = eqx.field(static=True, default=0)
    rows: Data | None = None  # those that were not remembered, with their targets, padded

    @property
    def log_evidence(self) -> Scalar:
        return self.log_evidence_of_sites + self.constant

    @property
    def at_rows(self) -> Marginals:
        """Marginals at the rows that were not remembered."""
        return Marginals(*(values[self.earlier :] for values in self.at_all_rows))

    @property
    def kl(self) -> Scalar:
        expected = self.sites.expected(self.at_all_rows) - self.sites.log_constant
        return jnp.sum(expected[self.earlier :]) - self.log_evidence

    @property
    def notes(self) -> tuple[str, ...]:
        precision, marginals = self.sites.precision, self.at_all_rows
        return (*self._left_out.notes, *negative_left_out("Sample paths", precision, marginals))

    @property
    def complaints(self) -> tuple[str, ...]:
        return self._left_out.complaints

    @property
    def _left_out(self) -> LeftOut:
        return LeftOut.of(distinct_kernels(self.kernel), self.truncation)

    @property
    def centres(self) -> Points:
        return as_wholes(self.X, self.told_apart) if self.told_apart else self.X

    def telling_parts(self, number: int) -> "MarkovPosterior":
        return dataclasses.replace(self, told_apart=number)

    @property
    def _columns(self) -> Columns:
        return time_columns(self.kernel, self.X.shape[1])[0]

    @property
    def _groups(self) -> list[tuple[int, ...]]:
        return latents_of_groups(self.kernel, self.X.shape[1], self.sites.linear.shape[1])

    @property
    def filters(self) -> list[Filter]:
        """The processes alone."""
        return [part.process for part in self.parts]

    @property
    def starts(self) -> tuple[Starts, ...]:
        """States from which series go on, for each process."""
        return tuple(p.starts for p in self.filters if p.starts is not None)

    @property
    def known(self) -> int:
        """Number of series that go on from a state, at the first rows."""
        return known_in(self.starts)

    def check_inputs(self, X: Inputs) -> None:
        columns = self._columns
        first = np.asarray(self.X)[: self.known]
        early = before_states(first, X, columns)
        if np.any(early):
            place = np.argmax(early)
            of_series = (
                first
                if columns.series is None
                else first[first[:, columns.series] == X[place, columns.series]]
            )
            raise InputError(
                f"Row {place} of X is at time {X[place, columns.time]:g}, but an update with a lag "
                f"has left only what comes from {of_series[0, columns.time]:g} on; ask an earlier "
                "posterior, or update with a greater lag."
            )

    def with_targets_shifted(self, centre: float) -> "MarkovPosterior":
        rows = None if self.rows is None else self.rows.shifted(centre)
        return dataclasses.replace(self, rows=rows)

    def mean(self, X: Inputs) -> RowLatents:
        return self.marginals(X).mean

    def marginals(self, X: Inputs) -> Marginals:
        near = _Near.of(self.series, X, self._columns)
        readings = self._readings(X.T)
        pairs = zip(self.parts, readings or [None] * len(self.parts), strict=True)
        found = [_at(part, near, reading) for part, reading in pairs]
        mean, variance = (
            together([values[i].T for values in found], self._groups) for i in range(2)
        )
        kernel = telling_parts(self.kernel, self.told_apart) if self.told_apart else self.kernel
        prior = jnp.broadcast_to(latent_diagonals(kernel, X).T, variance.shape)
        return Marginals(mean, jnp.clip(variance, 0.0, prior))

    def covariance(self, X: Inputs) -> Float[Array, "Q N N"]:
        """By smoothing: Cov(f_i, f_j) is how a linear term at i moves the mean at j."""
        more, count = self._with_rows(X), len(X)
        latents = self.sites.linear.shape[1]
        precision = jnp.concatenate([self.sites.precision, jnp.zeros((count, latents))])
        readings = self._readings_in(more, X)
        about_means = [process.without_means() for process in self.filters]

        def columns(places: Int[Array, "S"]) -> Float[Array, "S N Q"]:
            units = (jnp.arange(count)[:, None] == places[None]).astype(precision.dtype)
            none = jnp.zeros((len(self.X), len(places)), precision.dtype)
            linear = jnp.concatenate([none, units])[..., None] * jnp.ones(latents)
            found = means_given(about_means, self._groups, more, linear, precision, readings)
            return jnp.moveaxis(found[-count:], 1, 0)

        blocks = -(-count // _COLUMNS)
        places = jnp.arange(blocks * min(_COLUMNS, count)).reshape(blocks, -1)
        found = jax.lax.map(columns, places).reshape(-1, count, latents)[:count]
        covariance = jnp.moveaxis(found, -1, 0)
        return 0.5 * (covariance + jnp.swapaxes(covariance, 1, 2))

    def draws(self, key: RandomKey, X: Inputs, number: int) -> Float[Array, "S N Q"]:
        """Joint draws at new inputs by simulation; by their covariance where sites are signed."""
        if not self.draws_copies:
            return super().draws(key, X, number)
        series, none = self._with_rows(X), jnp.zeros((len(X), self.sites.linear.shape[1]))
        linear, precision = (jnp.concatenate([told, none]) for told in self.sites[:2])
        of_rows, readings = (self.filters, self._groups, series), self._readings_in(series, X)
        prior, more = perturbation(*of_rows, precision, key, number, readings)
        drawn = prior + means_given(*of_rows, linear[:, None] + more, precision, readings)
        return jnp.moveaxis(drawn[-len(X) :], 1, 0)

    def _with_rows(self, X: Inputs) -> Series:
        both, columns = jnp.concatenate([self.X, X[:, : self.X.shape[1]]]), self._columns
        lanes = self.series.lanes.gap.shape[1]
        return Series.of(both, columns, order_of(both, columns), lanes, self.known)

    def _readings(self, rows: Float[Array, "columns *S"]) -> list[Matrix] | None:
        """Readings of the states by the last columns of rows, which come first."""
        if not self.told_apart:
            return None
        _, own = time_columns(self.kernel, self.X.shape[1])
        firsts = [group[0] if len(own) > 1 else 0 for group in self._groups]
        measurements = [measurements_of_parts(own[first], self.truncation) for first in firsts]
        if self.told_apart == 1:  # one part, such as a product of a sum
            measurements = [[part.process.space.measurement] for part in self.parts]
        return readings_of(measurements, rows[-self.told_apart :])

    def _readings_in(self, series: Series, X: Inputs) -> list[Matrix] | None:
        """The same for all rows in lanes, new ones behind."""
        if not self.told_apart:
            return None
        wholes = jnp.concatenate([as_wholes(self.X, self.told_apart), X])
        return self._readings(jnp.moveaxis(series.to_lanes(wholes), 1, 0))

    @property
    def draws_copies(self) -> bool:
        return not any(part.process.signed for part in self.parts)

    def left_out(
        self, rows: Int[np.ndarray, "chosen"]
    ) -> tuple[Float[np.ndarray, "chosen"], Float[np.ndarray, "chosen"]]:
        mean, variance = (np.asarray(values)[rows, 0] for values in self.at_rows)
        linear, precision = (np.asarray(a)[self.earlier :][rows, 0] for a in self.sites[:2])
        with np.errstate(divide="ignore", invalid="ignore"):
            left = 1 - precision * variance
            cavity = (mean - variance * linear) / left
            return linear / precision - cavity, variance / left

    def window(self, lag: float, new: Inputs, log_evidence: float) -> Any:
        """Rows within a lag of the newest one, and all not before the oldest of further rows."""
        return window_of(self, lag, new, log_evidence)

    def remembered(self, log_evidence: float) -> RememberedRows:
        first, constant = np.arange(self.known), log_evidence - self.log_evidence_of_sites
        return self.keeping(np.arange(self.known, len(self.X)), first, self.starts, constant)

    def keeping(
        self,
        rows: Int[np.ndarray, "kept"],
        first: Int[np.ndarray, "S"],
        starts: tuple[Starts, ...],
        constant: Any,
    ) -> RememberedRows:
        """Some rows with their sites, behind states at first rows."""
        more = {"constant": jnp.asarray(constant), "signed": not self.draws_copies}
        states = {"truncation": self.truncation, "starts": starts}
        return RememberedRows.of(self.X, self.sites[:2], rows, first, **more, **states)

    def pathwise_update(self, key: RandomKey, prior_path: Callable[[Points], Array]) -> Coefs:
        """Weights l - W m of the mean, and of a draw about it with negative precisions left out.

        Raises:
            InputError: rows before a window are left out, on which paths of the kernel rest.
        """
        if self.starts:
            lacks(
                self,
                "no sample paths, which need all rows, as an update with a lag has left only a "
                "window of them; draw jointly with sample_f, or update without a lag",
            )
        held = jnp.maximum(self.sites.precision, 0.0)
        noise = jax.random.normal(key, held.shape, held.dtype)
        told = -held * prior_path(self.X) - jnp.sqrt(held) * noise
        moved = means_given(self.filters, self._groups, self.series, told, held)
        return (self.sites.slope(self.at_all_rows.mean) + told - held * moved).T


class _Near(eqx.Module):
    """New inputs between the rows before and after them."""

    # step and lane of the row after each, whose belief is that of the row before
    slot: tuple[Int[Array, "B"], Int[Array, "B"]]
    at_end: Any  # whether there is no such slot, after the very last one
    before: Lanes  # the step from the row before
    after: Lanes  # the step to the row after
    followed: Any  # whether there is one, in the same series

    @classmethod
    def of(cls, series: Series, X: Float[Array, "B D"], columns: Columns) -> "_Near":
        X = jnp.asarray(X)
        t, place = X[:, columns.time], series.place(X, columns)
        steps, lanes = series.lanes.gap.shape
        last = jnp.maximum(place, 0)
        following = jnp.minimum(place + 1, series.rows - 1)
        preceded, followed = place >= 0, place + 1 < series.rows
        if series.label is not None:
            label = X[:, columns.series]
            preceded = preceded & (series.label[last] == label)
            followed = followed & (series.label[following] == label)
        slot = jnp.minimum(place + 1, steps * lanes - 1)
        none = jnp.zeros_like(followed)
        gap = jnp.where(preceded, t - series.times[last], 0.0)
        rest = jnp.where(followed, series.times[following] - t, 0.0)
        return cls(
            (slot % steps, slot // steps),
            place + 1 >= steps * lanes,
            Lanes(t, gap, ~preceded),
            Lanes(jnp.where(followed, series.times[following], t), rest, none),
            followed,
        )


def _at(
    part: ProcessPosterior, near: _Near, reading: Matrix | None
) -> tuple[Float[Array, "Q B"], Float[Array, "Q B"]]:
    """Means and variances of f, or what is read, at new inputs, of the latents of a part."""
    process, found, smooth = part
    step, lane = near.slot

    def taken(leaf: Any) -> Any:
        return jnp.moveaxis(leaf[step, :, lane], 0, 1)

    mean, lower = jax.tree.map(taken, found.before)
    belief = Belief(mean, from_lower(lower))
    final = jax.tree.map(
        lambda leaf: leaf[..., -1:] if isinstance(mean, UnrolledMatrix) else leaf[..., -1:, :, :],
        found.last,
    )
    m = small.chosen(near.at_end, final.mean, belief.mean)
    P = small.chosen(near.at_end, final.spread, belief.spread)
    A, Q = process.transition(near.before)
    m, P = A @ m, A @ P @ A.mT + Q
    r, lower = jax.tree.map(taken, smooth.adjoint)
    there = jnp.where(near.followed, 1.0, 0.0).astype(near.before.gap.dtype)
    B = small.scaled(process.transition(near.after)[0], there)
    r, N = B.mT @ r, B.mT @ from_lower(lower) @ B
    h = process.measurement(near.before.gap) if reading is None else reading
    u = P @ h
    mean = number(h.mT @ m) + number(u.mT @ r)
    return mean, number(h.mT @ u) - number(u.mT @ N @ u)
