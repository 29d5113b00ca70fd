"""Conformance suites: what every kernel, likelihood, augmentation ... must satisfy.

Call them from a test of your own class. They raise AssertionError with a sentence that says what
does not hold.

Example:
    >>> import numpy as np
    >>> from latentgp import RBF
    >>> check_kernel(2.0 * RBF(lengthscale=0.5), np.random.default_rng(0).normal(size=(5, 2)))
"""

from typing import TYPE_CHECKING, Any

from latentgp.extensions import present
from latentgp.testing.augmentations import check_augmentation
from latentgp.testing.calibration import (
    check_calibration,
    simulate_calibration,
    simulate_hyperparameter_calibration,
)
from latentgp.testing.kernels import check_kernel
from latentgp.testing.likelihoods import check_likelihood
from latentgp.testing.methods import check_copies, check_evidence, check_method
from latentgp.testing.posteriors import check_posterior
from latentgp.testing.representations import check_representation
from latentgp.testing.rules import check_rule

if TYPE_CHECKING:
    from latentgp.extensions.chains.testing import check_sampler as check_sampler

__all__ = [
    "check_augmentation",
    "check_calibration",
    "check_copies",
    "check_evidence",
    "check_kernel",
    "check_likelihood",
    "check_method",
    "check_posterior",
    "check_representation",
    "check_rule",
    "check_sampler",
    "simulate_calibration",
    "simulate_hyperparameter_calibration",
]


def __getattr__(name: str) -> Any:
    """A suite that an extension brings."""
    for own in present().values():
        if own.places.get(name) == f"{own.package}.testing":
            return own.attribute(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
