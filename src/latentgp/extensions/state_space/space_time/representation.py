"""Latent functions of space and time: processes in time at inducing points in space."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Float

from latentgp.errors import check_whole, refuse
from latentgp.extensions.state_space.conditioned_draws import ConditionedDraws
from latentgp.extensions.state_space.kernels import Truncation, state_space
from latentgp.extensions.state_space.markov.remembered import sites_with_earlier, with_earlier
from latentgp.extensions.state_space.separable import separable_terms
from latentgp.extensions.state_space.space_time.posterior import (
    RowArrays,
    SpaceTimePosterior,
    projected_by,
)
from latentgp.extensions.state_space.space_time.prior import (
    SpaceTimePrior,
    StatePrior,
    latent_groups,
)
from latentgp.extensions.state_space.space_time.remembered import RememberedReports
from latentgp.extensions.state_space.space_time.root import SpaceTimeSampler, SpaceTimeWhitening
from latentgp.extensions.state_space.space_time.slots import Slots
from latentgp.kernels import LatentKernel
from latentgp.likelihoods.base import Marginals
from latentgp.representations.base import Pullback, Representation
from latentgp.representations.inducing.projected import ProjectedSites
from latentgp.representations.inducing.selection import select_points
from latentgp.representations.latent_axis import distinct_kernels, over_sharing
from latentgp.representations.learned_points import spread_of
from latentgp.representations.needs import chosen
from latentgp.representations.site_form import SiteForm
from latentgp.representations.traits import Traits
from latentgp.rows.arrays import check_shape
from latentgp.rows.data import Data
from latentgp.sites.gaussian import GaussianSites
from latentgp.typing import Array, Inputs, PerRow, Points, RandomKey


class SpaceTime(Representation):
    """Inducing points in space, a state-space process in time at each: O(T (M d)^2) or so a pass.

    For kernels of time times kernels of space, and sums of such products (Hamelijnck et al. 2021;
    Särkkä, Solin & Hartikainen 2013). Kernels of time are those of `Markov()`, kernels of space
    any. The bound is that of `Inducing` with a point at every time and place, T M of them; with the
    places of all rows as points it is exact. Rows may lack, tie, and come in any order. Paths are
    functions of time and place (Wilson et al. 2020).

    Args:
        number: how many points to choose among the places of the rows, by k-means++; all places
            where there are no more. Not needed where `points` are given.
        points: shape (M, D - 1), the inputs without the column of time.
        time: the column of time, counted from 0.
        rbf_states: number of states of an `RBF` kernel of time, as of `Markov`.
        harmonics: of a `Periodic` kernel of time, above the constant.
        slots: of the rows; `for_rows` finds them.
        signed: whether precisions of sites can be negative; a method sets it.
        power: how the prior variance that the points leave open counts; a method sets it.
        learn_points: whether a search moves the points with the hyper-parameters; not for
            `Laplace`, nor for chains, which take the `points` of another fit.
        spread: of the rows' places, a column, in units of which points move; `initialise` finds it.
        remembered: rows so far with their sites, `Posterior.remembered()`, which others are added
            to.

    Raises:
        InputError: neither a number nor points, or a setting that is no whole number from 1.

    Example:
        >>> import jax, numpy as np, latentgp as lgp
        >>> kernel = lgp.Matern32().on(0) * lgp.RBF().on(1)
        >>> X = np.stack(np.meshgrid(np.arange(20.0), [0.0, 0.5, 2.0]), -1).reshape(-1, 2)
        >>> model = lgp.LatentGP(kernel, lgp.Gaussian())
        >>> method = lgp.CollapsedVI(lgp.SpaceTime(3))
        >>> data = lgp.Data(X, np.sin(X[:, 0] / 3) + X[:, 1])
        >>> result = lgp.fit(model, data, method=method, key=jax.random.key(0))
        >>> result.posterior.predict_f(np.array([[2.5, 1.0]])).mean.shape
        (1,)
    """

    number: int | None = eqx.field(static=True, default=None)
    points: Points | None = None
    time: int = eqx.field(static=True, default=0)
    rbf_states: int = eqx.field(static=True, default=6, kw_only=True)
    harmonics: int = eqx.field(static=True, default=10, kw_only=True)
    slots: Slots | None = eqx.field(default=None, kw_only=True)
    signed: bool = eqx.field(static=True, default=False, kw_only=True)
    power: float = eqx.field(static=True, default=0.0, kw_only=True)
    learn_points: bool = eqx.field(static=True, default=False, kw_only=True)
    spread: Float[Array, "columns"] | None = eqx.field(default=None, kw_only=True)
    remembered: RememberedReports | None = eqx.field(default=None, kw_only=True)

    def __check_init__(self) -> None:
        nothing = "SpaceTime needs points or a number of points to choose, as in SpaceTime(50)."
        refuse({nothing: self.points is None and self.number is None})
        check_whole(self, number=1, rbf_states=1, harmonics=1)

    def initialise(
        self, X: Inputs, weights: PerRow | None, kernel: LatentKernel, key: RandomKey
    ) -> "SpaceTime":
        for own in distinct_kernels(kernel):
            for term in separable_terms(own, X.shape[1], self.time):
                state_space(term.time, self.truncation)
        if self.remembered is not None:
            self.remembered.check_columns(X.shape[1])
        X = X if weights is None else X[np.asarray(weights) > 0]
        elsewhere = [column for column in range(X.shape[1]) if column != self.time]
        points = self.points
        if points is None:
            assert self.number is not None
            places, copies = np.unique(X[:, elsewhere], axis=0, return_counts=True)
            times = copies.astype(X.dtype)
            points = select_points(places, times, kernel, self.number, "k-means++", key)
        points = np.asarray(points, X.dtype)
        words = "the inputs without their column of time"
        check_shape("SpaceTime.points", points, ("M", len(elsewhere)), words)
        spread = spread_of(X[:, elsewhere]) if self.learn_points else None
        return dataclasses.replace(self, number=len(points), points=points, spread=spread)

    def for_rows(self, X: Inputs, weights: PerRow | None, kernel: LatentKernel) -> "SpaceTime":
        if isinstance(X, Tracer):
            return dataclasses.replace(self, slots=self._slots(X))
        rows = np.asarray(with_earlier(self.remembered, X))
        if self.slots is not None and self.slots.is_of(rows, self.time):
            return self
        return dataclasses.replace(self, slots=Slots.of(rows, self.time, len(rows) - len(X)))

    @property
    def prior(self) -> SpaceTimePrior:
        """Prior of the states.

        Raises:
            InputError: points have not been chosen yet.
        """
        points = jnp.insert(jnp.asarray(chosen(self.points, "Points")), self.time, 0.0, axis=1)
        return SpaceTimePrior(points, self.time, self.truncation)

    @property
    def truncation(self) -> Truncation:
        """Truncation of approximated kernels."""
        return Truncation(self.rbf_states, self.harmonics)

    @property
    def traits(self) -> Traits:
        return Traits(
            evidence="bound",
            dense_factors=False,
            coordinates_of_sites=False,
            needs_rows=self.points is None,
            signed_sites=True,
            powers=True,
        )

    def for_sites(self, form: SiteForm) -> "SpaceTime":
        signed = form.signed or (self.remembered is not None and self.remembered.signed)
        return dataclasses.replace(self, signed=signed, power=form.power)

    def condition(
        self, kernel: LatentKernel, X: Inputs, sites: GaussianSites
    ) -> SpaceTimePosterior:
        earlier, sites = self.remembered, sites_with_earlier(self.remembered, sites)
        constant = jnp.zeros((), X.dtype) if earlier is None else jnp.asarray(earlier.constant)
        own = jnp.full(len(X), self.power, X.dtype)
        known = None if earlier is None else earlier.powers
        powers = None if known is None else jnp.concatenate([jnp.asarray(known), own])
        settings = {"signed": self.signed, "power": self.power, "powers": powers}
        rows = self._slots(X), sites
        return SpaceTimePosterior.given(kernel, self.prior, *rows, constant=constant, **settings)

    def marginals_at_rows(self, posterior: SpaceTimePosterior, X: Inputs) -> Marginals:
        return posterior.at_rows

    def pull_back(self, posterior: SpaceTimePosterior, X: Inputs, sites: GaussianSites) -> Pullback:
        numbers, rest = eqx.partition(self, eqx.is_inexact_array)
        latents = posterior.sites.linear.shape[1]

        def told(kernel: LatentKernel, numbers: "SpaceTime") -> tuple[list[StatePrior], Array]:
            own = eqx.combine(numbers, rest)
            known = RowArrays.of(own.prior, own._slots(X), kernel, latents)
            return known.priors, known.left

        (priors, left), pull = jax.vjp(told, posterior.kernel, numbers)
        known = RowArrays(latent_groups(posterior.kernel, latents), priors, left)
        smooth = posterior.smoothed(known, slopes=True)
        of_states = posterior.of_smoothed(known, smooth)
        mean, variance = (values.T for values in of_states)
        _, pull_left = jax.vjp(
            lambda left: projected_by(posterior.sites, left, posterior.each_power), left
        )
        in_sites = ProjectedSites(mean, -0.5 * (mean**2 + variance), jnp.full_like(mean, -0.5))
        in_priors = []
        for own, found in zip(priors, smooth, strict=True):
            assert found.slopes is not None
            moves, noises = jax.tree.map(_in_steps, found.slopes[:2])
            none = jax.tree.map(jnp.zeros_like, own)
            flat = none._replace(table=found.slopes.table, moves=moves, noises=noises)
            in_priors.append(jax.tree.map(over_sharing, flat, own))
        in_kernel, in_numbers = pull((in_priors, pull_left(in_sites)[0]))
        return Pullback(in_kernel, in_numbers, posterior.with_left(known, of_states))

    def whitening(self, kernel: LatentKernel, X: Inputs) -> SpaceTimeWhitening:
        """A coefficient for what is new of each state at each step."""
        return SpaceTimeWhitening.of(self.prior, self._slots(X), kernel)

    def sampler(self, kernel: LatentKernel, X: Inputs, power: float = 0.0) -> SpaceTimeSampler:
        return SpaceTimeSampler.of(self.whitening(kernel, X), power)

    def finished(
        self, posterior: SpaceTimePosterior, rows: Data | None = None
    ) -> SpaceTimePosterior:
        return posterior

    def draws_at_rows(self, draws: Any) -> ConditionedDraws:
        """Draws of the coefficients as draws of what rows read of the states."""
        rows = jnp.asarray(chosen(self.slots, "Slots").inputs(self.time))
        return ConditionedDraws.of(dataclasses.replace(draws, centres=rows), self)

    @property
    def streaming_prior(self) -> RememberedReports | None:
        return self.remembered

    def continues(self, remembered: Any) -> bool:
        """Whether a summary is of its kind, so that further rows can be added to it."""
        return type(remembered) in (RememberedReports, type(None))

    def extended(self, number: int | None, selection: str, remembered: Any) -> "SpaceTime":
        """The same with a summary of the rows so far, through its points."""
        own = dataclasses.replace(self, remembered=remembered, slots=None)
        if remembered is None:
            return own
        states, harmonics = remembered.truncation
        settings = {"time": remembered.time, "rbf_states": states, "harmonics": harmonics}
        return dataclasses.replace(own, points=remembered.points, **settings)

    def _slots(self, X: Inputs) -> Slots:
        rows = with_earlier(self.remembered, jnp.asarray(X))
        if self.slots is not None and len(self.slots.slot) == len(rows):
            return self.slots
        return Slots.one_a_row(rows, self.time, len(rows) - len(X))


def _in_steps(values: Float[Array, "Q groups steps *S"]) -> Float[Array, "Q T *S"]:
    return values.reshape(values.shape[0], -1, *values.shape[3:])
