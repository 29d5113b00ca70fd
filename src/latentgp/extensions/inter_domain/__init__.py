"""Inter-domain inducing variables: one file a kind."""

from latentgp.extensions.inter_domain.base import InterDomain
from latentgp.extensions.inter_domain.fourier import FourierFeatures
from latentgp.extensions.inter_domain.harmonics import SphericalHarmonics
from latentgp.extensions.inter_domain.hilbert import HilbertSpace
from latentgp.extensions.inter_domain.multi_scale import MultiScale
from latentgp.extensions.inter_domain.per_part import PerPart
from latentgp.extensions.inter_domain.splines import BSplines

__all__ = [
    "BSplines",
    "FourierFeatures",
    "HilbertSpace",
    "InterDomain",
    "MultiScale",
    "PerPart",
    "SphericalHarmonics",
]
