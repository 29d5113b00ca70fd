"""Laws that NumPyro lacks or draws slowly, for auxiliary variables of Gibbs samplers.

Functions draw arrays of them, take arrays of parameters and follow their dtype. Classes are NumPyro
distributions with the logarithm of their Laplace transform.
"""

from latentgp.distributions.gamma import Gamma, sample_gamma
from latentgp.distributions.generalised_inverse_gaussian import (
    GeneralisedInverseGaussian,
    sample_generalised_inverse_gaussian,
)
from latentgp.distributions.inverse_gaussian import InverseGaussian, sample_inverse_gaussian
from latentgp.distributions.negative_multinomial import sample_negative_multinomial
from latentgp.distributions.poisson import sample_poisson
from latentgp.distributions.polya_gamma import sample_polya_gamma
from latentgp.distributions.tilted_scale_mixture import (
    TiltedScaleMixture,
    sample_tilted_scale_mixture,
)

__all__ = [
    "Gamma",
    "GeneralisedInverseGaussian",
    "InverseGaussian",
    "TiltedScaleMixture",
    "sample_gamma",
    "sample_generalised_inverse_gaussian",
    "sample_inverse_gaussian",
    "sample_negative_multinomial",
    "sample_poisson",
    "sample_polya_gamma",
    "sample_tilted_scale_mixture",
]
