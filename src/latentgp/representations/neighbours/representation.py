"""Nearest neighbours: each row's pseudo-target given those of the few nearest earlier rows."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Float, Int, Key, PyTree

from latentgp.errors import InputError
from latentgp.kernels import LatentKernel, OwnKernels, is_tabulated
from latentgp.likelihoods.base import Marginals
from latentgp.representations.base import Pullback, Representation, SiteUpdate
from latentgp.representations.latent_axis import distinct_kernels
from latentgp.representations.neighbours.conditionals import ScaledSites, conditionals, slopes
from latentgp.representations.neighbours.posterior import NeighboursPosterior
from latentgp.representations.neighbours.search import (
    NOBODY,
    Ordering,
    SearchBy,
    coordinates,
    neighbours_of,
    order_of,
)
from latentgp.representations.whitening import Whitening
from latentgp.sites.gaussian import GaussianSites, Rows
from latentgp.typing import Array

_MORE_PREDICTED = 5
_FEW_CHANGED = 0.05


class Found(NamedTuple):
    """Neighbours of rows.

    Attributes:
        rows: their numbers, shape (N, #Q, K); -1 where a row has fewer.
        order: of the rows that have a weight.
    """

    rows: Int[Array, "N #Q K"]
    order: Int[Array, "N"]


class Neighbours(Representation):
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

    number: int = eqx.field(static=True, default=20)
    number_predicted: int | None = eqx.field(static=True, default=None)
    ordering: Ordering = eqx.field(static=True, default="random")
    search: SearchBy = eqx.field(static=True, default="scaled")
    shared: bool = eqx.field(static=True, default=False)
    found: Found | None = None

    def __check_init__(self) -> None:
        if self.number < 1 or (self.number_predicted is not None and self.number_predicted < 1):
            raise InputError(
                "Neighbours needs at least one neighbour a row and a new input, got "
                f"number={self.number} and number_predicted={self.number_predicted}; give for "
                "example Neighbours(20)."
            )
        for name, known in (("ordering", Ordering), ("search", SearchBy)):
            if getattr(self, name) not in get_args(known):
                raise InputError(
                    f"Neighbours.{name} must be one of {', '.join(get_args(known))}, got "
                    f"{getattr(self, name)!r}."
                )

    def initialise(
        self,
        X: Float[Array, "N D"],
        weights: Float[Array, "N"] | None,
        kernel: LatentKernel,
        key: Key[Array, ""],
    ) -> "Neighbours":
        if is_tabulated(kernel):
            raise InputError("Precomputed has no inputs in which rows are near; use Dense().")
        return self

    def for_rows(
        self, X: Float[Array, "N D"], weights: Float[Array, "N"] | None, kernel: LatentKernel
    ) -> "Neighbours":
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((X, weights, kernel))):
            if self.found is None or len(self.found.rows) != len(X):
                raise InputError(
                    "Neighbours cannot be found inside grad, jit or vmap; give the method a "
                    "representation that has them, Neighbours(...).for_rows(X, None, kernel)."
                )
            return self
        X = np.asarray(X)
        real = np.arange(len(X)) if weights is None else np.flatnonzero(np.asarray(weights) > 0)
        columns = max(1, min(self.number, len(X) - 1))
        each = distinct_kernels(kernel)
        order = None if self.found is None else np.asarray(self.found.order)
        if order is None or len(order) != len(real):
            inputs = jnp.asarray(X[real])
            order = order_of(np.asarray(coordinates(each[0], inputs, inputs)), self.ordering)
        rows = np.full((len(X), len(each), columns), NOBODY)
        for q, own in enumerate(each):
            near = neighbours_of(own, X[real], order, columns, self.search)
            rows[real, q] = np.where(near == NOBODY, NOBODY, real[near])
        return dataclasses.replace(self, found=Found(rows, order))

    def renewed(
        self, X: Float[Array, "N D"], weights: Float[Array, "N"] | None, kernel: LatentKernel
    ) -> "Neighbours | None":
        again = self.for_rows(X, weights, kernel)
        old, new = self._found(len(X)), again._found(len(X))
        kept = sum(np.any(old == new[..., k : k + 1], axis=-1) for k in range(new.shape[-1]))
        return again if 1 - np.mean(kept) / new.shape[-1] > _FEW_CHANGED else None

    def configured_for(self, *, signed: bool, power: float) -> "Neighbours":
        return self

    def sharing(self) -> "Neighbours":
        return dataclasses.replace(self, shared=True)

    def condition(
        self, kernel: LatentKernel, X: Float[Array, "N D"], sites: GaussianSites
    ) -> NeighboursPosterior:
        neighbours = jnp.asarray(self._found(len(X)))
        scaled = self._scaled(kernel, sites)
        known, log_evidence = conditionals(kernel, X, neighbours, scaled)
        nothing = jnp.zeros((), X.dtype)
        number = self.number_predicted or _MORE_PREDICTED * self.number
        make: Any = NeighboursPosterior  # whose KL is found when it is asked for
        return make(kernel, X, scaled, neighbours, known, log_evidence, nothing, nothing, number)

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

    def whitening(self, kernel: LatentKernel, X: Float[Array, "N D"]) -> Whitening:
        raise InputError(
            "Neighbours(...) has no white coefficients, as its evidence is that of targets with "
            "Gaussian noise; use Dense() or Inducing(...) for sampling."
        )

    @property
    def evidence_is_exact(self) -> bool:
        return False

    @property
    def is_one_gaussian(self) -> bool:
        return False

    @property
    def one_coefficient_a_row(self) -> bool:
        return True

    def _found(self, rows: int) -> Any:
        if self.found is None or len(self.found.rows) != rows:
            raise InputError(
                f"Neighbours have not been found for these {rows} rows; call "
                "for_rows(X, weights, kernel) first."
            )
        return self.found.rows

    def _scaled(self, kernel: LatentKernel, sites: GaussianSites) -> ScaledSites:
        once = self.shared and not isinstance(kernel, OwnKernels)
        precision = sites.precision.T[: 1 if once else None]
        root = jnp.sqrt(precision)
        there = root > 0
        target = jnp.where(there, sites.linear.T / jnp.where(there, root, 1.0), 0.0)
        return ScaledSites(root, target)
