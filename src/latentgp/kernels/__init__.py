"""Covariance functions of the latent Gaussian process: one file a family."""

from typing import Any

from latentgp.extensions import shown_in
from latentgp.kernels.base import ActiveDimensions, Constant, Kernel, Product, Scaled, Sum
from latentgp.kernels.dot_product import ArcCosine, Categorical, Linear, Polynomial, White
from latentgp.kernels.effects import (
    CorrelatedLinear,
    FixedEffects,
    MultipleMembership,
    SameGroup,
    ZeroAverage,
    has_effects,
)
from latentgp.kernels.functionals import Functionals
from latentgp.kernels.metric import MetricKernel, OtherColumns
from latentgp.kernels.per_latent import LatentKernel, OwnKernels, PerLatent
from latentgp.kernels.precomputed import Precomputed, is_tabulated
from latentgp.kernels.sphere import OnSphere
from latentgp.kernels.stationary import (
    RBF,
    Cosine,
    Matern,
    Matern12,
    Matern32,
    Matern52,
    MaternHalfInteger,
    Periodic,
    RationalQuadratic,
    Stationary,
)
from latentgp.kernels.warping import InputWarping
from latentgp.kernels.weighted import PerLatentSum, WeightedSum

__all__ = [
    "RBF",
    "ActiveDimensions",
    "ArcCosine",
    "Categorical",
    "Constant",
    "CorrelatedLinear",
    "Cosine",
    "FixedEffects",
    "Functionals",
    "InputWarping",
    "Kernel",
    "LatentKernel",
    "Linear",
    "Matern",
    "Matern12",
    "Matern32",
    "Matern52",
    "MaternHalfInteger",
    "MetricKernel",
    "MultipleMembership",
    "OnSphere",
    "OtherColumns",
    "OwnKernels",
    "PerLatent",
    "PerLatentSum",
    "Periodic",
    "Polynomial",
    "Precomputed",
    "Product",
    "RationalQuadratic",
    "SameGroup",
    "Scaled",
    "Stationary",
    "Sum",
    "WeightedSum",
    "White",
    "ZeroAverage",
    "has_effects",
    "is_tabulated",
]


def __getattr__(name: str) -> Any:
    return shown_in(__name__, name)
