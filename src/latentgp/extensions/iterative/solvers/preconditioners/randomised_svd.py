"""The preconditioner by a randomised truncated decomposition."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from latentgp.extensions.iterative.solvers.operators import System
from latentgp.extensions.iterative.solvers.preconditioners.low_rank import LowRank, with_diagonal
from latentgp.modules import Module
from latentgp.numerics.cholesky import eigenvectors
from latentgp.typing import RandomKey


class RandomisedSVD(Module):
    """V diag(l) V' in place of K, its largest eigenvalues by random products (Halko et al. 2011).

    It takes two products of K with M + oversampling columns, and one more a power.
    """

    key: RandomKey  # random key of the products
    number: int  # of eigenvalues that are kept, M
    oversampling: int = 10  # columns beyond these
    powers: int = 1  # products more before the basis is taken, each of which makes it sharper

    def __call__(self, system: System) -> LowRank:
        """The preconditioner of a system."""
        K = system.covariance
        width = min(self.number + self.oversampling, K.size)
        dtype = system.scale.dtype
        basis = jax.random.normal(self.key, (K.size, width), dtype)
        for _ in range(1 + self.powers):
            basis, _ = jnp.linalg.qr(K.times(basis))
        inner = basis.T @ K.times(basis)
        values, vectors = eigenvectors(0.5 * (inner + inner.T))
        root = jnp.sqrt(jnp.maximum(values, 0))[-self.number :]
        return with_diagonal(system, basis @ (vectors[:, -self.number :] * root))
