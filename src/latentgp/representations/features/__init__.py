"""Inter-domain inducing variables: one file a kind."""

from latentgp.representations.features.base import InterDomain
from latentgp.representations.features.fourier import FourierFeatures
from latentgp.representations.features.harmonics import SphericalHarmonics
from latentgp.representations.features.hilbert import HilbertSpace
from latentgp.representations.features.multi_scale import MultiScale
from latentgp.representations.features.per_part import PerPart
from latentgp.representations.features.splines import BSplines

__all__ = [
    "BSplines",
    "FourierFeatures",
    "HilbertSpace",
    "InterDomain",
    "MultiScale",
    "PerPart",
    "SphericalHarmonics",
]
