"""Sites from the conjugate representation of a likelihood, for coordinate ascent."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
from jax.core import Tracer

from latentgp.errors import InputError
from latentgp.likelihoods.base import Likelihood, Marginals
from latentgp.likelihoods.scale_mixture import CompletelyMonotone
from latentgp.representations.needs import Needs
from latentgp.site_inference.rules.base import SiteRule
from latentgp.sites.augmentations import Augmentation, augmentation_of, check_completely_monotone
from latentgp.sites.gaussian import Block, GaussianSites, Rows


class AugmentationRule(SiteRule):
    """Expected sites of the likelihood's augmentation; full steps never lower the bound."""

    augmentation: Augmentation | None = None  # which one; the registered one if None
    step_size: float = eqx.field(static=True, default=1.0)

    def sites(
        self, likelihood: Likelihood, rows: Rows, marginals: Marginals, current: GaussianSites
    ) -> GaussianSites:
        return self.chosen(likelihood).bind(likelihood, rows).expected_sites(marginals)

    def check(self, likelihood: Likelihood) -> None:
        self.chosen(likelihood)
        traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(likelihood))
        if isinstance(likelihood, CompletelyMonotone) and not traced:
            with jax.ensure_compile_time_eval():  # of known numbers, whoever traces around it
                check_completely_monotone(likelihood)

    def signed(self, likelihood: Likelihood) -> bool:
        return False

    def sites_are_fixed(self, likelihood: Likelihood) -> bool:
        return self.chosen(likelihood).sites_are_fixed

    def shares_precisions(self, likelihood: Likelihood) -> bool:
        return self.chosen(likelihood).shares_precisions

    def start(self, likelihood: Likelihood, rows: Rows, prior: Marginals) -> Marginals:
        variance = self.chosen(likelihood).starting_variance(prior.variance)
        return super().start(likelihood, rows, prior)._replace(variance=variance)

    def blocks(self, likelihood: Likelihood) -> tuple[Block, ...]:
        return self.chosen(likelihood).blocks(likelihood)

    def chosen(self, likelihood: Likelihood) -> Augmentation:
        """The augmentation that is used; InputError if there is none, or it is not for this one."""
        if self.augmentation is None:
            Needs(augmentation=True).check("This method", likelihood=likelihood)
        augmentation: Any = self.augmentation or augmentation_of(likelihood)
        if not augmentation.fits(likelihood):
            raise InputError(
                f"{type(augmentation).__name__} is no augmentation of {type(likelihood).__name__}; "
                "leave the augmentation out to get the registered one."
            )
        return augmentation
