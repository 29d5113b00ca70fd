"""Bayesian inference in latent Gaussian-process models.

State the model once, run any inference method on it: `LatentGP` is the model, a method such as
`ExactGP()` is a value, `fit` gives a posterior.
"""

from typing import TYPE_CHECKING, Any

from latentgp._version import __version__
from latentgp.augmentations import Augmentation, augmentation_of
from latentgp.data import Data
from latentgp.errors import InputError
from latentgp.fit import Fit, fit
from latentgp.inference import (
    AugmentedVI,
    CollapsedVI,
    ExactGP,
    Method,
    VariationalInference,
)
from latentgp.kernels import (
    RBF,
    ArcCosine,
    Categorical,
    Constant,
    Kernel,
    Linear,
    Matern,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Polynomial,
    RationalQuadratic,
    Stationary,
    White,
)
from latentgp.latents import Dense, Inducing
from latentgp.likelihoods import Bernoulli, Gaussian, Likelihood
from latentgp.means import ConstantMean, LinearMean, Mean, ZeroMean
from latentgp.models import LatentGP
from latentgp.parameters import parameter, parameters, replace, summary
from latentgp.posterior import Posterior, Predictive

if TYPE_CHECKING:
    from latentgp.estimators import GPClassifier, GPRegressor
    from latentgp.persistence import load, save

# What needs scikit-learn is imported when it is first asked for.
_LAZY = {
    "GPClassifier": "latentgp.estimators",
    "GPRegressor": "latentgp.estimators",
    "load": "latentgp.persistence",
    "save": "latentgp.persistence",
}

__all__ = [
    "RBF",
    "ArcCosine",
    "Augmentation",
    "AugmentedVI",
    "Bernoulli",
    "Categorical",
    "CollapsedVI",
    "Constant",
    "ConstantMean",
    "Data",
    "Dense",
    "ExactGP",
    "Fit",
    "GPClassifier",
    "GPRegressor",
    "Gaussian",
    "Inducing",
    "InputError",
    "Kernel",
    "LatentGP",
    "Likelihood",
    "Linear",
    "LinearMean",
    "Matern",
    "Matern12",
    "Matern32",
    "Matern52",
    "Mean",
    "Method",
    "Periodic",
    "Polynomial",
    "Posterior",
    "Predictive",
    "RationalQuadratic",
    "Stationary",
    "VariationalInference",
    "White",
    "ZeroMean",
    "__version__",
    "augmentation_of",
    "fit",
    "load",
    "parameter",
    "parameters",
    "replace",
    "save",
    "summary",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    if name in ("metrics", "plots", "tables", "testing"):
        return importlib.import_module(f"latentgp.{name}")
    raise AttributeError(f"module 'latentgp' has no attribute {name!r}")
