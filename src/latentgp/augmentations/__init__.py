"""Conjugate representations of likelihoods: one file an augmentation."""

from latentgp.augmentations.base import Augmentation, augmentation_of
from latentgp.augmentations.conjugate import Conjugate
from latentgp.augmentations.polya_gamma import PolyaGamma

__all__ = ["Augmentation", "Conjugate", "PolyaGamma", "augmentation_of"]
