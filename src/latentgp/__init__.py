"""Bayesian inference in latent Gaussian-process models.

State the model once, run any inference method on it: `LatentGP` is the model, a method such as
`ExactGP()` is a value, `fit` gives a posterior.
"""

from typing import TYPE_CHECKING, Any

from latentgp._version import __version__
from latentgp.approximations import (
    GaussianApproximation,
    GaussianFlow,
    GaussianParticleFlow,
    gaussian_approximation,
)
from latentgp.augmentations import (
    Augmentation,
    GammaPoissonPolyaGamma,
    NegativeMultinomialPolyaGamma,
    augmentation_of,
    check_completely_monotone,
)
from latentgp.differentiable import log_evidence
from latentgp.errors import InputError, ProcessLost, RunAborted
from latentgp.fit import fit
from latentgp.inference.batches.step_sizes import Adaptive, RobbinsMonro, Schedule
from latentgp.inference.solves.settings import Solves
from latentgp.kernels import (
    BYM2,
    CAR,
    ICAR,
    RBF,
    ArcCosine,
    Categorical,
    Constant,
    CorrelatedLinear,
    Cosine,
    FixedEffects,
    Functionals,
    Kernel,
    Linear,
    Matern,
    Matern12,
    Matern32,
    Matern52,
    MaternHalfInteger,
    OnSphere,
    Periodic,
    PerLatent,
    PerLatentSum,
    Polynomial,
    Precomputed,
    RationalQuadratic,
    SameGroup,
    Stationary,
    WeightedSum,
    White,
)
from latentgp.likelihoods import (
    AsymmetricLaplace,
    BayesianSVM,
    Bernoulli,
    BernoulliProbit,
    Beta,
    BetaBinomial,
    BijectiveLogisticSoftmax,
    Binomial,
    Censored,
    CustomLikelihood,
    ExternalLikelihood,
    ExternalProgram,
    Form,
    Gamma,
    Gaussian,
    GeneralisedPareto,
    GPRegressionNetwork,
    HeavisideMulticlass,
    HeteroscedasticGaussian,
    HeteroscedasticStudentT,
    Hurdle,
    LaplaceNoise,
    LeastSquares,
    Likelihood,
    LinearCoregionalisation,
    LinearOutputs,
    LogisticSoftmax,
    LogNegativeBinomial,
    LogNoiseGaussian,
    LogNormal,
    MaternNoise,
    NegativeBinomial,
    Ordinal,
    Poisson,
    RobustMax,
    ScaledLogisticPoisson,
    ScaledLogisticSoftmax,
    ScaleMixture,
    Softmax,
    StochasticVolatility,
    StudentT,
    Tweedie,
    WarpedGaussian,
    Weibull,
    ZeroInflated,
    ZeroOneInflated,
    ZeroTruncated,
)
from latentgp.means import ConstantMean, FunctionalMean, LinearMean, Mean, PerLatentMean, ZeroMean
from latentgp.methods.augmented import AugmentedVI
from latentgp.methods.base import Method
from latentgp.methods.black_box import BlackBoxVI
from latentgp.methods.deep_mcmc import DeepMCMC
from latentgp.methods.density_approximation import DensityApproximation
from latentgp.methods.elliptical_slice import EllipticalSlice
from latentgp.methods.exact import CollapsedVI, ExactGP
from latentgp.methods.expectation_propagation import ExpectationPropagation
from latentgp.methods.gibbs import GibbsSampling
from latentgp.methods.hmc import HMC
from latentgp.methods.integrated import Integrated
from latentgp.methods.laplace import Laplace
from latentgp.methods.mcmc import MCMC
from latentgp.methods.nuts import NUTS
from latentgp.methods.random_feature_vi import RandomFeatureVI
from latentgp.methods.result import Fit
from latentgp.methods.sampling import SamplingMethod
from latentgp.methods.sgld import SGLD
from latentgp.methods.sites import ShortSearch, SiteMethod
from latentgp.methods.solves import SolvesGP
from latentgp.methods.stochastic import Stochastic
from latentgp.methods.variational import VariationalInference
from latentgp.models import DeepGP, LatentGP, Layer
from latentgp.parameters.base import parameter, parameters, replace
from latentgp.parameters.hierarchical_dirichlet import HierarchicalDirichlet
from latentgp.parameters.statements import prior_from
from latentgp.parameters.summary import summary
from latentgp.posteriors.augmentation_gap import AugmentationGap, augmentation_gap
from latentgp.posteriors.hyperparameters import HyperparameterMarginal, IntegratedPosterior
from latentgp.posteriors.posterior import Posterior
from latentgp.posteriors.predictive import Predictive
from latentgp.posteriors.pure import PurePosterior
from latentgp.posteriors.sampled import SampledPosterior
from latentgp.prior import PriorDraws, sample_prior
from latentgp.representations import (
    BSplines,
    Dense,
    FourierFeatures,
    HilbertSpace,
    Inducing,
    LatentNeighbours,
    Markov,
    MatrixFree,
    MultiScale,
    Neighbours,
    PerPart,
    RandomFeatures,
    SpaceTime,
    SphericalHarmonics,
)
from latentgp.representations.features.sums import RowSums, summarise
from latentgp.rows import FileRows
from latentgp.rows.data import Data
from latentgp.rows.point_process import bin_points
from latentgp.runs import BackgroundRun, run_in_background
from latentgp.runtime.compilation_cache import keep_programs
from latentgp.runtime.mesh import rows_over
from latentgp.runtime.processes import join_processes
from latentgp.runtime.run_log import log_runs
from latentgp.runtime.switch import RunProgress

if TYPE_CHECKING:
    from latentgp.estimators import (
        GPClassifier,
        GPCountRegressor,
        GPOrdinalClassifier,
        GPRegressor,
    )
    from latentgp.evaluation.certificate import Certificate, certify
    from latentgp.evaluation.conformal import conformal_interval
    from latentgp.evaluation.cross_validation import CrossValidation, cross_validate
    from latentgp.evaluation.leave_one_out import LeaveOneOut, leave_one_out
    from latentgp.evaluation.model_weights import (
        ModelComparison,
        compare_models,
        stacking_weights,
    )
    from latentgp.evaluation.predictive_checks import PredictiveCheck, predictive_check
    from latentgp.evaluation.weights import KernelWeights, kernel_weights
    from latentgp.export import Exported, export_predictor
    from latentgp.persistence import load, save
    from latentgp.tables.model import TableModel

# What needs scikit-learn is imported when it is first asked for.
_LAZY = {
    "Certificate": "latentgp.evaluation.certificate",
    "CrossValidation": "latentgp.evaluation.cross_validation",
    "GPClassifier": "latentgp.estimators",
    "GPCountRegressor": "latentgp.estimators",
    "GPOrdinalClassifier": "latentgp.estimators",
    "GPRegressor": "latentgp.estimators",
    "KernelWeights": "latentgp.evaluation.weights",
    "Exported": "latentgp.export",
    "LeaveOneOut": "latentgp.evaluation.leave_one_out",
    "ModelComparison": "latentgp.evaluation.model_weights",
    "PredictiveCheck": "latentgp.evaluation.predictive_checks",
    "TableModel": "latentgp.tables.model",
    "certify": "latentgp.evaluation.certificate",
    "compare_models": "latentgp.evaluation.model_weights",
    "conformal_interval": "latentgp.evaluation.conformal",
    "cross_validate": "latentgp.evaluation.cross_validation",
    "kernel_weights": "latentgp.evaluation.weights",
    "export_predictor": "latentgp.export",
    "leave_one_out": "latentgp.evaluation.leave_one_out",
    "load": "latentgp.persistence",
    "predictive_check": "latentgp.evaluation.predictive_checks",
    "save": "latentgp.persistence",
    "stacking_weights": "latentgp.evaluation.model_weights",
}

_SUBMODULES = {
    "chains": "latentgp.evaluation.chains",
    "datasets": "latentgp.datasets",
    "functionals": "latentgp.rows.functionals",
    "metrics": "latentgp.evaluation.metrics",
    "plots": "latentgp.evaluation.plots",
    "tables": "latentgp.tables",
    "testing": "latentgp.testing",
}

__all__ = [
    "BYM2",
    "CAR",
    "HMC",
    "ICAR",
    "MCMC",
    "NUTS",
    "RBF",
    "SGLD",
    "Adaptive",
    "ArcCosine",
    "AsymmetricLaplace",
    "Augmentation",
    "AugmentationGap",
    "AugmentedVI",
    "BSplines",
    "BackgroundRun",
    "BayesianSVM",
    "Bernoulli",
    "BernoulliProbit",
    "Beta",
    "BetaBinomial",
    "BijectiveLogisticSoftmax",
    "Binomial",
    "BlackBoxVI",
    "Categorical",
    "Censored",
    "Certificate",
    "CollapsedVI",
    "Constant",
    "ConstantMean",
    "CorrelatedLinear",
    "Cosine",
    "CrossValidation",
    "CustomLikelihood",
    "Data",
    "DeepGP",
    "DeepMCMC",
    "Dense",
    "DensityApproximation",
    "EllipticalSlice",
    "ExactGP",
    "ExpectationPropagation",
    "Exported",
    "ExternalLikelihood",
    "ExternalProgram",
    "FileRows",
    "Fit",
    "FixedEffects",
    "Form",
    "FourierFeatures",
    "FunctionalMean",
    "Functionals",
    "GPClassifier",
    "GPCountRegressor",
    "GPOrdinalClassifier",
    "GPRegressionNetwork",
    "GPRegressor",
    "Gamma",
    "GammaPoissonPolyaGamma",
    "Gaussian",
    "GaussianApproximation",
    "GaussianFlow",
    "GaussianParticleFlow",
    "GeneralisedPareto",
    "GibbsSampling",
    "HeavisideMulticlass",
    "HeteroscedasticGaussian",
    "HeteroscedasticStudentT",
    "HierarchicalDirichlet",
    "HilbertSpace",
    "Hurdle",
    "HyperparameterMarginal",
    "Inducing",
    "InputError",
    "Integrated",
    "IntegratedPosterior",
    "Kernel",
    "KernelWeights",
    "Laplace",
    "LaplaceNoise",
    "LatentGP",
    "LatentNeighbours",
    "Layer",
    "LeastSquares",
    "LeaveOneOut",
    "Likelihood",
    "Linear",
    "LinearCoregionalisation",
    "LinearMean",
    "LinearOutputs",
    "LogNegativeBinomial",
    "LogNoiseGaussian",
    "LogNormal",
    "LogisticSoftmax",
    "Markov",
    "Matern",
    "Matern12",
    "Matern32",
    "Matern52",
    "MaternHalfInteger",
    "MaternNoise",
    "MatrixFree",
    "Mean",
    "Method",
    "ModelComparison",
    "MultiScale",
    "NegativeBinomial",
    "NegativeMultinomialPolyaGamma",
    "Neighbours",
    "OnSphere",
    "Ordinal",
    "PerLatent",
    "PerLatentMean",
    "PerLatentSum",
    "PerPart",
    "Periodic",
    "Poisson",
    "Polynomial",
    "Posterior",
    "Precomputed",
    "Predictive",
    "PredictiveCheck",
    "PriorDraws",
    "ProcessLost",
    "PurePosterior",
    "RandomFeatureVI",
    "RandomFeatures",
    "RationalQuadratic",
    "RobbinsMonro",
    "RobustMax",
    "RowSums",
    "RunAborted",
    "RunProgress",
    "SameGroup",
    "SampledPosterior",
    "SamplingMethod",
    "ScaleMixture",
    "ScaledLogisticPoisson",
    "ScaledLogisticSoftmax",
    "Schedule",
    "ShortSearch",
    "SiteMethod",
    "Softmax",
    "Solves",
    "SolvesGP",
    "SpaceTime",
    "SphericalHarmonics",
    "Stationary",
    "Stochastic",
    "StochasticVolatility",
    "StudentT",
    "TableModel",
    "Tweedie",
    "VariationalInference",
    "WarpedGaussian",
    "Weibull",
    "WeightedSum",
    "White",
    "ZeroInflated",
    "ZeroMean",
    "ZeroOneInflated",
    "ZeroTruncated",
    "__version__",
    "augmentation_gap",
    "augmentation_of",
    "bin_points",
    "certify",
    "check_completely_monotone",
    "compare_models",
    "conformal_interval",
    "cross_validate",
    "export_predictor",
    "fit",
    "gaussian_approximation",
    "join_processes",
    "keep_programs",
    "kernel_weights",
    "leave_one_out",
    "load",
    "log_evidence",
    "log_runs",
    "parameter",
    "parameters",
    "predictive_check",
    "prior_from",
    "replace",
    "rows_over",
    "run_in_background",
    "sample_prior",
    "save",
    "stacking_weights",
    "summarise",
    "summary",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    if name in _SUBMODULES:
        return importlib.import_module(_SUBMODULES[name])
    raise AttributeError(f"module 'latentgp' has no attribute {name!r}")


def __dir__() -> list[str]:
    """With what is imported only when it is asked for, so that completion shows it."""
    return sorted({*globals(), *__all__, *_SUBMODULES})
