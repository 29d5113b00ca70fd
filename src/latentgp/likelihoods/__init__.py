"""Laws of a target given the latent functions: one file a family."""

from typing import Any

from latentgp.extensions import shown_in
from latentgp.likelihoods.base import Likelihood, Marginals, SideInformation
from latentgp.likelihoods.bernoulli import BayesianSVM, Bernoulli, BernoulliProbit
from latentgp.likelihoods.beta_binomial import BetaBinomial
from latentgp.likelihoods.censored import Censored
from latentgp.likelihoods.counts import (
    Binomial,
    LogNegativeBinomial,
    NegativeBinomial,
    Poisson,
    ScaledLogisticPoisson,
)
from latentgp.likelihoods.custom import CustomLikelihood
from latentgp.likelihoods.gaussian import Gaussian
from latentgp.likelihoods.heteroscedastic import (
    HeteroscedasticGaussian,
    HeteroscedasticStudentT,
    LogNoiseGaussian,
    StochasticVolatility,
)
from latentgp.likelihoods.inflated import Hurdle, ZeroInflated, ZeroOneInflated, ZeroTruncated
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
from latentgp.likelihoods.positive import Beta, Gamma, GeneralisedPareto, LogNormal, Weibull
from latentgp.likelihoods.robust import AsymmetricLaplace, LaplaceNoise, MaternNoise, StudentT
from latentgp.likelihoods.scale_mixture import Form, ScaleMixture
from latentgp.likelihoods.tweedie import Tweedie
from latentgp.likelihoods.warped import WarpedGaussian

__all__ = [
    "AsymmetricLaplace",
    "BayesianSVM",
    "Bernoulli",
    "BernoulliProbit",
    "Beta",
    "BetaBinomial",
    "BijectiveLogisticSoftmax",
    "Binomial",
    "Censored",
    "ClassLikelihood",
    "CustomLikelihood",
    "Form",
    "GPRegressionNetwork",
    "Gamma",
    "Gaussian",
    "GeneralisedPareto",
    "HeavisideMulticlass",
    "HeteroscedasticGaussian",
    "HeteroscedasticStudentT",
    "Hurdle",
    "LaplaceNoise",
    "LeastSquares",
    "Likelihood",
    "LinearCoregionalisation",
    "LinearOutputs",
    "LogNegativeBinomial",
    "LogNoiseGaussian",
    "LogNormal",
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
    "Tweedie",
    "WarpedGaussian",
    "Weibull",
    "ZeroInflated",
    "ZeroOneInflated",
    "ZeroTruncated",
]


def __getattr__(name: str) -> Any:
    return shown_in(__name__, name)
