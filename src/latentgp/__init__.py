"""Bayesian inference in latent Gaussian-process models.

State the model once, run any inference method on it: `LatentGP` is the model, a method such as
`ExactGP()` is a value, `fit` gives a posterior. Names are imported when they are first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from latentgp import surfaces
from latentgp._version import __version__
from latentgp.extension import Extension
from latentgp.extensions import present

if TYPE_CHECKING:
    from latentgp import errors as errors
    from latentgp import kernels as kernels
    from latentgp import likelihoods as likelihoods
    from latentgp import means as means
    from latentgp import prior as prior
    from latentgp import runs as runs
    from latentgp.differentiable import log_evidence as log_evidence
    from latentgp.errors import *
    from latentgp.extensions import *
    from latentgp.hyperparameters.base import parameter as parameter
    from latentgp.hyperparameters.base import parameters as parameters
    from latentgp.hyperparameters.base import replace as replace
    from latentgp.hyperparameters.summary import summary as summary
    from latentgp.inference import fit as fit
    from latentgp.kernels import *
    from latentgp.likelihoods import *
    from latentgp.means import *
    from latentgp.methods.base import Method as Method
    from latentgp.methods.result import Fit as Fit
    from latentgp.models import LatentGP as LatentGP
    from latentgp.persistence import load as load
    from latentgp.persistence import save as save
    from latentgp.posteriors.hyperparameters import HyperparameterMarginal as HyperparameterMarginal
    from latentgp.posteriors.posterior import Posterior as Posterior
    from latentgp.posteriors.predictive import Predictive as Predictive
    from latentgp.posteriors.pure import PurePosterior as PurePosterior
    from latentgp.prior import *
    from latentgp.representations import Dense as Dense
    from latentgp.representations import Inducing as Inducing
    from latentgp.rows.data import Data as Data
    from latentgp.runs import *
    from latentgp.runtime.compilation_cache import keep_programs as keep_programs
    from latentgp.runtime.mesh import rows_over as rows_over
    from latentgp.runtime.run_log import log_runs as log_runs
    from latentgp.runtime.switch import RunProgress as RunProgress
    from latentgp.site_inference.methods.augmented import AugmentedVI as AugmentedVI
    from latentgp.site_inference.methods.base import ShortSearch as ShortSearch
    from latentgp.site_inference.methods.base import SiteMethod as SiteMethod
    from latentgp.site_inference.methods.exact import CollapsedVI as CollapsedVI
    from latentgp.site_inference.methods.exact import ExactGP as ExactGP
    from latentgp.site_inference.methods.expectation_propagation import (
        ExpectationPropagation as ExpectationPropagation,
    )
    from latentgp.site_inference.methods.laplace import Laplace as Laplace
    from latentgp.site_inference.methods.variational import (
        VariationalInference as VariationalInference,
    )
    from latentgp.sites import augmentations as augmentations
    from latentgp.surfaces import *

CORE = Extension(
    __name__,
    names={
        "differentiable": "log_evidence",
        "errors": "InputError RunAborted",
        "hyperparameters.base": "parameter parameters replace",
        "hyperparameters.summary": "summary",
        "inference": "fit",
        "kernels": (
            "RBF Categorical Constant Kernel Linear Matern Matern12 Matern32 Matern52 Periodic "
            "PerLatent RationalQuadratic White"
        ),
        "likelihoods": (
            "Bernoulli Beta BetaBinomial Binomial Censored CustomLikelihood Gamma Gaussian "
            "HeteroscedasticGaussian LaplaceNoise Likelihood LogisticSoftmax LogNormal "
            "NegativeBinomial Ordinal Poisson Softmax StudentT Weibull ZeroInflated"
        ),
        "means": "ConstantMean LinearMean Mean ZeroMean",
        "methods.base": "Method",
        "methods.result": "Fit",
        "models": "LatentGP",
        "posteriors.hyperparameters": "HyperparameterMarginal",
        "posteriors.posterior": "Posterior",
        "posteriors.predictive": "Predictive",
        "posteriors.pure": "PurePosterior",
        "prior": "sample_prior",
        "representations": "Dense Inducing",
        "rows.data": "Data",
        "runs": "run_in_background",
        "runtime.compilation_cache": "keep_programs",
        "runtime.mesh": "rows_over",
        "runtime.run_log": "log_runs",
        "runtime.switch": "RunProgress",
        "site_inference.methods.augmented": "AugmentedVI",
        "site_inference.methods.base": "ShortSearch SiteMethod",
        "site_inference.methods.exact": "CollapsedVI ExactGP",
        "site_inference.methods.expectation_propagation": "ExpectationPropagation",
        "site_inference.methods.laplace": "Laplace",
        "site_inference.methods.variational": "VariationalInference",
        "persistence": "load save",
    },
)
_PACKAGES = {"core": CORE, **present(), "surfaces": surfaces.EXTENSION}
_PLACES = {name: place for own in _PACKAGES.values() for name, place in own.places.items()}
# Names of rooms, such as `lgp.kernels.BYM2`, are found at the top too, but not listed.
_ROOMS = {
    name.rpartition(".")[2]: f"latentgp.{name}"
    for name in [
        "kernels",
        "likelihoods",
        "means",
        "sites.augmentations",
        "errors",
        "prior",
        "runs",
    ]
}
_SUBMODULES = {
    "datasets": "latentgp.datasets",
    "functionals": "latentgp.rows.functionals",
    "metrics": "latentgp.surfaces.evaluation.metrics",
    "plots": "latentgp.surfaces.evaluation.plots",
    "tables": "latentgp.surfaces.tables",
    "testing": "latentgp.testing",
} | {name: f"latentgp.extensions.{name}" for name in present()}

__all__ = ["__version__"]
__all__ += [name for own in _PACKAGES.values() for name in own.at_top]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    if name in _ROOMS or name in _SUBMODULES:
        return import_module(_ROOMS.get(name) or _SUBMODULES[name])
    if not name.startswith("_"):
        for room in map(import_module, _ROOMS.values()):
            if name in room.__all__:
                return getattr(room, name)
    raise AttributeError(f"module 'latentgp' has no attribute {name!r}")


def __dir__() -> list[str]:
    """With what is imported only when it is asked for, so that completion shows it."""
    return sorted({*globals(), *__all__, *_ROOMS, *_SUBMODULES})
