"""Bayesian inference in latent Gaussian-process models.

State the model once, run any inference method on it: `LatentGP` is the model, a method such as
`ExactGP()` is a value, `fit` gives a posterior. The core is imported at once; extensions and
surfaces when a name of theirs is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from latentgp import errors, kernels, likelihoods, means, prior, runs, surfaces
from latentgp._version import __version__
from latentgp.differentiable import log_evidence
from latentgp.errors import InputError, RunAborted
from latentgp.extensions import present
from latentgp.fit import fit
from latentgp.kernels import (
    RBF,
    Categorical,
    Constant,
    Kernel,
    Linear,
    Matern,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    PerLatent,
    RationalQuadratic,
    White,
)
from latentgp.likelihoods import (
    Bernoulli,
    Beta,
    BetaBinomial,
    Binomial,
    Censored,
    CustomLikelihood,
    Gamma,
    Gaussian,
    HeteroscedasticGaussian,
    LaplaceNoise,
    Likelihood,
    LogisticSoftmax,
    LogNormal,
    NegativeBinomial,
    Ordinal,
    Poisson,
    Softmax,
    StudentT,
    Weibull,
    ZeroInflated,
)
from latentgp.means import ConstantMean, LinearMean, Mean, ZeroMean
from latentgp.methods.base import Method
from latentgp.methods.result import Fit
from latentgp.models import LatentGP
from latentgp.parameters.base import parameter, parameters, replace
from latentgp.parameters.hierarchical_dirichlet import HierarchicalDirichlet
from latentgp.parameters.statements import prior_from
from latentgp.parameters.summary import summary
from latentgp.posteriors.augmentation_gap import AugmentationGap, augmentation_gap
from latentgp.posteriors.hyperparameters import HyperparameterMarginal
from latentgp.posteriors.posterior import Posterior
from latentgp.posteriors.predictive import Predictive
from latentgp.posteriors.pure import PurePosterior
from latentgp.prior import sample_prior
from latentgp.representations import Dense, Inducing
from latentgp.rows import FileRows
from latentgp.rows.data import Data
from latentgp.rows.point_process import bin_points
from latentgp.runs import run_in_background
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
from latentgp.sites import augmentations

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
    "RBF",
    "AugmentationGap",
    "AugmentedVI",
    "Bernoulli",
    "Beta",
    "BetaBinomial",
    "Binomial",
    "Categorical",
    "Censored",
    "CollapsedVI",
    "Constant",
    "ConstantMean",
    "CustomLikelihood",
    "Data",
    "Dense",
    "ExactGP",
    "ExpectationPropagation",
    "FileRows",
    "Fit",
    "Gamma",
    "Gaussian",
    "HeteroscedasticGaussian",
    "HierarchicalDirichlet",
    "HyperparameterMarginal",
    "Inducing",
    "InputError",
    "Kernel",
    "Laplace",
    "LaplaceNoise",
    "LatentGP",
    "Likelihood",
    "Linear",
    "LinearMean",
    "LogNormal",
    "LogisticSoftmax",
    "Matern",
    "Matern12",
    "Matern32",
    "Matern52",
    "Mean",
    "Method",
    "NegativeBinomial",
    "Ordinal",
    "PerLatent",
    "Periodic",
    "Poisson",
    "Posterior",
    "Predictive",
    "PurePosterior",
    "RationalQuadratic",
    "RunAborted",
    "RunProgress",
    "ShortSearch",
    "SiteMethod",
    "Softmax",
    "StudentT",
    "VariationalInference",
    "Weibull",
    "White",
    "ZeroInflated",
    "ZeroMean",
    "__version__",
    "augmentation_gap",
    "bin_points",
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
    # Names of rooms, such as `lgp.kernels.BYM2`, are found here too, but not listed.
    for room in (kernels, likelihoods, means, augmentations, errors, prior, runs):
        if name in room.__all__:
            return getattr(room, name)
    raise AttributeError(f"module 'latentgp' has no attribute {name!r}")


def __dir__() -> list[str]:
    """With what is imported only when it is asked for, so that completion shows it."""
    return sorted({*globals(), *__all__, *_SUBMODULES})
