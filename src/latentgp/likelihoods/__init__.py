"""Laws of a target given the latent functions: one file a family."""

from latentgp.likelihoods.base import Likelihood, SideInformation
from latentgp.likelihoods.bernoulli import Bernoulli
from latentgp.likelihoods.gaussian import Gaussian

__all__ = ["Bernoulli", "Gaussian", "Likelihood", "SideInformation"]
