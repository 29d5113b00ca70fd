"""Common part of representations by nearest rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Float, Int

from latentgp.errors import InputError, check_choices, check_ranges
from latentgp.extensions.neighbours.full_scale import features_of
from latentgp.extensions.neighbours.near import sees_all_round
from latentgp.extensions.neighbours.search import (
    NOBODY,
    Ordering,
    SearchBy,
    blocks_of,
    coordinates,
    neighbours_of,
    order_of,
    parts_apart,
    varies_apart,
)
from latentgp.kernels import LatentKernel
from latentgp.representations.base import Representation
from latentgp.representations.inducing.representation import Inducing
from latentgp.representations.latent_axis import distinct_kernels
from latentgp.representations.needs import Needs, chosen
from latentgp.representations.traits import Traits
from latentgp.representations.variables import Centres
from latentgp.typing import Array, Inputs, NeighbourRows, PerRow, RandomKey

_FEW_CHANGED = 0.05  # of the neighbours, where they are kept


class NeighbourSets(NamedTuple):
    """Neighbours of rows."""

    rows: NeighbourRows  # their numbers, shape (N, #Q, V); -1 where a row has fewer
    order: Int[Array, "M"]  # of the rows that have a weight, their numbers
    # those whose terms of the evidence stand for all; None for all. Others may have none.
    terms: Int[Array, "terms"] | None = None
    # of rows near each other, among which a new input looks; None where inputs are many
    blocks: Int[Array, "K S"] | None = None

    def hardly_differs(
        self,
        rows: NeighbourRows,
        order: Int[np.ndarray, "M"],
        terms: Int[np.ndarray, "terms"] | None,
    ) -> bool:
        """Whether nearly all neighbours of rows with a term are among these, in the same order."""
        if len(rows) != len(self.rows) or not np.array_equal(order, self.order):
            return False
        some = slice(None) if terms is None else terms
        both = (terms is None) == (self.terms is None)
        if not both or (terms is not None and not np.array_equal(terms, np.asarray(self.terms))):
            return False
        old, new = np.asarray(self.rows)[some], rows[some]
        kept = sum(np.any(old == new[..., k : k + 1], axis=-1) for k in range(new.shape[-1]))
        return bool(1 - np.mean(kept) / new.shape[-1] <= _FEW_CHANGED)


def _as_inducing(value: int | Inducing | None) -> Inducing | None:
    return Inducing(value) if isinstance(value, int) else value


class NearestRows(Representation):
    """Representation in which a row sees the nearest of those before it, which it holds."""

    seen_times: ClassVar[int]  # as many rows as neighbours a new input sees, unless given

    number: int = eqx.field(static=True, default=20)  # of neighbours m
    # of the rows that a new input sees
    number_predicted: int | None = eqx.field(static=True, default=None)
    # of the rows: "random", or "maximin"
    ordering: Ordering = eqx.field(static=True, default="random")
    # "scaled" or "correlation"; None is the second with inducing points, and for kernels whose
    # length-scales are of different columns
    search: SearchBy | None = eqx.field(static=True, default=None)
    found: NeighbourSets | None = None  # neighbours of the rows; `for_rows` finds them
    # points whose low rank neighbours are not asked about
    inducing: Inducing | None = eqx.field(converter=_as_inducing, default=None)

    def __check_init__(self) -> None:
        check_ranges(self, number="at least 1", number_predicted="at least 1")
        check_choices(self, ordering=get_args(Ordering), search=(None, *get_args(SearchBy)))
        own = self.inducing
        if own is None:
            return
        others = own.approximation, own.covariance != "full", own.remembered is not None
        if any(others) or own.learn_points:
            raise InputError(
                f"{type(self).__name__}.inducing takes points that are held, a number and a "
                f"selection, or features, got {own!r}; leave the rest out."
            )

    def initialise(
        self, X: Inputs, weights: PerRow | None, kernel: LatentKernel, key: RandomKey
    ) -> "NearestRows":
        Needs(any_inputs=True, distances=True).check(type(self).__name__, kernel=kernel)
        if self.inducing is None:
            return self
        points = self.inducing.initialise(X, weights, kernel, key)
        return dataclasses.replace(self, inducing=points)

    def for_rows(self, X: Inputs, weights: PerRow | None, kernel: LatentKernel) -> "NearestRows":
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((X, weights, kernel))):
            if self.found is None or len(self.found.rows) != len(X):
                raise InputError(
                    "Neighbours cannot be found inside grad, jit or vmap; give the method a "
                    "representation that has them, Neighbours(...).for_rows(X, None, kernel)."
                )
            return self
        X = np.asarray(X)
        real = np.arange(len(X)) if weights is None else np.flatnonzero(np.asarray(weights) > 0)
        each = distinct_kernels(kernel)
        inputs = jnp.asarray(X[real])
        points = np.asarray(coordinates(each[0], inputs, inputs))
        if self.found is not None and np.array_equal(np.sort(self.found.order), real):
            order = np.searchsorted(real, self.found.order)
        else:
            order = order_of(X[real] if self.ordering == "random" else points, self.ordering)
        terms = self.chosen_terms(real[order])
        rows = self.near_rows(X, real, kernel, order, terms)
        if self.found is not None and self.found.hardly_differs(rows, real[order], terms):
            return self
        blocks = None
        apart = any(parts_apart(own, inputs) for own in each)
        if not apart and sees_all_round(len(points), points.shape[1], self.seen):
            blocks = blocks_of(points)
            blocks = np.where(blocks == NOBODY, NOBODY, real[blocks])
        return dataclasses.replace(self, found=NeighbourSets(rows, real[order], terms, blocks))

    def near_rows(
        self,
        X: Inputs,
        real: Int[np.ndarray, "M"],
        kernel: LatentKernel,
        order: Int[np.ndarray, "M"],
        terms: Int[np.ndarray, "terms"] | None = None,
    ) -> Int[np.ndarray, "N #Q V"]:
        """Numbers of the nearest of the rows earlier in an order, for those that are real.

        Where terms are given, of these rows at least.
        """
        X, each = np.asarray(X), distinct_kernels(kernel)
        columns = max(1, min(self.number, len(X) - 1))
        rows = np.full((len(X), len(each), columns), NOBODY)
        features = self.features(kernel, X[real])
        asked_of = None if terms is None else np.isin(real, terms)
        for q, own in enumerate(each):
            by_kernel = features[q] is not None or varies_apart(own, X[real])
            search = self.search or ("correlation" if by_kernel else "scaled")
            near = neighbours_of(own, X[real], order, columns, search, features[q], asked_of)
            rows[real, q] = np.where(near == NOBODY, NOBODY, real[near])
        return rows

    def chosen_terms(self, ordered: Int[np.ndarray, "M"]) -> Int[np.ndarray, "terms"] | None:
        """Rows, of all in their order, whose terms stand for all; None for all."""
        return None

    @property
    def seen(self) -> int:
        """Number of the rows that a new input sees."""
        return self.number_predicted or self.seen_times * self.number

    def features(self, kernel: LatentKernel, X: Inputs) -> Sequence[Float[Array, "N M"] | None]:
        """Features of the low rank that neighbours are not asked about, of each kernel."""
        if self.inducing is None:
            return (None,) * len(distinct_kernels(kernel))
        return list(features_of(kernel, self._points, jnp.asarray(X)))

    @property
    def _points(self) -> Centres:
        """Inducing points, or other inducing variables."""
        return chosen(self.inducing, "Inducing points").centres

    def _in_points(self, slope: Centres) -> "NearestRows":
        """Derivatives in the representation, from those in inducing points."""
        moved = chosen(self.inducing, "Inducing points").at(slope)
        return dataclasses.replace(self, inducing=moved, found=None)

    def rows_found(self, rows: int) -> Any:
        if self.found is None or len(self.found.rows) != rows:
            raise InputError(
                f"Neighbours have not been found for these {rows} rows; call "
                "for_rows(X, weights, kernel) first."
            )
        return self.found.rows

    @property
    def traits(self) -> Traits:
        points = self.inducing
        return Traits(
            evidence="approximation",
            sees_near_rows=True,
            needs_rows=points is not None and points.traits.needs_rows,
            one_coefficient_a_row=True,
            dense_factors=False,
            predicts_by_all_centres=False,
            signed_sites=True,
            coupled_sites=True,
            powers=True,
        )
