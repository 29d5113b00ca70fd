"""Posterior of processes in time at inducing points in space: marginals anywhere, joint draws."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentgp.extensions.state_space.kernels import LeftOut, Truncation
from latentgp.extensions.state_space.space_time.prior import (
    LatentGroup,
    Moments,
    SpaceTimePrior,
    StatePrior,
    latent_groups,
    of_all,
)
from latentgp.extensions.state_space.space_time.remembered import RememberedReports
from latentgp.extensions.state_space.space_time.slots import Slots
from latentgp.extensions.state_space.space_time.stacked import (
    Beliefs,
    Layout,
    Readings,
    SmoothedReadings,
    StackedArithmetic,
    Steps,
    segmented,
    segments_for,
)
from latentgp.extensions.state_space.space_time.variables import ProcessesAtPoints
from latentgp.kernels import LatentKernel
from latentgp.kernels.parts import telling_parts
from latentgp.likelihoods.base import Marginals
from latentgp.modules import stored
from latentgp.representations.base import LatentPosterior
from latentgp.representations.inducing.projected import ProjectedSites, row_marginals
from latentgp.representations.latent_axis import distinct_kernels, latent_diagonals, vmap_latents
from latentgp.sites.coupled import negative_left_out
from latentgp.sites.gaussian import GaussianSites
from latentgp.typing import Array, Coefs, Inputs, PerRow, Points, RandomKey, RowLatents, Scalar

_COLUMNS = 64  # of a joint covariance that are found together


class RowArrays(NamedTuple):
    """Arrays that follow from the kernel and the rows."""

    groups: list[LatentGroup]  # of latent functions
    priors: list[StatePrior]  # of each group
    left: Float[Array, "Q N"]  # prior variance that the states leave open at the rows

    @classmethod
    def of(
        cls, prior: SpaceTimePrior, slots: Slots, kernel: LatentKernel, latents: int
    ) -> "RowArrays":
        """Posterior of so many latent functions."""
        groups = latent_groups(kernel, latents)
        priors = [prior.of_group(group, slots.places, Moments.of(slots)) for group in groups]
        left = [
            jnp.einsum("qkbj,qkj->qkb", own.left[:, slots.place], own.variances) for own in priors
        ]
        return cls(groups, priors, slots.at_rows(of_all(groups, left)))


@stored
class SpaceTimePosterior(LatentPosterior):
    """Posterior given sites of rows at places and times."""

    kernel: LatentKernel
    points: Points  # inducing points Z in space, as whole inputs
    slots: Slots  # of the rows
    sites: GaussianSites  # as functions of g
    starts: tuple[Beliefs, ...]  # beliefs of each group where segments of steps begin
    log_evidence: Scalar
    jitter: Scalar
    trace_term: Scalar
    time: int = eqx.field(static=True)
    truncation: Truncation = eqx.field(static=True)
    signed: bool = eqx.field(static=True)
    # how the prior variance that the points leave open counts
    power: float = eqx.field(static=True)
    # number of parts of the kernel, whose coefficients are the last columns of new inputs; zero
    # where f alone is asked about
    told_apart: int = eqx.field(static=True, default=0)
    powers: PerRow | None = None  # those of each row, where remembered ones can have others
    constant: Scalar | float = 0.0  # of rows that were remembered; part of the log evidence

    @classmethod
    def given(
        cls,
        kernel: LatentKernel,
        prior: SpaceTimePrior,
        slots: Slots,
        sites: GaussianSites,
        *,
        signed: bool,
        power: float,
        powers: PerRow | None,
        constant: Scalar,
    ) -> "SpaceTimePosterior":
        """The posterior given sites of g."""
        known = RowArrays.of(prior, slots, kernel, sites.linear.shape[1])
        each = power if powers is None else powers
        projected = projected_by(sites, known.left, each)
        filtered = []
        for group, own in zip(known.groups, known.priors, strict=True):
            layout = prior.layout(group.one)

            def run(own, linear, precision, layout=layout):
                steps = steps_with(own, slots, linear[..., None], precision)
                return StackedArithmetic(layout, signed, own.table).forward(steps)

            told = in_slots(slots, projected, group)
            filtered.append(vmap_latents(run, own, *told))
        half = 0.5 * jnp.sum(projected.loss)
        make: Any = cls  # whose KL is found when asked for
        return make(
            kernel=kernel,
            points=prior.points,
            slots=slots,
            sites=sites,
            starts=tuple(found.starts for found in filtered),
            log_evidence=sum(jnp.sum(found.log_evidence) for found in filtered) - half + constant,
            jitter=jnp.max(jnp.stack([jnp.max(own.jitter) for own in known.priors])),
            trace_term=0.5 * jnp.sum(projected.loss * (jnp.asarray(each) == 0)),
            time=prior.time,
            truncation=prior.truncation,
            signed=signed,
            power=power,
            powers=powers,
            constant=constant,
        )

    @property
    def prior(self) -> SpaceTimePrior:
        """Prior of the states."""
        return SpaceTimePrior(self.points, self.time, self.truncation)

    @property
    def prepared(self) -> RowArrays:
        """Arrays that follow from kernel and rows."""
        return RowArrays.of(self.prior, self.slots, self.kernel, self.sites.linear.shape[1])

    @property
    def each_power(self) -> PerRow | float:
        """How the prior variance that points leave open counts, of each row or all."""
        return self.power if self.powers is None else self.powers

    @property
    def kl(self) -> Scalar:
        known = self.prepared
        projected = self._projected(known)
        mean, variance = (values.T for values in self.of_states(known))
        expected = projected.linear * mean - 0.5 * projected.precision * (mean**2 + variance)
        of_rows = (expected - 0.5 * projected.loss)[:, self.slots.earlier :]
        return jnp.sum(of_rows) - self.log_evidence

    @property
    def at_rows(self) -> Marginals:
        """Marginals of g at the rows, as site updates take them."""
        known = self.prepared
        return self.with_left(known, self.of_states(known))

    @property
    def notes(self) -> tuple[str, ...]:
        known, negative = self.prepared, ()
        if self.signed:
            precision, of_states = self._projected(known).precision.T, self.of_states(known)
            negative = negative_left_out("Sample paths", precision, of_states)
        return (*self._left_out.notes, self._left_open(known), *negative)

    @property
    def complaints(self) -> tuple[str, ...]:
        return self._left_out.complaints

    @property
    def _left_out(self) -> LeftOut:
        terms = (term for k in distinct_kernels(self.kernel) for term in self.prior.terms(k))
        return LeftOut.of((term.time for term in terms), self.truncation)

    @property
    def centres(self) -> ProcessesAtPoints:
        return ProcessesAtPoints(self.points, self.slots, self.time, self.truncation)

    def telling_parts(self, number: int) -> "SpaceTimePosterior":
        return dataclasses.replace(self, told_apart=number)

    def mean(self, X: Inputs) -> RowLatents:
        return self.marginals(X).mean

    def marginals(self, X: Inputs) -> Marginals:
        """By one more pass over the steps, whatever the number of rows."""
        X = jnp.asarray(X)
        order = jnp.argsort(X[:, self.time])
        at, onward, after = self._between(X[order, self.time])
        inputs = X[order, : self.points.shape[1]]
        known = self.prepared
        readings, left = [], []
        for group in known.groups:
            own = self.prior.of_group(group, inputs, at)
            shares = self._shares(group, X[order])
            of_states = own.table * self._of_states(group, shares)
            onwards = self.prior.moves_of_group(group, onward)
            readings.append((of_states, own.moves, own.noises, onwards))
            left.append(jnp.einsum("qrj,qrj,rj->qr", own.left, own.variances, shares**2))
        found = [smooth.at_readings for smooth in self.smoothed(known, readings=(after, readings))]
        back = jnp.argsort(order)
        mean, variance = jnp.moveaxis(of_all(known.groups, found), -1, 0)[..., back]
        variance = (variance + of_all(known.groups, left)[:, back]).T
        kernel = telling_parts(self.kernel, self.told_apart) if self.told_apart else self.kernel
        top = jnp.inf if self.signed else latent_diagonals(kernel, X).T
        return Marginals(mean.T, jnp.clip(variance, 0.0, top))

    def covariance(self, X: Inputs) -> Float[Array, "Q N N"]:
        """By smoothing: Cov(f_i, f_j) is how a linear term at i moves the mean at j."""
        X = jnp.asarray(X)
        inputs, count = X[:, : self.points.shape[1]], len(X)
        slots = self.slots.with_rows(inputs, self.time)
        known = self.prepared
        projected, covariances = self._projected(known), []
        for group in known.groups:
            shares = self._shares(group, X)
            own = self.prior.of_group(group, slots.places, Moments.of(slots))
            of_states = own.table.at[:, -count:].multiply(self._of_states(group, shares))
            own = own._replace(table=of_states)
            _, precision = in_slots(slots, projected, group, more=count)
            layout = self.prior.layout(group.one)

            def of_latent(own, precision, layout=layout):
                return _covariance(layout, self.signed, own, slots, precision, count)

            found = vmap_latents(of_latent, own, precision)
            covariances.append(found + self.prior.left_between(group, inputs, shares))
        return of_all(known.groups, covariances)

    def remembered(self, log_evidence: float) -> RememberedReports:
        rows = np.arange(len(self.slots.slot))
        return RememberedReports.of(
            self.slots.inputs(self.time),
            self.sites[:2],
            rows,
            rows[:0],
            {"powers": np.broadcast_to(self.each_power, len(rows))},
            constant=jnp.asarray(log_evidence - (self.log_evidence - self.constant)),
            signed=self.signed,
            truncation=self.truncation,
            points=np.delete(np.asarray(self.points), self.time, axis=1),
            time=self.time,
        )

    def pathwise_update(self, key: RandomKey, prior_path: Callable[[Any], Array]) -> Coefs:
        """Weights l - W m of the mean, and of a draw about it with negative precisions left out."""
        known = self.prepared
        sites, mean = self._projected(known), self.of_states(known).mean.T
        held = jnp.maximum(sites.precision, 0.0)
        noise = jax.random.normal(key, held.shape, held.dtype)
        told = -held * prior_path(self.centres).T - jnp.sqrt(held) * noise
        means = []
        for group, own in zip(known.groups, known.priors, strict=True):
            layout = self.prior.layout(group.one)

            def run(own, linear, precision, layout=layout):
                given = own, self.slots, linear[..., None], precision
                return smoothed_given(layout, False, *given).mean.reshape(linear.shape)

            drawn = in_slots(self.slots, sites._replace(linear=told, precision=held), group)
            means.append(vmap_latents(run, own, *drawn))
        moved = self.slots.at_rows(of_all(known.groups, means))
        return sites.linear - sites.precision * mean + told - held * moved

    def of_states(self, known: RowArrays) -> Marginals:
        """Marginals at the rows of what they read of the states."""
        return self.of_smoothed(known, self.smoothed(known))

    def of_smoothed(self, known: RowArrays, smooth: list[SmoothedReadings]) -> Marginals:
        """The same, known already."""
        latents = (len(known.left), *self.slots.place.shape)
        mean, variance = (
            self.slots.at_rows(of_all(known.groups, values).reshape(latents)).T
            for values in ([s.mean for s in smooth], [s.variance for s in smooth])
        )
        return Marginals(mean, variance)

    def with_left(self, known: RowArrays, of_states: Marginals) -> Marginals:
        """Marginals at the rows that were not remembered, with what the states leave open."""
        mean, variance = of_states
        found = Marginals(mean, jnp.maximum(variance + known.left.T, 0.0))
        if self.power:
            found = row_marginals(known.left, found, *self.sites[:2], self.power)
        return Marginals(*(values[self.slots.earlier :] for values in found))

    def smoothed(
        self, known: RowArrays, *, readings: Any = None, slopes: bool = False
    ) -> list[SmoothedReadings]:
        """The way back through the steps, for each group.

        Readings are further rows, numbers of the steps before them and what they read.
        """
        projected, found = self._projected(known), []
        after, each = (None, [None] * len(known.groups)) if readings is None else readings
        parts = zip(known.groups, known.priors, self.starts, each, strict=True)
        for group, own, starts, reading in parts:
            layout = self.prior.layout(group.one)

            def run(own, linear, precision, starts, reading, layout=layout):
                steps = steps_with(own, self.slots, linear[..., None], precision)
                more = None if reading is None else Readings(after, *reading)
                stacked = StackedArithmetic(layout, self.signed, own.table)
                return stacked.backward(steps, starts, more, slopes)

            told = in_slots(self.slots, projected, group)
            found.append(vmap_latents(run, own, *told, starts, reading))
        return found

    def _projected(self, known: RowArrays) -> ProjectedSites:
        return projected_by(self.sites, known.left, self.each_power)

    def _between(self, t: Float[Array, "B"]) -> tuple[Moments, Moments, Int[Array, "B"]]:
        """New times after steps, the steps after these, and numbers of the first ones."""
        times = jnp.asarray(self.slots.times)
        after = jnp.searchsorted(times, t, side="right") - 1
        fresh = after < 0
        gap = jnp.where(fresh, 0.0, t - times[jnp.maximum(after, 0)])
        following = jnp.maximum(times[jnp.minimum(after + 1, len(times) - 1)], t)
        onward = Moments(following, following - t, jnp.zeros_like(fresh))
        return Moments(t, gap, fresh), onward, after

    def _shares(self, group: LatentGroup, X: Inputs) -> Float[Array, "N parts"]:
        """Coefficients of each term at new inputs."""
        part = self.prior.part_of_terms(group.one)
        if not self.told_apart:
            return jnp.ones((len(X), len(part)), X.dtype)
        return X[:, self.points.shape[1] :][:, part if self.told_apart > 1 else 0 * part]

    def _of_states(
        self, group: LatentGroup, shares: Float[Array, "N parts"]
    ) -> Float[Array, "N values"]:
        """The same of each state that is read."""
        copies = np.array(self.prior.layout(group.one).copies)
        return jnp.repeat(shares, copies, axis=1, total_repeat_length=int(copies.sum()))

    def _left_open(self, known: RowArrays) -> str:
        first = self.slots.earlier
        left = np.mean(np.asarray(known.left), axis=0)[first:]
        inputs = jnp.asarray(self.slots.inputs(self.time))[first:]
        share = left / np.mean(np.asarray(latent_diagonals(self.kernel, inputs)), axis=0)
        return (
            f"{len(self.points)} inducing points in space leave open {np.mean(share):.2g} of the "
            f"prior variance (mean of the rows; at most {np.max(share):.2g})."
        )


def projected_by(
    sites: GaussianSites, left: Float[Array, "#Q N"], powers: PerRow | float
) -> ProjectedSites:
    """Sites of what rows read of the states, by how the variance left open counts at each."""
    of_g = sites.linear.T, sites.precision.T, left
    if np.ndim(powers) == 0:
        return ProjectedSites.of(*of_g, powers)
    some = powers > 0
    both = ProjectedSites.of(*of_g, jnp.where(some, powers, 1.0)), ProjectedSites.of(*of_g, 0.0)
    return jax.tree.map(partial(jnp.where, some), *both)


def in_slots(
    slots: Slots, projected: ProjectedSites, group: LatentGroup, more: int = 0
) -> tuple[Float[Array, "Q T B"], Float[Array, "Q T B"]]:
    """Sites of a group's latents in slots, with so many further rows that have none."""
    of_group = (values[np.array(group.latents)] for values in projected[:2])
    linear, precision = (slots.sums(jnp.pad(own, ((0, 0), (0, more)))) for own in of_group)
    return linear, precision


def steps_with(
    own: StatePrior, slots: Slots, linear: Float[Array, "T B S"], precision: Float[Array, "T B"]
) -> Steps:
    """Steps of a latent function."""
    steps = Steps(own.moves, own.noises, jnp.asarray(slots.place), linear, precision)
    return segmented(steps, segments_for(len(precision)))


def smoothed_given(
    layout: Layout,
    signed: bool,
    own: StatePrior,
    slots: Slots,
    linear: Float[Array, "T B S"],
    precision: Float[Array, "T B"],
) -> SmoothedReadings:
    """The way forth and back for each set of linear terms."""
    stacked = StackedArithmetic(layout, signed, own.table)
    steps = steps_with(own, slots, linear, precision)
    return stacked.backward(steps, stacked.forward(steps).starts, None, slopes=False)


def _covariance(
    layout: Layout,
    signed: bool,
    own: StatePrior,
    slots: Slots,
    precision: Float[Array, "T B"],
    count: int,
) -> Float[Array, "rows rows"]:
    """Covariances between the last rows of slots of what they read of the states."""
    new = slots.slot[-count:]

    def columns(places: Int[Array, "S"]) -> Float[Array, "S rows"]:
        unit = jnp.zeros((precision.size, len(places)), precision.dtype)
        unit = unit.at[new].set((jnp.arange(count)[:, None] == places).astype(unit.dtype))
        unit = unit.reshape(*precision.shape, -1)
        mean = smoothed_given(layout, signed, own, slots, unit, precision).mean
        return mean.reshape(-1, len(places))[new].T

    blocks = -(-count // _COLUMNS)
    places = jnp.arange(blocks * min(_COLUMNS, count)).reshape(blocks, -1)
    found = jax.lax.map(columns, places).reshape(-1, count)[:count]
    return 0.5 * (found + found.T)
