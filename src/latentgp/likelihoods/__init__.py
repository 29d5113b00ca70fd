"""Laws of a target given the latent functions: one file a family."""

from latentgp.likelihoods.base import Likelihood, SideInformation
from latentgp.likelihoods.bernoulli import BayesianSVM, Bernoulli
from latentgp.likelihoods.counts import Binomial, NegativeBinomial, ScaledLogisticPoisson
from latentgp.likelihoods.gaussian import Gaussian
from latentgp.likelihoods.heteroscedastic import HeteroscedasticGaussian, HeteroscedasticStudentT
from latentgp.likelihoods.multiclass import (
    BijectiveLogisticSoftmax,
    LogisticSoftmax,
    MulticlassLikelihood,
    ScaledLogisticSoftmax,
    Softmax,
)
from latentgp.likelihoods.robust import LaplaceNoise, MaternNoise, StudentT
from latentgp.likelihoods.scale_mixture import Form, ScaleMixture

__all__ = [
    "BayesianSVM",
    "Bernoulli",
    "BijectiveLogisticSoftmax",
    "Binomial",
    "Form",
    "Gaussian",
    "HeteroscedasticGaussian",
    "HeteroscedasticStudentT",
    "LaplaceNoise",
    "Likelihood",
    "LogisticSoftmax",
    "MaternNoise",
    "MulticlassLikelihood",
    "NegativeBinomial",
    "ScaleMixture",
    "ScaledLogisticPoisson",
    "ScaledLogisticSoftmax",
    "SideInformation",
    "Softmax",
    "StudentT",
]
