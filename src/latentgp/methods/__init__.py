"""Algorithms as init and step, the drivers around them, and the methods that name them."""

from latentgp.inference.batches.step_sizes import Adaptive, RobbinsMonro, Schedule
from latentgp.methods.all import (
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
from latentgp.methods.stochastic import Stochastic

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
