"""The spectral preconditioner: random Fourier features."""

from __future__ import annotations

from latentgp.errors import InputError
from latentgp.extensions.iterative.solvers.operators import System, TiledCovariance
from latentgp.extensions.iterative.solvers.preconditioners.low_rank import LowRank, with_diagonal
from latentgp.kernels.features import random_features
from latentgp.modules import Module
from latentgp.typing import Inputs, RandomKey


class Spectral(Module):
    """Phi Phi' in place of K with random Fourier features (Rahimi & Recht 2007).

    Raises:
        InputError: when called, a covariance without a kernel, or a kernel that has no features.
    """

    key: RandomKey  # random key of the frequencies
    number: int  # of features, an even number of at least 2

    def __call__(self, system: System) -> LowRank:
        """The preconditioner of a system."""
        covariance = system.covariance
        if not isinstance(covariance, TiledCovariance):
            raise InputError(
                f"Spectral has no features of a {type(covariance).__name__} covariance: give "
                "TiledCovariance, which knows its kernel"
            )
        X: Inputs = covariance.X
        features = random_features(covariance.kernel, self.key, X.shape[1], self.number)
        return with_diagonal(system, features(X))
