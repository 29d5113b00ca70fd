"""The regularised preconditioner, solved by conjugate gradients."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Int

from latentgp.extensions.iterative.solvers.conjugate_gradients import conjugate_gradients
from latentgp.extensions.iterative.solvers.operators import LinearOperator, ShiftedOperator
from latentgp.extensions.iterative.solvers.preconditioners.base import Preconditioner
from latentgp.modules import Module
from latentgp.typing import Array, Scalar, Vectors


class Regularised(Module):
    """P = A + shift I, solved by conjugate gradients (Srinivasan et al. 2014)."""

    shift: Scalar | float  # what is added to the diagonal
    tolerance: float = 1e-2  # of the residual of the inner iteration
    max_steps: int = 100  # the most products of the inner iteration

    def __call__(self, operator: LinearOperator) -> IterativePreconditioner:
        """The preconditioner of a system."""
        shifted = ShiftedOperator(operator, jnp.asarray(self.shift))
        return IterativePreconditioner(shifted, self.tolerance, self.max_steps)


class IterativePreconditioner(Preconditioner):
    """P^-1 by conjugate gradients with P: another matrix at every solve, as it is stopped."""

    is_fixed: ClassVar[bool] = False

    operator: LinearOperator  # P
    tolerance: Any  # of the relative residual
    max_steps: Any  # the most products

    def solve(self, right: Vectors) -> Vectors:
        return self.counted_solve(right)[0]

    def counted_solve(self, right: Vectors) -> tuple[Vectors, Int[Array, ""]]:
        found = conjugate_gradients(
            self.operator, right, tolerance=self.tolerance, max_steps=self.max_steps
        )
        return found.value, found.steps
