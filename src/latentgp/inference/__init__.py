"""Algorithms as init and step, the drivers around them, and the methods that name them."""

from latentgp.inference.methods import (
    AugmentedVI,
    CollapsedVI,
    ExactGP,
    Method,
    VariationalInference,
)

__all__ = ["AugmentedVI", "CollapsedVI", "ExactGP", "Method", "VariationalInference"]
