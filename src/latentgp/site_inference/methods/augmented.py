"""Coordinate-ascent variational inference in an augmented model."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx

from latentgp.models import LatentGP
from latentgp.representations import Dense, Representation
from latentgp.site_inference.methods.base import SiteMethod
from latentgp.site_inference.rules.augmentation import AugmentationRule
from latentgp.site_inference.search.algorithm import SiteInference
from latentgp.sites.augmentations import Augmentation, NegativeMultinomialPolyaGamma


class AugmentedVI(SiteMethod):
    """Coordinate-ascent variational inference in the augmented model (Wenzel et al. 2019).

    Updates are in closed form and never lower the bound.

    Args:
        representation: `Dense()` or `Inducing(...)`.
        augmentation: which one, where a likelihood has several; None is the registered one.
        tolerance: relative change of the bound below which site updates stop.
        max_updates: at most so many site updates an evaluation of the hyper-parameters.
    """

    works_in_batches: ClassVar[bool] = True
    needs_augmentation: ClassVar[bool] = True

    representation: Representation = Dense()
    augmentation: Augmentation | None = None
    tolerance: float = eqx.field(static=True, default=1e-5)
    max_updates: int = eqx.field(static=True, default=4)

    def algorithm(self, model: LatentGP) -> SiteInference:
        rule = AugmentationRule(augmentation=self.augmentation)
        return SiteInference.of(model, self.representation, rule, self.tolerance, self.max_updates)

    @property
    def subsamples_classes(self) -> bool:
        # Else terms of other classes that are held are not what this method makes of them.
        own = type(self.augmentation) in (type(None), NegativeMultinomialPolyaGamma)
        points = not self.representation.traits.one_coefficient_a_row
        return own and points and self.streaming_prior is None
