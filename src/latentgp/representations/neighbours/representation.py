"""Nearest neighbours: each row's pseudo-target given those of the few nearest earlier rows."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Float, PyTree

from latentgp.kernels import LatentKernel, OwnKernels
from latentgp.likelihoods.base import Marginals
from latentgp.representations.base import Pullback, SiteUpdate
from latentgp.representations.neighbours.base import NearestRows
from latentgp.representations.neighbours.conditionals import ScaledSites, conditionals, slopes
from latentgp.representations.neighbours.latent import LatentNeighbours
from latentgp.representations.neighbours.posterior import NeighboursPosterior
from latentgp.sites.gaussian import GaussianSites, Rows
from latentgp.typing import Array

_MORE_PREDICTED = 5


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
            costs next to nothing.
        ordering: of the rows: "random", or "maximin", each the farthest from all before it
            (Guinness 2018), which takes O(N^2 D).
        search: "scaled" takes the nearest in inputs over length-scales, "correlation" of four times
            as many of these the most correlated.
        shared: whether precisions of sites are the same for all latent functions; a method sets it.
        found: neighbours of the rows; `for_rows` finds them.

    Raises:
        InputError: fewer than one neighbour; an unknown ordering or search.

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

    shared: bool = eqx.field(static=True, default=False)

    def configured_for(self, *, signed: bool, power: float) -> "Neighbours":
        return self

    def of_latents(self) -> LatentNeighbours:
        return LatentNeighbours(
            self.number, self.number_predicted, self.ordering, self.search, self.found
        )

    def sharing(self) -> "Neighbours":
        return dataclasses.replace(self, shared=True)

    def condition(
        self, kernel: LatentKernel, X: Float[Array, "N D"], sites: GaussianSites
    ) -> NeighboursPosterior:
        neighbours = jnp.asarray(self.rows_found(len(X)))
        scaled = self._scaled(kernel, sites)
        known, log_evidence = conditionals(kernel, X, neighbours, scaled)
        nothing = jnp.zeros((), X.dtype)
        number = self.number_predicted or _MORE_PREDICTED * self.number
        make: Any = NeighboursPosterior  # whose KL is found when it is asked for
        return make(
            kernel=kernel,
            X=X,
            sites=scaled,
            neighbours=neighbours,
            known=known,
            log_evidence=log_evidence,
            jitter=nothing,
            trace_term=nothing,
            number=number,
        )

    def update_sites(
        self,
        posterior: NeighboursPosterior,
        X: Float[Array, "N D"],
        rows: Rows,
        sites: GaussianSites,
        offset: Float[Array, "N Q"],
        update: SiteUpdate,
    ) -> tuple[GaussianSites, NeighboursPosterior, PyTree]:
        sites, other = update(rows, posterior.marginals(X), sites, offset)
        return sites, self.condition(posterior.kernel, X, sites.about(offset)), other

    def pull_back(
        self, posterior: NeighboursPosterior, X: Float[Array, "N D"], sites: GaussianSites
    ) -> Pullback:
        """Its marginals are the derivatives in the sites; variances among them may be negative."""
        scaled = posterior.sites
        slope = slopes(posterior.kernel, X, posterior.neighbours, scaled, posterior.known)
        root = jnp.broadcast_to(scaled.root, scaled.target.shape)
        there = root > 0
        root = jnp.where(there, root, 1.0)
        mean = jnp.where(there, slope.target / root, 0.0)
        in_precision = (slope.root - scaled.target * mean) / (2 * root)
        variance = jnp.where(there, -2 * in_precision - mean**2, 0.0)
        return Pullback(slope.kernel, None, Marginals(mean.T, variance.T))

    @property
    def is_one_gaussian(self) -> bool:
        return False

    def _scaled(self, kernel: LatentKernel, sites: GaussianSites) -> ScaledSites:
        once = self.shared and not isinstance(kernel, OwnKernels)
        precision = sites.precision.T[: 1 if once else None]
        root = jnp.sqrt(precision)
        there = root > 0
        target = jnp.where(there, sites.linear.T / jnp.where(there, root, 1.0), 0.0)
        return ScaledSites(root, target)
