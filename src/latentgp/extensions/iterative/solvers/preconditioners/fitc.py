"""The FITC preconditioner."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Int

from latentgp.extensions.iterative.solvers.operators import System
from latentgp.extensions.iterative.solvers.preconditioners.low_rank import LowRank, with_diagonal
from latentgp.extensions.iterative.solvers.preconditioners.nystrom import nystrom_factor
from latentgp.modules import Module
from latentgp.typing import Array


class Fitc(Module):
    """Q + diag(K - Q) in place of K, Q that of `Nystrom` (Snelson & Ghahramani 2006).

    Args:
        rows: numbers of the rows U, shape (M,).

    Example:
        >>> import jax.numpy as jnp
        >>> from latentgp.extensions.iterative.solvers import operators
        >>> K = operators.StoredCovariance(jnp.diag(jnp.array([3.0, 1.0])))
        >>> A = operators.noisy_system(K, 1.0)
        >>> Fitc(jnp.array([0]))(A).solve(jnp.ones((2, 1)))[:, 0].round(6).tolist()
        [0.25, 0.5]
    """

    rows: Int[Array, "M"]

    def __call__(self, system: System) -> LowRank:
        """The preconditioner of a system."""
        factor = nystrom_factor(system.covariance, self.rows)
        left_out = system.covariance.diagonal() - jnp.sum(factor**2, axis=1)
        return with_diagonal(system, factor, left_out)
