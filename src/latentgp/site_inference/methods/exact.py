"""Regression with Gaussian noise, and classes by least squares: sites that are exact."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from latentgp.errors import InputError
from latentgp.models import LatentGP
from latentgp.representations import Dense, Inducing, Representation
from latentgp.representations.needs import Needs
from latentgp.representations.summary import RowsAsSums
from latentgp.rows.data import Data
from latentgp.runtime.mesh import number_of_shards
from latentgp.site_inference.methods.base import SiteMethod
from latentgp.site_inference.rules.augmentation import AugmentationRule
from latentgp.site_inference.search.algorithm import SiteInference


class ExactGP(SiteMethod):
    """Gaussian noise, or classes by least squares, in closed form (R&W 2006, 2.2 and 6.5): O(N^3).

    Args:
        representation: `Dense()`, its matrix over `devices` if these are given; for many rows
            `Neighbours(...)`, in O(N m^3), with inducing points or without, or `MatrixFree()`, by
            solves.
    """

    representation: Representation = Dense()

    def algorithm(self, model: LatentGP) -> SiteInference:
        return _conjugate_inference(self, model)

    def through(self, representation: Any) -> "ExactGP | CollapsedVI":
        exact = representation.traits.one_coefficient_a_row
        return ExactGP(representation) if exact else CollapsedVI(representation)


class CollapsedVI(SiteMethod):
    """Regression with Gaussian noise through inducing points, q(u) integrated out: O(N M^2).

    The bound is that of Titsias (2009, eq. 9).

    With fixed features, such as `Inducing(features=BSplines(100))`, and Gaussian noise, rows are
    read once, and an evaluation costs O(M^3) whatever their number; see `summarise`.

    Args:
        representation: how many inducing points, and how they are chosen.
    """

    works_in_batches: ClassVar[bool] = True

    representation: Representation = Inducing(number=500)

    def algorithm(self, model: LatentGP) -> SiteInference:
        return _conjugate_inference(self, model)

    def summed(
        self, algorithm: SiteInference, model: LatentGP, data: Data
    ) -> tuple[SiteInference, Data]:
        own = algorithm.representation
        if not isinstance(own, Inducing) or own.sums is not None:
            return algorithm, data
        if own.features is None or not own.has_sums or number_of_shards() > 1:
            return algorithm, data
        sums = own.features.sums(model, data, own.variables)
        if sums is None:
            return algorithm, data
        own = dataclasses.replace(own, sums=sums)
        return dataclasses.replace(algorithm, representation=own), sums.sample


def _conjugate_inference(method: SiteMethod, model: LatentGP) -> SiteInference:
    Needs(fixed_sites=True).check(type(method).__name__, likelihood=model.likelihood)
    return SiteInference.of(model, method.representation, AugmentationRule())


def through_sums(model: Any, data: Any, method: Any) -> tuple[Any, Any]:
    """Method and rows of a fit; where sums stand for the rows, the method that takes them.

    InputError of sums for another model, or with another method, which needs the rows.
    """
    if not isinstance(data, RowsAsSums) or not isinstance(model, LatentGP):
        return method, data
    data.check(model)
    if method != "auto" and not isinstance(method, CollapsedVI):
        raise InputError(
            f"{type(method).__name__} needs the rows, but their sums were given; give the rows, or "
            "leave method out."
        )
    return CollapsedVI(data.representation), data.sample
