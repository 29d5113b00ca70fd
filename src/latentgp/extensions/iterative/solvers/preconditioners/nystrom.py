"""Preconditioners by a subset of the rows: Nyström's, FITC and PITC."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from latentgp.extensions.iterative.solvers.operators import Covariance, System
from latentgp.extensions.iterative.solvers.preconditioners.low_rank import (
    LowRank,
    low_rank,
    with_diagonal,
)
from latentgp.extensions.iterative.solvers.preconditioners.roots import block_root
from latentgp.modules import Module
from latentgp.numerics.cholesky import jittered_cholesky
from latentgp.typing import Array, RandomKey


class Nystrom(Module):
    """K_XU K_UU^-1 K_UX in place of K, U a subset of the rows (Williams & Seeger 2001).

    Example:
        >>> import jax.numpy as jnp
        >>> from latentgp.extensions.iterative.solvers import operators
        >>> K = operators.StoredCovariance(jnp.diag(jnp.array([3.0, 1.0])))
        >>> A = operators.noisy_system(K, 1.0)
        >>> Nystrom(jnp.array([0]))(A).solve(jnp.ones((2, 1)))[:, 0].round(6).tolist()
        [0.25, 1.0]
    """

    rows: Int[Array, "M"]  # numbers of the rows U; `random_rows` draws them

    def __call__(self, system: System) -> LowRank:
        """The preconditioner of a system."""
        return with_diagonal(system, nystrom_factor(system.covariance, self.rows))


class Fitc(Module):
    """Q + diag(K - Q) in place of K, Q that of `Nystrom` (Snelson & Ghahramani 2006).

    Example:
        >>> import jax.numpy as jnp
        >>> from latentgp.extensions.iterative.solvers import operators
        >>> K = operators.StoredCovariance(jnp.diag(jnp.array([3.0, 1.0])))
        >>> A = operators.noisy_system(K, 1.0)
        >>> Fitc(jnp.array([0]))(A).solve(jnp.ones((2, 1)))[:, 0].round(6).tolist()
        [0.25, 0.5]
    """

    rows: Int[Array, "M"]  # numbers of the rows U

    def __call__(self, system: System) -> LowRank:
        """The preconditioner of a system."""
        factor = nystrom_factor(system.covariance, self.rows)
        left_out = system.covariance.diagonal() - jnp.sum(factor**2, axis=1)
        return with_diagonal(system, factor, left_out)


class Pitc(Module):
    """Q + blocks of (K - Q) in place of K (Quiñonero-Candela & Rasmussen 2005)."""

    rows: Int[Array, "M"]  # numbers of the rows U
    # rows of each block, shape (blocks, B), as `blocks_of_rows` gives them
    blocks: Int[Array, "blocks B"]

    def __call__(self, system: System) -> LowRank:
        """The preconditioner of a system."""
        factor = nystrom_factor(system.covariance, self.rows)
        rest = block_root(system, self.blocks, factor)
        return low_rank(rest, system.scale[:, None] * factor)


def nystrom_factor(covariance: Covariance, rows: Int[Array, "M"]) -> Float[Array, "N M"]:
    """K_XU L^-T with L L' = K_UU, which has jitter where it needs it."""
    across = covariance.columns(rows)
    return across @ jittered_cholesky(across[rows]).factor.inverse.T


def random_rows(key: RandomKey, size: int, number: int) -> Int[Array, "M"]:
    """Different rows out of so many, in random order.

    Example:
        >>> sorted(random_rows(jax.random.key(0), 3, 3).tolist())
        [0, 1, 2]
    """
    return jax.random.choice(key, size, (number,), replace=False)
