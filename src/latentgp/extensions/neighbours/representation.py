"""Nearest neighbours: each row's pseudo-target given those of the few nearest earlier rows."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from latentgp.extensions.neighbours import full_scale
from latentgp.extensions.neighbours.base import NearestRows
from latentgp.extensions.neighbours.conditionals import ScaledSites, Terms, conditionals, slopes
from latentgp.extensions.neighbours.full_scale import law_of
from latentgp.extensions.neighbours.latent import LatentNeighbours
from latentgp.extensions.neighbours.posterior import NeighboursPosterior
from latentgp.kernels import LatentKernel, OwnKernels
from latentgp.likelihoods.base import Marginals
from latentgp.representations.base import Pullback
from latentgp.representations.site_form import SiteForm
from latentgp.representations.traits import Products, Traits
from latentgp.rows.arrays import evenly
from latentgp.sites.gaussian import GaussianSites
from latentgp.typing import Inputs

_A_PAIR, _ITS_COLUMN = 1_000, 15  # of neighbours of a row, in products: measured


class Neighbours(NearestRows):
    """Each row given the nearest of those before it (Vecchia 1988): O(N m^3) time, O(N m) memory.

    The evidence is that of the targets themselves, prod_i p(y_i | y_c(i)), for Gaussian noise and
    for classes by least squares; a new input sees the nearest of all rows (Katzfuss & Guinness
    2021, "response-first"). An approximation, and exact where every row sees all before it.
    Neighbours are found at the length-scales that a search starts from and again where it ends,
    until they stay the same.

    Args:
        number: of neighbours m.
        number_predicted: of the rows that a new input sees; five times as many unless given, which
            costs next to nothing. Of up to four coordinates it sees rows in all directions.
        ordering: of the rows: "random", or "maximin", each the farthest from all before it
            (Guinness 2018) at the length-scales of the start, which takes O(N^2 D).
        search: "scaled" takes the nearest in inputs over length-scales, "correlation" of six times
            as many of these, and of those near by each part of a sum whose parts see different
            columns, those that leave the least variance, one after another, with inducing points of
            what these leave. None is the second for sums and products of kernels of different
            columns, and with inducing points.
        inducing: number of inducing points, or `Inducing(...)` with points or their selection: the
            latent functions have their low rank, and neighbours see what it leaves (Gyger, Furrer
            & Sigrist 2025), in O(N (m^3 + m^2 M + M^2)) time and O(N (m + M)) memory. For functions
            that vary over long distances too, and for many inputs. Beside fixed effects and groups
            `Inducing(features=inter_domain.PerPart(M))` has all their coefficients, exactly, and M
            points of a field, of which neighbours see the rest.
        shared: whether precisions of sites are the same for all latent functions; a method sets it.
        terms: of so many rows stand for the evidence of all in a search; a method sets it.
        found: neighbours of the rows; `for_rows` finds them.

    Raises:
        InputError: fewer than one neighbour; an unknown ordering or search; other inducing points
            than a number, points or a selection.

    Example:
        >>> import jax, latentgp as lgp
        >>> data = lgp.Data([0.0, 1.0, 2.0], [0.0, 0.8, 0.9])
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(noise_variance=0.1))
        >>> method = lgp.ExactGP(lgp.Neighbours(2))
        >>> fit = lgp.fit(
        ...     model, data, method=method, key=jax.random.key(0), learn_hyperparameters=False
        ... )
        >>> round(float(fit.posterior.log_evidence), 4)
        -3.0033
    """

    seen_times: ClassVar[int] = 5

    shared: bool = eqx.field(static=True, default=False)
    terms: int | None = eqx.field(static=True, default=None)

    @property
    def traits(self) -> Traits:
        return dataclasses.replace(
            super().traits,
            one_gaussian=False,
            terms=self.terms,
            products=Products(_A_PAIR * self.number**2, _ITS_COLUMN * self.number**2),
        )

    def for_sites(self, form: SiteForm) -> NearestRows:
        if not form.moved:
            return dataclasses.replace(self, shared=form.shared)
        settings = self.number, self.number_predicted, self.ordering, self.search, self.found
        return LatentNeighbours(*settings, self.inducing).for_sites(form)

    def condition(
        self, kernel: LatentKernel, X: Inputs, sites: GaussianSites
    ) -> NeighboursPosterior:
        neighbours = jnp.asarray(self.rows_found(len(X)))
        scaled = self._scaled(kernel, sites)
        nothing = jnp.zeros((), X.dtype)
        if self.inducing is None:
            known, log_evidence = conditionals(kernel, X, neighbours, scaled, self._terms)
            low_rank, jitter = None, nothing
        else:
            laws = law_of(kernel, X, neighbours, scaled, self._points)
            known, low_rank, log_evidence, jitter = laws
        found: Any = self.found
        make: Any = NeighboursPosterior  # whose KL is found when it is asked for
        return make(
            kernel=kernel,
            X=X,
            sites=scaled,
            neighbours=neighbours,
            known=known,
            log_evidence=log_evidence,
            jitter=jitter,
            number=self.seen,
            low_rank=low_rank,
            blocks=found.blocks,
            order=found.order,
        )

    def pull_back(
        self, posterior: NeighboursPosterior, X: Inputs, sites: GaussianSites
    ) -> Pullback:
        """Its marginals are the derivatives in the sites; variances among them may be negative."""
        scaled = posterior.sites
        known: Any = posterior.known
        own = posterior.kernel, X, posterior.neighbours, scaled, known
        places = None
        if self.inducing is None or posterior.low_rank is None:
            slope = slopes(*own, self._terms)
        else:
            slope = full_scale.slopes(*own, posterior.low_rank)
            places = self._in_points(slope.points)
        root = jnp.broadcast_to(scaled.root, scaled.target.shape)
        there = root > 0
        root = jnp.where(there, root, 1.0)
        mean = jnp.where(there, slope.target / root, 0.0)
        in_precision = (slope.root - scaled.target * mean) / (2 * root)
        variance = jnp.where(there, -2 * in_precision - mean**2, 0.0)
        return Pullback(slope.kernel, places, Marginals(mean.T, variance.T))

    def chosen_terms(self, ordered: Int[np.ndarray, "M"]) -> Int[np.ndarray, "terms"] | None:
        if self.terms is None or self.terms >= len(ordered):
            return None
        return ordered[evenly(len(ordered), self.terms)]

    def on_some_rows(
        self, X: Inputs, weights: PerRow | None, kernel: LatentKernel, number: int
    ) -> tuple[Int[np.ndarray, "M"] | None, "Neighbours"]:
        """The terms of so many of all rows; these rows alone beside inducing points."""
        if self.inducing is not None:
            return evenly(len(X), number), self
        return None, dataclasses.replace(self, terms=number, found=None)

    @property
    def _terms(self) -> Terms:
        found: Any = self.found
        if found.terms is None:
            return Terms(jnp.arange(len(found.rows)), 1.0)
        return Terms(jnp.asarray(found.terms), len(found.order) / len(found.terms))

    def _scaled(self, kernel: LatentKernel, sites: GaussianSites) -> ScaledSites:
        once = self.shared and not isinstance(kernel, OwnKernels)
        precision = sites.precision.T[: 1 if once else None]
        root = jnp.sqrt(precision)
        there = root > 0
        target = jnp.where(there, sites.linear.T / jnp.where(there, root, 1.0), 0.0)
        return ScaledSites(root, target)
