"""Latent functions of one time-like input as state-space processes: exact, in O(N)."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Int

from latentgp.errors import check_whole
from latentgp.extensions.state_space.conditioned_draws import ConditionedDraws
from latentgp.extensions.state_space.kernels import Truncation, time_columns
from latentgp.extensions.state_space.markov.beliefs import Filter
from latentgp.extensions.state_space.markov.filtering import SmoothedMarginals, filtered, smoothed
from latentgp.extensions.state_space.markov.posterior import MarkovPosterior
from latentgp.extensions.state_space.markov.processes import (
    ProcessPosterior,
    in_groups,
    latents_of_groups,
    spaces_of,
    together,
)
from latentgp.extensions.state_space.markov.remembered import (
    RememberedRows,
    sites_with_earlier,
    with_earlier,
)
from latentgp.extensions.state_space.markov.root import MarkovSampler, MarkovWhitening
from latentgp.extensions.state_space.markov.series import RowOrder, Series, order_of, usual_lanes
from latentgp.kernels import LatentKernel
from latentgp.likelihoods.base import Marginals
from latentgp.representations.base import Pullback, Representation
from latentgp.representations.latent_axis import latent_diagonals
from latentgp.representations.site_form import SiteForm
from latentgp.representations.traits import Traits
from latentgp.rows.data import Data
from latentgp.sites.gaussian import GaussianSites
from latentgp.typing import Inputs, PerRow, RandomKey

_MOST_STATES_IN_LANES = 12
_STRETCHES = 8  # of rows that are looked at first
_JITTER = 1e-12  # of the prior variance, where f itself is drawn row after row


class Markov(Representation):
    """State-space form of kernels of one time-like column: exact given the sites, O(N) time.

    Filter and smoother of a process of few states (Hartikainen & Särkkä 2010; Särkkä & Solin
    2019), for `Matern12`, `Matern32`, `Matern52`, `MaternHalfInteger`, `Cosine`, `Linear`,
    `Constant`, `White`, sums and products of them; `Periodic` by a series and `RBF` by an
    approximation, whose errors are in the posterior's notes. Times may come in any order, tie and
    have gaps. A factor `White().on(column)` makes independent series of the values of a column,
    under the same hyper-parameters.

    Args:
        lanes: number of stretches of the series that are filtered side by side; None for as many
            as suit the number of rows and the device, 1 for one loop over all rows.
        rbf_states: number of states of an `RBF` kernel: 6 are off by 3e-3 of the variance, 10 by
            1.3e-4.
        harmonics: of a `Periodic` kernel, above the constant.
        remembered: rows so far with their sites, `Posterior.remembered()`, which others are added
            to; exact.

    Raises:
        InputError: a setting that is no whole number from 1, or what is remembered of other rows,
            or rows from before the states that it goes on from.

    Example:
        >>> import jax, numpy as np, latentgp as lgp
        >>> model = lgp.LatentGP(lgp.Matern32(), lgp.Gaussian())
        >>> X = np.linspace(0, 10, 50)
        >>> method = lgp.ExactGP(lgp.Markov())
        >>> result = lgp.fit(model, lgp.Data(X, np.sin(X)), method=method, key=jax.random.key(0))
        >>> result.posterior.predict_f(np.array([2.5])).mean.shape
        (1,)
    """

    lanes: int | None = eqx.field(static=True, default=None)
    rbf_states: int = eqx.field(static=True, default=6)
    harmonics: int = eqx.field(static=True, default=10)
    signed: bool = eqx.field(static=True, default=False)
    in_order: bool = eqx.field(static=True, default=False)
    order: RowOrder | None = None
    remembered: RememberedRows | None = None

    def __check_init__(self) -> None:
        check_whole(self, lanes=1, rbf_states=1, harmonics=1)

    def initialise(
        self, X: Inputs, weights: PerRow | None, kernel: LatentKernel, key: RandomKey
    ) -> "Markov":
        if self.remembered is not None:
            self.remembered.check_columns(X.shape[1])
        spaces_of(kernel, X.shape[1], self.truncation)
        if self.remembered is not None and not isinstance(X, Tracer):
            self.remembered.check(np.asarray(X), time_columns(kernel, X.shape[1])[0])
        return self

    def for_rows(self, X: Inputs, weights: PerRow | None, kernel: LatentKernel) -> "Markov":
        if isinstance(X, Tracer):
            return dataclasses.replace(self, order=None, in_order=False)
        columns, _ = time_columns(kernel, X.shape[1])
        order = order_of(np.asarray(with_earlier(self.remembered, X)), columns, np)
        in_order = np.array_equal(order.rows, np.arange(len(order.rows)))
        return dataclasses.replace(self, order=None if in_order else order, in_order=in_order)

    @property
    def truncation(self) -> Truncation:
        """Truncation of approximated kernels."""
        return Truncation(self.rbf_states, self.harmonics)

    @property
    def traits(self) -> Traits:
        return Traits(
            evidence="exact",
            one_coefficient_a_row=True,
            dense_factors=False,
            coordinates_of_sites=False,
            signed_sites=True,
            powers=True,
        )

    def for_sites(self, form: SiteForm) -> "Markov":
        earlier = self.remembered is not None and self.remembered.signed
        return dataclasses.replace(self, signed=form.signed or earlier)

    @property
    def streaming_prior(self) -> RememberedRows | None:
        return self.remembered

    def on_some_rows(
        self, X: Inputs, weights: PerRow | None, kernel: LatentKernel, number: int
    ) -> tuple[Int[np.ndarray, "M"], "Markov"]:
        """Stretches of consecutive rows: rows far apart tell nothing of short length-scales."""
        rows = len(X)
        if number >= rows:
            return np.arange(rows), self
        length = max(number // _STRETCHES, 1)
        begin = np.linspace(0, rows - length, number // length).astype(int)
        places = np.unique(begin[:, None] + np.arange(length))
        if self.order is None or len(self.order.rows) != rows:
            return places, self
        return np.sort(np.asarray(self.order.rows)[places]), self

    def filters(self, kernel: LatentKernel, inputs: int) -> list[Filter]:
        """The processes of the latent functions, those of one structure together."""
        spaces = spaces_of(kernel, inputs, self.truncation)
        starts = () if self.remembered is None else self.remembered.starts
        return [
            Filter(space, self.signed, own)
            for space, own in zip(spaces, starts or [None] * len(spaces), strict=True)
        ]

    def series(self, kernel: LatentKernel, X: Inputs) -> Series:
        """The rows in the order of time, in lanes."""
        lanes = self.lanes
        if lanes is None:
            states = max(f.space.size for f in self.filters(kernel, X.shape[1]))
            lanes = usual_lanes(len(X)) if states <= _MOST_STATES_IN_LANES else 1
        return self._in_lanes(kernel, X, min(lanes, len(X)))

    def _in_lanes(self, kernel: LatentKernel, X: Inputs, lanes: int) -> Series:
        """The rows in so many lanes, in the order that is known or else found."""
        columns, _ = time_columns(kernel, X.shape[1])
        order = self.order
        if (order is None and not self.in_order) or (order and len(order.rows) != len(X)):
            order = order_of(X, columns)
        known = 0 if self.remembered is None else self.remembered.known
        return Series.of(X, columns, order, lanes, known)

    def condition(self, kernel: LatentKernel, X: Inputs, sites: GaussianSites) -> MarkovPosterior:
        rows, latents = sites.linear.shape
        groups = latents_of_groups(kernel, X.shape[1], latents)
        X, sites = with_earlier(self.remembered, X), sites_with_earlier(self.remembered, sites)
        series = self.series(kernel, X)
        linear, precision = series.to_lanes(sites.linear), series.to_lanes(sites.precision)
        parts = []
        for process, told, known in zip(
            self.filters(kernel, X.shape[1]),
            in_groups(linear, groups),
            in_groups(precision, groups),
            strict=True,
        ):
            found = filtered(process, series, told, known)
            smooth, _ = smoothed(process, series, known, found, slopes=False)
            parts.append(ProcessPosterior(process, found, smooth))
        zero = jnp.zeros((), X.dtype)
        mean, variance = _at_rows(series, [part.smoothed for part in parts], groups)
        prior = jnp.broadcast_to(latent_diagonals(kernel, X).T, variance.shape)
        make: Any = MarkovPosterior  # whose KL is found when asked for
        return make(
            kernel=kernel,
            X=X,
            series=series,
            sites=sites,
            parts=tuple(parts),
            at_all_rows=Marginals(mean, jnp.clip(variance, 0.0, prior)),
            log_evidence_of_sites=sum((jnp.sum(p.filtered.log_evidence) for p in parts), zero),
            constant=zero if self.remembered is None else self.remembered.constant,
            earlier=len(X) - rows,
            jitter=zero,
            trace_term=zero,
            truncation=self.truncation,
        )

    def finished(self, posterior: MarkovPosterior, rows: Data | None = None) -> MarkovPosterior:
        return dataclasses.replace(posterior, rows=rows)

    def marginals_at_rows(self, posterior: MarkovPosterior, X: Inputs) -> Marginals:
        return posterior.at_rows

    def pull_back(self, posterior: MarkovPosterior, X: Inputs, sites: GaussianSites) -> Pullback:
        groups = latents_of_groups(posterior.kernel, X.shape[1], sites.linear.shape[1])
        series, first = posterior.series, posterior.earlier
        precision = in_groups(series.to_lanes(posterior.sites.precision), groups)
        found = [
            smoothed(part.process, series, w, part.filtered, slopes=True)
            for part, w in zip(posterior.parts, precision, strict=True)
        ]
        smooth, slopes = map(list, zip(*found, strict=True))
        _, pull = jax.vjp(lambda k: spaces_of(k, X.shape[1], self.truncation), posterior.kernel)
        marginals = Marginals(*(a[first:] for a in _at_rows(series, smooth, groups)))
        return Pullback(pull(slopes)[0], None, marginals)

    def whitening(self, kernel: LatentKernel, X: Inputs) -> MarkovWhitening:
        """One coefficient a row: what is new of f there, given f at the rows before it."""
        process = [Filter(space, True) for space in spaces_of(kernel, X.shape[1], self.truncation)]
        prior = latent_diagonals(kernel, X)
        groups = latents_of_groups(kernel, X.shape[1], len(prior))
        return MarkovWhitening(
            centres=jnp.asarray(X),
            residual=jnp.zeros_like(prior),
            jitter=_JITTER * jax.lax.stop_gradient(jnp.max(prior)),
            filters=process,
            series=self._in_lanes(kernel, X, 1),
            groups=tuple(groups) if len(prior) > 1 else None,
        )

    def sampler(self, kernel: LatentKernel, X: Inputs, power: float = 0.0) -> MarkovSampler:
        return MarkovSampler(
            centres=X,
            jitter=jnp.zeros((), X.dtype),
            filters=self.filters(kernel, X.shape[1]),
            series=self.series(kernel, X),
            whitening=self.whitening(kernel, X),
        )

    def draws_at_rows(self, draws: Any) -> ConditionedDraws:
        """Draws of the coefficients as draws of g at the rows."""
        return ConditionedDraws.of(draws, self)

    def continues(self, remembered: Any) -> bool:
        """Whether a summary is of its kind, so that further rows can be added to it."""
        return type(remembered) in (RememberedRows, type(None))

    def extended(self, number: int | None, selection: str, remembered: Any) -> "Markov":
        """The same with a summary of the rows so far, exact whatever the number and selection."""
        if remembered is None:
            return dataclasses.replace(self, remembered=None)
        states, harmonics = remembered.truncation
        return dataclasses.replace(
            self, remembered=remembered, rbf_states=states, harmonics=harmonics
        )


def _at_rows(
    series: Series, found: list[SmoothedMarginals], groups: list[tuple[int, ...]]
) -> Marginals:
    """Marginals at the rows from those of each group in lanes."""
    each = zip(*(own[:2] for own in found), strict=True)
    mean, variance = (together(list(map(series.to_rows, own)), groups) for own in each)
    return Marginals(mean, variance)
