"""Inter-domain inducing variables: one file a kind."""

from typing import TYPE_CHECKING

from latentgp.extension import Extension

if TYPE_CHECKING:
    from latentgp.extensions.inter_domain.base import InterDomain as InterDomain
    from latentgp.extensions.inter_domain.fourier import FourierFeatures as FourierFeatures
    from latentgp.extensions.inter_domain.harmonics import SphericalHarmonics as SphericalHarmonics
    from latentgp.extensions.inter_domain.hilbert import HilbertSpace as HilbertSpace
    from latentgp.extensions.inter_domain.multi_scale import MultiScale as MultiScale
    from latentgp.extensions.inter_domain.per_part import PerPart as PerPart
    from latentgp.extensions.inter_domain.splines import BSplines as BSplines
    from latentgp.extensions.inter_domain.sums import RowSums as RowSums
    from latentgp.extensions.inter_domain.sums import summarise as summarise

EXTENSION = Extension(
    __name__,
    names={
        "base": "InterDomain",
        "fourier": "FourierFeatures",
        "harmonics": "SphericalHarmonics",
        "hilbert": "HilbertSpace",
        "multi_scale": "MultiScale",
        "per_part": "PerPart",
        "splines": "BSplines",
        "sums": "RowSums summarise",
    },
    offers={"effects": f"{__name__}.per_part:of_each_part"},
    apart=(
        "InterDomain FourierFeatures SphericalHarmonics HilbertSpace MultiScale PerPart "
        "BSplines RowSums summarise"
    ),
)
__getattr__ = EXTENSION.attribute
