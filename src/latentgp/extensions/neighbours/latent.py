"""Nearest neighbours of latents: one Gaussian posterior for any sites."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int, PyTree, UInt32

from latentgp.errors import check_whole, lacks
from latentgp.extensions.neighbours.base import NearestRows
from latentgp.extensions.neighbours.full_scale import (
    LowRankPrior,
    features_given,
    features_if_any,
    inverse_root,
)
from latentgp.extensions.neighbours.latent_low_rank import FullScaleOperator
from latentgp.extensions.neighbours.latent_posterior import (
    CoupledNeighboursPosterior,
    LatentNeighboursPosterior,
    with_draws,
)
from latentgp.extensions.neighbours.latent_precision import FEW, PosteriorPrecision, mean_given
from latentgp.extensions.neighbours.latent_slopes import (
    LatentPullback,
    PriorSlopes,
    slopes_given,
    slopes_in_prior,
)
from latentgp.extensions.neighbours.latent_solves import diagonal_of, mean_by_kept, solved
from latentgp.extensions.neighbours.levels import Levels, levels_of
from latentgp.extensions.neighbours.near import NearRows
from latentgp.extensions.neighbours.near_draws import NearDraws
from latentgp.extensions.neighbours.prior import (
    Regression,
    TriangularFactors,
    nugget_of,
    posterior_regression,
    regression,
)
from latentgp.extensions.neighbours.root import (
    NeighbourSampler,
    SparseRoot,
    SparseWhitening,
    preconditioned,
)
from latentgp.extensions.neighbours.search import PLACE_COLUMNS, far_and_near
from latentgp.kernels import LatentKernel
from latentgp.posteriors.draws_at_rows import at_rows
from latentgp.representations.base import SiteUpdate
from latentgp.representations.site_form import SiteForm
from latentgp.representations.traits import Products, Traits
from latentgp.rows.arrays import evenly
from latentgp.rows.data import Data
from latentgp.runtime.programs import Program
from latentgp.sites.coupled import Sites
from latentgp.sites.gaussian import Rows
from latentgp.typing import Array, Inputs, PerRow, RandomKey, RowLatents, Scalar

_A_PAIR = 3_000  # of neighbours of a row, in products: measured


class RowPrior(NamedTuple):
    """The prior at the rows, under one kernel."""

    X: Inputs
    prior: Regression
    factor: TriangularFactors
    low_rank: LowRankPrior | None
    jitter: Scalar
    # of each latent given neighbours and sites, for a preconditioner; None is by sites given
    own: Regression | None = None


class LatentNeighbours(NearestRows):
    """Each latent given the nearest of those before it (Datta et al. 2016; Vecchia 1988).

    A Gaussian prior with a sparse precision, so that every rule for sites has one Gaussian
    posterior. Solves with that posterior's precision are by conjugate gradients, its
    log-determinant by Lanczos quadrature and its variances by simulation, unless there are few
    latents. Methods whose sites move, such as `Laplace`, take it where they are given
    `Neighbours(m)`. Sites may couple the latents of a row, by blocks of Q x Q in the precision
    that solves go by; the preconditioner does not, so that they take more steps.

    Args:
        probes: number of probe vectors of log-determinants, gradients and variances at the rows.
        draws: number of draws that variances at new inputs are found by, at the end of a fit: with
            S of them the part of a variance that the rows leave has a relative error of
            sqrt(2 / S).
        exact_up_to: number of latents up to which there is nothing stochastic, by a dense factor.
        inducing: number of inducing points, or `Inducing(...)`, as `Neighbours` takes them: the
            latents are their low rank and what it leaves, given its neighbours.
        latents: number of latent functions; a method sets it.
        means_only: whether nothing but means is asked for; likewise.

    Raises:
        InputError: fewer than two probe vectors or draws, and what `Neighbours` refuses.
    """

    seen_times: ClassVar[int] = 2

    probes: int = eqx.field(static=True, default=16)
    draws: int = eqx.field(static=True, default=128)
    exact_up_to: int = eqx.field(static=True, default=FEW)
    latents: int = eqx.field(static=True, default=1)
    means_only: bool = eqx.field(static=True, default=False)
    key: UInt32[Array, "2"] | None = None
    later: Int[Array, "N #Q later"] | None = None
    levels: tuple[Levels, ...] | None = None
    real: Bool[Array, "N"] | None = None

    def __check_init__(self) -> None:
        check_whole(self, probes=2, draws=2, exact_up_to=0)

    def initialise(
        self, X: Inputs, weights: PerRow | None, kernel: LatentKernel, key: RandomKey
    ) -> "LatentNeighbours":
        ready: Any = super().initialise(X, weights, kernel, key)
        return dataclasses.replace(ready, key=jax.random.key_data(key))

    def for_rows(
        self, X: Inputs, weights: PerRow | None, kernel: LatentKernel
    ) -> "LatentNeighbours":
        ready: Any = super().for_rows(X, weights, kernel)
        if ready is self:
            return self
        real = np.ones(len(X), bool) if weights is None else np.asarray(weights) > 0
        numbers, order = np.flatnonzero(real), ready.found.order
        each = np.moveaxis(ready.found.rows, 1, 0)
        levels = tuple(levels_of(own, order) for own in each)
        later = self.near_rows(X, numbers, kernel, np.searchsorted(numbers, order)[::-1])
        later = later[:, :, : max(1, later.shape[2] // 2)]
        return dataclasses.replace(ready, levels=levels, real=real, later=later)

    def kept(self, kernel: LatentKernel, X: Inputs, sites: Sites) -> RowPrior:
        """With the preconditioner of these sites for later ones too, where means are all."""
        kept = self._prior(kernel, X)
        if not self.means_only:
            return kept
        return kept._replace(own=self._given_sites(kernel, kept, sites))

    def _prior(self, kernel: LatentKernel, X: Inputs) -> RowPrior:
        low_rank, jitter = None, jnp.max(nugget_of(kernel, X))
        if self.inducing is not None:
            inverse, of_points = inverse_root(kernel, self._points)
            features = features_given(kernel, self._points, inverse, X)
            low_rank = LowRankPrior(self._points, inverse, features)
            jitter = jnp.maximum(jitter, jnp.max(of_points))
        prior = regression(
            kernel, X, jnp.asarray(self.rows_found(len(X))), features_if_any(low_rank)
        )
        factor = TriangularFactors.of(prior.weights, self._levels)
        return RowPrior(X, prior, factor, low_rank, jitter)

    def _given_sites(self, kernel: LatentKernel, kept: RowPrior, sites: Sites) -> Regression:
        rows = jnp.asarray(self.rows_found(len(kept.X))), jnp.asarray(self.later)
        features = features_if_any(kept.low_rank)
        return posterior_regression(kernel, kept.X, *rows, sites.precisions, features)

    def _operator(self, kept: RowPrior, sites: Sites, own: Regression) -> PosteriorPrecision:
        prior = SparseRoot(kept.prior, jnp.asarray(self.rows_found(len(kept.X))), kept.factor)
        M = preconditioned(prior, self._levels, own, sites.precision)
        features = features_if_any(kept.low_rank)
        return M if features is None else FullScaleOperator.of(M, features, sites.precisions)

    def _anew(self, kernel: LatentKernel, kept: RowPrior, sites: Sites) -> PosteriorPrecision:
        return self._operator(kept, sites, self._given_sites(kernel, kept, sites))

    def condition(self, kernel: LatentKernel, X: Any, sites: Sites) -> LatentNeighboursPosterior:
        kept = X if isinstance(X, RowPrior) else self._prior(kernel, X)
        neighbours = jnp.asarray(self.rows_found(len(kept.X)))
        precision, fresh = sites.precision, partial(self._anew, kernel, kept, sites)
        diagonal = diagonal_of(kept.prior, neighbours, precision)
        if kept.own is None:
            M, exact = fresh(), sites.linear.size <= self.exact_up_to
            probes = 0 if self.means_only else self.probes
            found = solved(M, diagonal, sites.linear, self._key, probes, exact)
        else:
            M = self._operator(kept, sites, kept.own)
            M, found = mean_by_kept(M, fresh, diagonal, sites.linear)
        # Whose evidence and KL are found when asked for.
        kinds: Any = {2: LatentNeighboursPosterior, 3: CoupledNeighboursPosterior}
        return kinds[precision.ndim](
            kernel=kernel,
            X=kept.X,
            neighbours=neighbours,
            prior=kept.prior,
            operator=M,
            real=jnp.asarray(self.real),
            sites=sites,
            solved=found,
            jitter=kept.jitter,
            number=self.seen,
            blocks=self._blocks,
            order=None if self.found is None else self.found.order,
            low_rank=kept.low_rank,
        )

    @property
    def _key(self) -> RandomKey:
        return jax.random.key(0) if self.key is None else jax.random.wrap_key_data(self.key)

    @property
    def _levels(self) -> tuple[Levels, ...]:
        assert self.levels is not None
        return self.levels

    def update_sites(
        self,
        posterior: LatentNeighboursPosterior,
        X: Any,
        rows: Rows,
        sites: Sites,
        offset: RowLatents,
        update: SiteUpdate,
    ) -> tuple[Sites, LatentNeighboursPosterior, PyTree]:
        own = posterior.prior, posterior.operator.sparse.factor
        kept = RowPrior(posterior.X, *own, posterior.low_rank, posterior.jitter)
        kept = X if isinstance(X, RowPrior) else kept
        sites, other = update(rows, posterior.at_rows, sites, offset)
        return sites, self.condition(posterior.kernel, kept, sites.about(offset)), other

    def pull_back(self, posterior: LatentNeighboursPosterior, X: Inputs, sites: Sites) -> Any:
        in_prior = slopes_in_prior(posterior)
        slope, in_points = slopes_given(posterior, in_prior)
        places = None if in_points is None else self._in_points(in_points)
        return LatentPullback(slope, places, posterior.at_rows, posterior, in_prior)

    def linearised(
        self, posterior: LatentNeighboursPosterior, X: Inputs, sites: Sites
    ) -> Callable[[RowLatents], tuple[PriorSlopes, RowLatents]]:
        """By one more solve: along s the mean moves by A^-1 s, and no other solve does."""
        start = posterior.solved.mean, posterior.sites.linear

        def in_prior(*start: Array) -> PriorSlopes:
            places = lambda p: (p.solved.mean, p.sites.linear)  # noqa: E731
            return slopes_in_prior(eqx.tree_at(places, posterior, start))

        def move(along: RowLatents) -> tuple[PriorSlopes, RowLatents]:
            shift = mean_given(posterior.operator, along)
            change = jax.jvp(in_prior, start, (shift, along))[1]
            return change, posterior.operator.at_rows(shift[..., None])[..., 0]

        return move

    def whitening(self, kernel: LatentKernel, X: Inputs) -> SparseWhitening:
        """One coefficient a row: g = B^-1 D^(1/2) v, in O(N m) given B and D."""
        if self.inducing is not None:
            lacks(
                self,
                "no white coefficients with inducing points, which chains move; leave inducing "
                "out, or use a method by sites, such as VariationalInference",
            )
        _, prior, factor, *_ = self._prior(kernel, X)
        return SparseWhitening(
            centres=jnp.asarray(X),
            residual=jnp.zeros_like(prior.variance),
            jitter=jnp.max(nugget_of(kernel, X)),
            root=SparseRoot(prior, jnp.asarray(self.rows_found(len(X))), factor),
            kernel=kernel,
            later=jnp.asarray(self.later),
            levels=self._levels,
        )

    def sampler(self, kernel: LatentKernel, X: Inputs, power: float = 0.0) -> NeighbourSampler:
        whitening = self.whitening(kernel, X)
        return NeighbourSampler(whitening.centres, whitening.jitter, whitening)

    def rows_seen(self, X: Inputs) -> NearRows:
        """The rows, of which a new input sees the nearest."""
        assert self.real is not None
        absent, own = ~np.asarray(self.real), len(self._levels) > 1
        return NearRows(np.asarray(X), absent, self.seen, own, self._blocks)

    def draws_at_rows(self, draws: Any) -> NearDraws:
        """Draws of the coefficients as draws of g at the rows."""
        g = np.asarray(at_rows(draws, self))
        models = draws.mean_model, draws.models, draws.own
        return NearDraws(*models, rows=self.rows_seen(draws.centres), g=g)

    @property
    def _blocks(self) -> Int[Array, "K S"] | None:
        return None if self.found is None else self.found.blocks

    def finished(
        self, posterior: LatentNeighboursPosterior, rows: Data | None = None
    ) -> LatentNeighboursPosterior:
        if posterior.sites.linear.size <= self.exact_up_to:
            return posterior
        return _with_draws(posterior, jax.random.fold_in(self._key, 1), self.draws)

    @property
    def traits(self) -> Traits:
        found = self.found
        return dataclasses.replace(
            super().traits,
            estimates_evidence=found is None or len(found.rows) * self.latents > self.exact_up_to,
            products=Products(_A_PAIR * self.number**2),
            notes=(
                f"Each latent sees the {self.number} neighbours that are nearest at the "
                "hyper-parameters where chains start, whatever length-scales these draw.",
            ),
        )

    def for_sites(self, form: SiteForm) -> "LatentNeighbours":
        own = {"latents": form.latents, "means_only": form.means_alone}
        return dataclasses.replace(self, **own)

    def on_some_rows(
        self, X: Inputs, weights: PerRow | None, kernel: LatentKernel, number: int
    ) -> tuple[Int[np.ndarray, "M"], "LatentNeighbours"]:
        """Of places some in patches: neighbours there are as near as among all rows."""
        patches = X.shape[1] <= PLACE_COLUMNS and number < len(X)
        rows = far_and_near(np.asarray(X), number) if patches else evenly(len(X), number)
        return rows, self


_with_draws = Program(with_draws, static_argnums=(2,))
