"""Bayesian inference in latent Gaussian-process models.

State the model once, run any inference method on it: `LatentGP` is the model, a method such as
`ExactGP()` is a value, `fit` gives a posterior.
"""

from typing import TYPE_CHECKING, Any

from latentgp._version import __version__
from latentgp.differentiable import log_evidence
from latentgp.errors import InputError, ProcessLost, RunAborted
from latentgp.extensions.batches.method import Stochastic
from latentgp.extensions.batches.step_sizes import Adaptive, RobbinsMonro, Schedule
from latentgp.extensions.black_box.method import BlackBoxVI
from latentgp.extensions.chains.methods.elliptical_slice import EllipticalSlice
from latentgp.extensions.chains.methods.gibbs import GibbsSampling
from latentgp.extensions.chains.methods.hmc import HMC
from latentgp.extensions.chains.methods.mcmc import MCMC
from latentgp.extensions.chains.methods.nuts import NUTS
from latentgp.extensions.chains.methods.sampling import SamplingMethod
from latentgp.extensions.chains.posterior import SampledPosterior
from latentgp.extensions.deep.methods.deep_mcmc import DeepMCMC
from latentgp.extensions.deep.methods.random_feature_vi import RandomFeatureVI
from latentgp.extensions.flows import (
    GaussianApproximation,
    GaussianFlow,
    GaussianParticleFlow,
    gaussian_approximation,
)
from latentgp.extensions.flows.method import DensityApproximation
from latentgp.extensions.integrated.method import Integrated
from latentgp.extensions.inter_domain.sums import RowSums, summarise
from latentgp.extensions.iterative.gradients.settings import Solves
from latentgp.extensions.iterative.methods.sgld import SGLD
from latentgp.extensions.iterative.methods.solves import SolvesGP
from latentgp.fit import fit
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
from latentgp.methods.base import Method
from latentgp.methods.result import Fit
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
from latentgp.rows import FileRows
from latentgp.rows.data import Data
from latentgp.rows.point_process import bin_points
from latentgp.runs import BackgroundRun, run_in_background
from latentgp.runtime.compilation_cache import keep_programs
from latentgp.runtime.mesh import rows_over
from latentgp.runtime.processes import join_processes
from latentgp.runtime.run_log import log_runs
from latentgp.runtime.switch import RunProgress
from latentgp.site_inference.methods.augmented import AugmentedVI
from latentgp.site_inference.methods.base import ShortSearch, SiteMethod
from latentgp.site_inference.methods.exact import CollapsedVI, ExactGP
from latentgp.site_inference.methods.expectation_propagation import ExpectationPropagation
from latentgp.site_inference.methods.laplace import Laplace
from latentgp.site_inference.methods.variational import VariationalInference
from latentgp.sites.augmentations import (
    Augmentation,
    GammaPoissonPolyaGamma,
    NegativeMultinomialPolyaGamma,
    augmentation_of,
    check_completely_monotone,
)

if TYPE_CHECKING:
    from latentgp.persistence import load, save
    from latentgp.surfaces.estimators import (
        GPClassifier,
        GPCountRegressor,
        GPOrdinalClassifier,
        GPRegressor,
    )
    from latentgp.surfaces.evaluation.certificate import Certificate, certify
    from latentgp.surfaces.evaluation.conformal import conformal_interval
    from latentgp.surfaces.evaluation.cross_validation import CrossValidation, cross_validate
    from latentgp.surfaces.evaluation.leave_one_out import LeaveOneOut, leave_one_out
    from latentgp.surfaces.evaluation.model_weights import (
        ModelComparison,
        compare_models,
        stacking_weights,
    )
    from latentgp.surfaces.evaluation.predictive_checks import PredictiveCheck, predictive_check
    from latentgp.surfaces.evaluation.weights import KernelWeights, kernel_weights
    from latentgp.surfaces.export import Exported, export_predictor
    from latentgp.surfaces.tables.model import TableModel

# What needs scikit-learn is imported when it is first asked for.
_LAZY = {
    "Certificate": "latentgp.surfaces.evaluation.certificate",
    "CrossValidation": "latentgp.surfaces.evaluation.cross_validation",
    "GPClassifier": "latentgp.surfaces.estimators",
    "GPCountRegressor": "latentgp.surfaces.estimators",
    "GPOrdinalClassifier": "latentgp.surfaces.estimators",
    "GPRegressor": "latentgp.surfaces.estimators",
    "KernelWeights": "latentgp.surfaces.evaluation.weights",
    "Exported": "latentgp.surfaces.export",
    "LeaveOneOut": "latentgp.surfaces.evaluation.leave_one_out",
    "ModelComparison": "latentgp.surfaces.evaluation.model_weights",
    "PredictiveCheck": "latentgp.surfaces.evaluation.predictive_checks",
    "TableModel": "latentgp.surfaces.tables.model",
    "certify": "latentgp.surfaces.evaluation.certificate",
    "compare_models": "latentgp.surfaces.evaluation.model_weights",
    "conformal_interval": "latentgp.surfaces.evaluation.conformal",
    "cross_validate": "latentgp.surfaces.evaluation.cross_validation",
    "kernel_weights": "latentgp.surfaces.evaluation.weights",
    "export_predictor": "latentgp.surfaces.export",
    "leave_one_out": "latentgp.surfaces.evaluation.leave_one_out",
    "load": "latentgp.persistence",
    "predictive_check": "latentgp.surfaces.evaluation.predictive_checks",
    "save": "latentgp.persistence",
    "stacking_weights": "latentgp.surfaces.evaluation.model_weights",
}

_SUBMODULES = {
    "chains": "latentgp.extensions.chains.measures",
    "datasets": "latentgp.datasets",
    "functionals": "latentgp.rows.functionals",
    "metrics": "latentgp.surfaces.evaluation.metrics",
    "plots": "latentgp.surfaces.evaluation.plots",
    "tables": "latentgp.surfaces.tables",
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
