"""Algorithms as init and step, the drivers around them, and the methods that name them."""

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
    SiteMethod,
    VariationalInference,
)

__all__ = [
    "NUTS",
    "AugmentedVI",
    "CollapsedVI",
    "ExactGP",
    "ExpectationPropagation",
    "GibbsSampling",
    "Laplace",
    "Method",
    "SamplingMethod",
    "SiteMethod",
    "VariationalInference",
]
