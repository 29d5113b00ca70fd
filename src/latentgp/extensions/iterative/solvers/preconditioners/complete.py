"""The system itself as its preconditioner, by Cholesky: for few rows."""

from __future__ import annotations

import jax.numpy as jnp

from latentgp.extensions.iterative.solvers.operators import System
from latentgp.extensions.iterative.solvers.preconditioners.base import Preconditioner
from latentgp.numerics.cholesky import Factor, cholesky
from latentgp.typing import Scalar, Vectors


class Complete(Preconditioner):
    """P = A = L L': solves take a step or two, and nothing of the log-determinant is estimated.

    Example:
        >>> from latentgp.extensions.iterative.solvers import operators
        >>> K = operators.StoredCovariance(jnp.diag(jnp.array([1.0, 3.0])))
        >>> A = operators.noisy_system(K, 1.0)
        >>> Complete.of(A).solve(jnp.ones((2, 1)))[:, 0].round(6).tolist()
        [0.5, 0.25]
    """

    factor: Factor  # L, with its inverse

    @classmethod
    def of(cls, system: System) -> Complete:
        """The factor of a system; not numbers where it is not positive definite."""
        whole = system.exactly_times(jnp.eye(system.size, dtype=system.added.dtype))
        return cls(cholesky(0.5 * (whole + whole.T)))

    def solve(self, right: Vectors) -> Vectors:
        return self.factor.inverse.T @ (self.factor.inverse @ right)

    def log_determinant(self) -> Scalar:
        return 2 * self.factor.half_log_determinant

    def solve_root(self, right: Vectors, *, transposed: bool = False) -> Vectors:
        return (self.factor.inverse.T if transposed else self.factor.inverse) @ right

    def times_root(self, right: Vectors) -> Vectors:
        return self.factor.lower @ right
