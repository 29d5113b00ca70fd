"""Laws that NumPyro lacks or draws slowly, for auxiliary variables of Gibbs samplers.

Each is a NumPyro distribution with the logarithm of its Laplace transform, over a function that
draws arrays of it, takes arrays of parameters and follows their dtype.
"""

from latentgp.distributions.gamma import Gamma, sample_gamma, sample_log_gamma
from latentgp.distributions.generalised_inverse_gaussian import (
    GeneralisedInverseGaussian,
    sample_generalised_inverse_gaussian,
)
from latentgp.distributions.inverse_gaussian import InverseGaussian, sample_inverse_gaussian
from latentgp.distributions.negative_multinomial import (
    NegativeMultinomial,
    sample_negative_multinomial,
)
from latentgp.distributions.poisson import sample_poisson
from latentgp.distributions.polya_gamma import PolyaGamma, sample_polya_gamma
from latentgp.distributions.tilted_scale_mixture import (
    TiltedScaleMixture,
    sample_tilted_scale_mixture,
)

__all__ = [
    "Gamma",
    "GeneralisedInverseGaussian",
    "InverseGaussian",
    "NegativeMultinomial",
    "PolyaGamma",
    "TiltedScaleMixture",
    "sample_gamma",
    "sample_generalised_inverse_gaussian",
    "sample_inverse_gaussian",
    "sample_log_gamma",
    "sample_negative_multinomial",
    "sample_poisson",
    "sample_polya_gamma",
    "sample_tilted_scale_mixture",
]
