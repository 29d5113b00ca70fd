"""Sites from the conjugate representation of a likelihood: coordinate ascent."""

import equinox as eqx
from jaxtyping import Float

from latentgp.arrays import Array
from latentgp.augmentations import Augmentation, augmentation_of
from latentgp.errors import InputError
from latentgp.likelihoods.base import Likelihood
from latentgp.sites.base import GaussianSites, Rows, SiteRule


class AugmentationRule(SiteRule):
    """Expected sites of the likelihood's augmentation; full steps never lower the bound."""

    step_size: float = eqx.field(static=True, default=1.0)

    def sites(
        self,
        likelihood: Likelihood,
        rows: Rows,
        mean: Float[Array, "N Q"],
        variance: Float[Array, "N Q"],
    ) -> GaussianSites:
        return self._augmentation(likelihood).expected_sites(likelihood, rows, mean, variance)

    def check(self, likelihood: Likelihood) -> None:
        self._augmentation(likelihood)

    def is_exact(self, likelihood: Likelihood) -> bool:
        return self._augmentation(likelihood).is_exact

    def _augmentation(self, likelihood: Likelihood) -> Augmentation:
        augmentation = augmentation_of(likelihood)
        if augmentation is None:
            raise InputError(
                f"{type(likelihood).__name__} has no augmentation, which this method needs; "
                "use VariationalInference, or register one with augmentation_of.register."
            )
        return augmentation
