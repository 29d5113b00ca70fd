"""A Gaussian process that has seen its data through some directions, and knows it has."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.extensions.iterative.solvers.operators import LinearOperator
from latentgp.numerics.cholesky import jittered_cholesky
from latentgp.typing import Array, Vectors


class Projection(eqx.Module):
    """C = S (S' A S)^-1 S' = D D' in place of A^-1 (Wenger et al. 2022).

    C is at most A^-1, so that a variance by it is that of the mathematical process plus that of the
    solve which was stopped.
    """

    root: Float[Array, "N R"]  # D

    def solve(self, right: Vectors) -> Vectors:
        """C right: the representer weights where right is y."""
        return self.root @ (self.root.T @ right)

    def variance(
        self, prior_variance: Float[Array, "points"], across: Float[Array, "N points"]
    ) -> Float[Array, "points"]:
        """The combined variance k** - k' C k at some points, k their covariances with the rows."""
        return prior_variance - jnp.sum((self.root.T @ across) ** 2, axis=0)


def projection(operator: LinearOperator, actions: Float[Array, "N R"]) -> Projection:
    """The projection on directions, or actions, S.

    Where its columns depend on each other, jitter leaves the variance larger.

    Example:
        >>> from latentgp.extensions.iterative.solvers.operators import StoredCovariance
        >>> A = StoredCovariance(jnp.diag(jnp.array([2.0, 4.0])))
        >>> seen = projection(A, jnp.array([[1.0], [0.0]]))
        >>> seen.solve(jnp.ones((2, 1)))[:, 0].round(4).tolist()
        [0.5, 0.0]
        >>> seen.variance(jnp.ones(1), jnp.ones((2, 1))).round(4).tolist()
        [0.5]
    """
    inner = actions.T @ operator.times(actions)
    factor = jittered_cholesky(0.5 * (inner + inner.T)).factor
    return Projection(actions @ factor.inverse.T)
