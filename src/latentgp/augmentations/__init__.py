"""Augmentations of likelihoods: one file each."""

from latentgp.augmentations.automatic import Automatic, check_completely_monotone
from latentgp.augmentations.base import Augmentation, augmentation_of
from latentgp.augmentations.conjugate import Conjugate
from latentgp.augmentations.heteroscedastic import HeteroscedasticAugmentation
from latentgp.augmentations.logistic_softmax import (
    GammaPoissonPolyaGamma,
    NegativeMultinomialPolyaGamma,
)
from latentgp.augmentations.polya_gamma import PoissonPolyaGamma, PolyaGamma

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
