"""The interface of preconditioners, the one that does nothing and the one that does all."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Int

from latentgp.errors import InputError
from latentgp.extensions.iterative.solvers.operators import System
from latentgp.numerics.cholesky import Factor, cholesky
from latentgp.typing import Array, RandomKey, Scalar, Vectors


class Preconditioner(eqx.Module):
    """A positive definite matrix P near a system's, P = R R', that is cheap to solve with.

    `solve` is what conjugate gradients need. One that iterates inside overrides it, `is_fixed` and
    `counted_solve`; the others `log_determinant`, `solve_root` and `times_root`, which are refused
    otherwise, and `solve` where it is less than two solves with the root.
    """

    # whether it is the same matrix at every solve: not if an iteration inside is stopped
    is_fixed: ClassVar[bool] = True

    def solve(self, right: Vectors) -> Vectors:
        """P^-1 right."""
        return self.solve_root(self.solve_root(right), transposed=True)

    def counted_solve(self, right: Vectors) -> tuple[Vectors, Int[Array, ""]]:
        """P^-1 right, and the number of products that an iteration inside took."""
        return self.solve(right), jnp.asarray(0)

    def log_determinant(self) -> Scalar:
        """The logarithm of |P|."""
        raise self._lacks("log-determinant")

    def solve_root(self, right: Vectors, *, transposed: bool = False) -> Vectors:
        """R^-1 right, or R^-T right."""
        raise self._lacks("root")

    def times_root(self, right: Vectors) -> Vectors:
        """R right: a draw from N(0, P) where right is one from N(0, I)."""
        raise self._lacks("root")

    def _lacks(self, what: str) -> InputError:
        return InputError(
            f"{type(self).__name__} has no {what}, as it is solved by an iteration: take a "
            "preconditioner of low rank plus diagonal, such as Nystrom or PivotedCholesky"
        )


class Identity(Preconditioner):
    """P = I: no preconditioner."""

    def log_determinant(self) -> Scalar:
        return jnp.zeros(())

    def solve_root(self, right: Vectors, *, transposed: bool = False) -> Vectors:
        return right

    def times_root(self, right: Vectors) -> Vectors:
        return right


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

    def log_determinant(self) -> Scalar:
        return 2 * self.factor.half_log_determinant

    def solve_root(self, right: Vectors, *, transposed: bool = False) -> Vectors:
        return (self.factor.inverse.T if transposed else self.factor.inverse) @ right

    def times_root(self, right: Vectors) -> Vectors:
        return self.factor.lower @ right


def draws(
    preconditioner: Preconditioner, key: RandomKey, size: int, number: int, dtype: Any = None
) -> Vectors:
    """Draws from N(0, P) of so many rows, one a column.

    Example:
        >>> draws(Identity(), jax.random.key(0), 3, 2).shape
        (3, 2)
    """
    return preconditioner.times_root(jax.random.normal(key, (size, number), dtype))
