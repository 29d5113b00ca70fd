"""Augmentations of likelihoods: one file each."""

from latentgp.sites.augmentations.automatic import Automatic, check_completely_monotone
from latentgp.sites.augmentations.base import Augmentation, augmentation_of
from latentgp.sites.augmentations.conjugate import Conjugate
from latentgp.sites.augmentations.heteroscedastic import HeteroscedasticAugmentation
from latentgp.sites.augmentations.logistic_softmax import (
    GammaPoissonPolyaGamma,
    NegativeMultinomialPolyaGamma,
)
from latentgp.sites.augmentations.polya_gamma import PoissonPolyaGamma, PolyaGamma

__all__ = [
    "Augmentation",
    "Automatic",
    "Conjugate",
    "GammaPoissonPolyaGamma",
    "HeteroscedasticAugmentation",
    "NegativeMultinomialPolyaGamma",
    "PoissonPolyaGamma",
    "PolyaGamma",
    "augmentation_of",
    "check_completely_monotone",
]
