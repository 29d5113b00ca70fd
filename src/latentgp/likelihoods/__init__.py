"""Laws of a target given the latent functions: one file a family."""

from latentgp.likelihoods.base import Likelihood, Marginals, SideInformation
from latentgp.likelihoods.bernoulli import BayesianSVM, Bernoulli, BernoulliProbit
from latentgp.likelihoods.counts import (
    Binomial,
    LogNegativeBinomial,
    NegativeBinomial,
    Poisson,
    ScaledLogisticPoisson,
)
from latentgp.likelihoods.custom import CustomLikelihood
from latentgp.likelihoods.external import ExternalLikelihood, ExternalProgram
from latentgp.likelihoods.gaussian import Gaussian
from latentgp.likelihoods.heteroscedastic import (
    HeteroscedasticGaussian,
    HeteroscedasticStudentT,
    LogNoiseGaussian,
)
from latentgp.likelihoods.least_squares import LeastSquares
from latentgp.likelihoods.multi_output import (
    GPRegressionNetwork,
    LinearCoregionalisation,
    LinearOutputs,
)
from latentgp.likelihoods.multiclass import (
    BijectiveLogisticSoftmax,
    ClassLikelihood,
    HeavisideMulticlass,
    LogisticSoftmax,
    MulticlassLikelihood,
    RobustMax,
    ScaledLogisticSoftmax,
    Softmax,
)
from latentgp.likelihoods.ordinal import Ordinal
from latentgp.likelihoods.positive import Beta, Gamma, Weibull
from latentgp.likelihoods.robust import LaplaceNoise, MaternNoise, StudentT
from latentgp.likelihoods.scale_mixture import Form, ScaleMixture
from latentgp.likelihoods.volatility import StochasticVolatility
from latentgp.likelihoods.warped import WarpedGaussian

__all__ = [
    "BayesianSVM",
    "Bernoulli",
    "BernoulliProbit",
    "Beta",
    "BijectiveLogisticSoftmax",
    "Binomial",
    "ClassLikelihood",
    "CustomLikelihood",
    "ExternalLikelihood",
    "ExternalProgram",
    "Form",
    "GPRegressionNetwork",
    "Gamma",
    "Gaussian",
    "HeavisideMulticlass",
    "HeteroscedasticGaussian",
    "HeteroscedasticStudentT",
    "LaplaceNoise",
    "LeastSquares",
    "Likelihood",
    "LinearCoregionalisation",
    "LinearOutputs",
    "LogNegativeBinomial",
    "LogNoiseGaussian",
    "LogisticSoftmax",
    "Marginals",
    "MaternNoise",
    "MulticlassLikelihood",
    "NegativeBinomial",
    "Ordinal",
    "Poisson",
    "RobustMax",
    "ScaleMixture",
    "ScaledLogisticPoisson",
    "ScaledLogisticSoftmax",
    "SideInformation",
    "Softmax",
    "StochasticVolatility",
    "StudentT",
    "WarpedGaussian",
    "Weibull",
]
