"""Bayesian inference in latent Gaussian-process models.

State the model once, run any inference method on it: `LatentGP` is the model, a method such as
`ExactGP()` is a value, `fit` gives a posterior. The core is imported at once; extensions and
surfaces when a name of theirs is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from latentgp import surfaces
from latentgp._version import __version__
from latentgp.differentiable import (
    log_evidence,
)
from latentgp.errors import (
    InputError,
    ProcessLost,
    RunAborted,
)
from latentgp.extensions import present
from latentgp.fit import (
    fit,
)
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
from latentgp.means import (
    ConstantMean,
    FunctionalMean,
    LinearMean,
    Mean,
    PerLatentMean,
    ZeroMean,
)
from latentgp.methods.base import (
    Method,
)
from latentgp.methods.result import (
    Fit,
)
from latentgp.models import (
    LatentGP,
)
from latentgp.parameters.base import (
    parameter,
    parameters,
    replace,
)
from latentgp.parameters.hierarchical_dirichlet import (
    HierarchicalDirichlet,
)
from latentgp.parameters.statements import (
    prior_from,
)
from latentgp.parameters.summary import (
    summary,
)
from latentgp.posteriors.augmentation_gap import (
    AugmentationGap,
    augmentation_gap,
)
from latentgp.posteriors.hyperparameters import (
    HyperparameterMarginal,
)
from latentgp.posteriors.posterior import (
    Posterior,
)
from latentgp.posteriors.predictive import (
    Predictive,
)
from latentgp.posteriors.pure import (
    PurePosterior,
)
from latentgp.prior import (
    PriorDraws,
    sample_prior,
)
from latentgp.representations import (
    Dense,
    Inducing,
)
from latentgp.rows import (
    FileRows,
)
from latentgp.rows.data import (
    Data,
)
from latentgp.rows.point_process import (
    bin_points,
)
from latentgp.runs import (
    BackgroundRun,
    run_in_background,
)
from latentgp.runtime.compilation_cache import (
    keep_programs,
)
from latentgp.runtime.mesh import (
    rows_over,
)
from latentgp.runtime.processes import (
    join_processes,
)
from latentgp.runtime.run_log import (
    log_runs,
)
from latentgp.runtime.switch import (
    RunProgress,
)
from latentgp.site_inference.methods.augmented import (
    AugmentedVI,
)
from latentgp.site_inference.methods.base import (
    ShortSearch,
    SiteMethod,
)
from latentgp.site_inference.methods.exact import (
    CollapsedVI,
    ExactGP,
)
from latentgp.site_inference.methods.expectation_propagation import (
    ExpectationPropagation,
)
from latentgp.site_inference.methods.laplace import (
    Laplace,
)
from latentgp.site_inference.methods.variational import (
    VariationalInference,
)
from latentgp.sites.augmentations import (
    Augmentation,
    GammaPoissonPolyaGamma,
    NegativeMultinomialPolyaGamma,
    augmentation_of,
    check_completely_monotone,
)

if TYPE_CHECKING:
    from latentgp.extensions import *
    from latentgp.persistence import load, save
    from latentgp.surfaces import *

_PACKAGES = {**present(), "surfaces": surfaces.EXTENSION}
_PLACES = {name: place for own in _PACKAGES.values() for name, place in own.places.items()}
_PLACES |= {"load": "latentgp.persistence", "save": "latentgp.persistence"}
_SUBMODULES = {
    "datasets": "latentgp.datasets",
    "functionals": "latentgp.rows.functionals",
    "metrics": "latentgp.surfaces.evaluation.metrics",
    "plots": "latentgp.surfaces.evaluation.plots",
    "tables": "latentgp.surfaces.tables",
    "testing": "latentgp.testing",
} | {name: f"latentgp.extensions.{name}" for name in present()}

__all__ = [
    "BYM2",
    "CAR",
    "ICAR",
    "RBF",
    "ArcCosine",
    "AsymmetricLaplace",
    "Augmentation",
    "AugmentationGap",
    "AugmentedVI",
    "BackgroundRun",
    "BayesianSVM",
    "Bernoulli",
    "BernoulliProbit",
    "Beta",
    "BetaBinomial",
    "BijectiveLogisticSoftmax",
    "Binomial",
    "Categorical",
    "Censored",
    "CollapsedVI",
    "Constant",
    "ConstantMean",
    "CorrelatedLinear",
    "Cosine",
    "CustomLikelihood",
    "Data",
    "Dense",
    "ExactGP",
    "ExpectationPropagation",
    "ExternalLikelihood",
    "ExternalProgram",
    "FileRows",
    "Fit",
    "FixedEffects",
    "Form",
    "FunctionalMean",
    "Functionals",
    "GPRegressionNetwork",
    "Gamma",
    "GammaPoissonPolyaGamma",
    "Gaussian",
    "GeneralisedPareto",
    "HeavisideMulticlass",
    "HeteroscedasticGaussian",
    "HeteroscedasticStudentT",
    "HierarchicalDirichlet",
    "Hurdle",
    "HyperparameterMarginal",
    "Inducing",
    "InputError",
    "Kernel",
    "Laplace",
    "LaplaceNoise",
    "LatentGP",
    "LeastSquares",
    "Likelihood",
    "Linear",
    "LinearCoregionalisation",
    "LinearMean",
    "LinearOutputs",
    "LogNegativeBinomial",
    "LogNoiseGaussian",
    "LogNormal",
    "LogisticSoftmax",
    "Matern",
    "Matern12",
    "Matern32",
    "Matern52",
    "MaternHalfInteger",
    "MaternNoise",
    "Mean",
    "Method",
    "NegativeBinomial",
    "NegativeMultinomialPolyaGamma",
    "OnSphere",
    "Ordinal",
    "PerLatent",
    "PerLatentMean",
    "PerLatentSum",
    "Periodic",
    "Poisson",
    "Polynomial",
    "Posterior",
    "Precomputed",
    "Predictive",
    "PriorDraws",
    "ProcessLost",
    "PurePosterior",
    "RationalQuadratic",
    "RobustMax",
    "RunAborted",
    "RunProgress",
    "SameGroup",
    "ScaleMixture",
    "ScaledLogisticPoisson",
    "ScaledLogisticSoftmax",
    "ShortSearch",
    "SiteMethod",
    "Softmax",
    "Stationary",
    "StochasticVolatility",
    "StudentT",
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
    "check_completely_monotone",
    "fit",
    "join_processes",
    "keep_programs",
    "log_evidence",
    "log_runs",
    "parameter",
    "parameters",
    "prior_from",
    "replace",
    "rows_over",
    "run_in_background",
    "sample_prior",
    "summary",
]
__all__ += ["load", "save"]
__all__ += [name for own in _PACKAGES.values() for name in own.at_top]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    if name in _SUBMODULES:
        return import_module(_SUBMODULES[name])
    raise AttributeError(f"module 'latentgp' has no attribute {name!r}")


def __dir__() -> list[str]:
    """With what is imported only when it is asked for, so that completion shows it."""
    return sorted({*globals(), *__all__, *_SUBMODULES})
