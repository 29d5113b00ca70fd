"""Algorithms as init and step, the drivers around them, and the methods that name them."""

from latentgp.inference.batch_method import Stochastic
from latentgp.inference.methods import (
    NUTS,
    AugmentedVI,
    CollapsedVI,
    ExactGP,
    ExpectationPropagation,
    GibbsSampling,
    Laplace,
    Method,
    SamplingMethod,
    ShortSearch,
    SiteMethod,
    VariationalInference,
)
from latentgp.inference.schedules import Adaptive, RobbinsMonro, Schedule

__all__ = [
    "NUTS",
    "Adaptive",
    "AugmentedVI",
    "CollapsedVI",
    "ExactGP",
    "ExpectationPropagation",
    "GibbsSampling",
    "Laplace",
    "Method",
    "RobbinsMonro",
    "SamplingMethod",
    "Schedule",
    "ShortSearch",
    "SiteMethod",
    "Stochastic",
    "VariationalInference",
]
