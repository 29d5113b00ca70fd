"""Solves with B = I + W^1/2 K W^1/2 and probe vectors, as a representation sets them."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, UInt32

from latentgp.extensions.iterative.solvers.block_conjugate_gradients import (
    block_conjugate_gradients,
    gone_on,
)
from latentgp.extensions.iterative.solvers.conjugate_gradients import conjugate_gradients
from latentgp.extensions.iterative.solvers.log_determinant import (
    Estimate,
    block_quadrature,
    mean_of,
    quadrature,
    recorded_block_conjugate_gradients,
    recorded_conjugate_gradients,
)
from latentgp.extensions.iterative.solvers.operators import (
    Covariance,
    RoundedCovariance,
    System,
    TiledCovariance,
    in_single_precision,
    site_system,
    stored_or_tiled,
)
from latentgp.extensions.iterative.solvers.preconditioners.base import (
    Complete,
    Identity,
    Preconditioner,
)
from latentgp.extensions.iterative.solvers.preconditioners.low_rank import (
    Fitc,
    Nystrom,
    PivotedCholesky,
    RandomisedSVD,
)
from latentgp.extensions.iterative.solvers.solution import CONVERGED, STALLED, Solution
from latentgp.extensions.iterative.solvers.structured import Grid
from latentgp.kernels import Kernel
from latentgp.modules import stored
from latentgp.typing import Array, Inputs, PerRow, RowLatents, Vectors

SolverName = Literal["block", "conjugate-gradients"]
Precision = Literal["double", "single"]
PreconditionerName = Literal["nystrom", "fitc", "pivoted-cholesky", "randomised-svd", "none"]

_MORE_STEPS = 8
# What products in single precision are asked for at once, and the least that a correction gives.
_AT_ONCE, _PROGRESS = 1e-5, 0.5
_RANK_OF_ROOT = 4  # times the root of the number of rows (Cutajar et al. 2016, 5)
_OF_ROWS = (1 << 32) - 1  # number by which the key of random rows differs from those of systems


class ProbeSolves(NamedTuple):
    """Solves of one system with probe vectors z = R u, P = R R', u of random signs.

    Of what P leaves a multiple of the identity, as where no row knows of another, signs know the
    log-determinant without error, which normal draws do not.
    """

    solved: Vectors  # B^-1 z
    near: Vectors  # P^-1 z
    log_determinant: Estimate  # of B, with its standard error
    solution: Solution  # of the probe vectors, and of right-hand sides solved with them


@stored
class MatrixFreeSolves(eqx.Module):
    """Settings of solves, and what is known of the rows."""

    grid: Grid | None  # that the rows are on; None where they are on none
    # data of a random key, of probe vectors and random rows: the same in every evaluation
    key: UInt32[Array, "2"]
    solver: SolverName = eqx.field(static=True)
    preconditioner: PreconditionerName = eqx.field(static=True)
    # of the preconditioner; None is four times the root of the number of rows
    rank: int | None = eqx.field(static=True)
    probes: int = eqx.field(static=True)
    tolerance: float = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)
    store: bool = eqx.field(static=True)
    precision: Precision = eqx.field(static=True, default="double")
    # whether B is its own preconditioner, so that nothing is estimated
    exact: bool = eqx.field(static=True, default=False)

    def covariance(self, kernel: Kernel, X: Inputs) -> Covariance:
        """The Gram matrix of rows as an operator."""
        if self.grid is not None:
            return self.grid.covariance(kernel, X)
        whole = stored_or_tiled(kernel, X, self.store)
        if self.precision == "double":
            return whole
        return RoundedCovariance(TiledCovariance(kernel, X), in_single_precision(whole))

    def slope(self, kernel: Kernel, X: Inputs, left: Vectors, right: Vectors) -> Kernel:
        """Derivative of the sum of left * (K right) in the kernel."""
        if self.grid is not None:
            return self.grid.slope(kernel, X, left, right)
        return TiledCovariance(kernel, X).slope(left, right)

    def prepared(self, kernel: Kernel, X: Inputs, root: PerRow) -> tuple[System, Preconditioner]:
        """B of rows whose sites have precisions root^2, and what it is preconditioned by."""
        system = site_system(self.covariance(kernel, X), root**2)
        return system, self._preconditioner(system)

    def solve(self, system: System, preconditioner: Preconditioner, right: Vectors) -> Solution:
        """B^-1 right; right-hand sides share their directions where that is the solver."""
        if self.exact or self.solver != "block" or right.shape[1] == 1:
            return self.solve_apart(system, preconditioner, right)
        found = block_conjugate_gradients(
            system,
            right,
            preconditioner=preconditioner,
            tolerance=self._first_tolerance,
            max_steps=self.max_steps,
        )
        return self._corrected(system, preconditioner, right, found)

    def solve_apart(
        self, system: System, preconditioner: Preconditioner, right: Vectors
    ) -> Solution:
        """B^-1 right with directions of each right-hand side's own, which can be vectorised."""
        return conjugate_gradients(
            system,
            right,
            preconditioner=preconditioner,
            tolerance=self.tolerance,
            max_steps=self.max_steps,
        )

    def with_probes(
        self, system: System, preconditioner: Preconditioner, right: RowLatents, number: Any
    ) -> tuple[RowLatents, ProbeSolves]:
        """B^-1 right, and with the same products solves of probe vectors and the log-determinant.

        The number is that of the system, which has probe vectors of its own.
        """
        size, columns = right.shape
        if self.exact:  # all unit vectors are probe vectors
            white = jnp.sqrt(size) * jnp.eye(size, dtype=right.dtype)
        else:
            key = jax.random.fold_in(jax.random.wrap_key_data(self.key), number)
            white = jax.random.rademacher(key, (size, self.probes), right.dtype)
        z = preconditioner.times_root(white)
        every = jnp.concatenate([right, z], axis=1)
        if self.exact:
            solution = self.solve_apart(system, preconditioner, every)
            log_determinant = preconditioner.log_determinant()
            estimate = Estimate(log_determinant, jnp.zeros_like(log_determinant))
        else:
            solution, forms = self._recorded(system, preconditioner, every)
            estimate = mean_of(preconditioner.log_determinant() + forms[columns:])
        own, solved = solution.value[:, :columns], solution.value[:, columns:]
        return own, ProbeSolves(solved, preconditioner.solve(z), estimate, solution)

    def _recorded(
        self, system: System, preconditioner: Preconditioner, every: Vectors
    ) -> tuple[Solution, Float[Array, "S"]]:
        """B^-1 of right-hand sides, and the forms by which their iteration knows |P^-1 B|."""
        size, columns = every.shape
        if self.solver != "block" or columns > size:
            recorded = recorded_conjugate_gradients(
                system, every, preconditioner, self.tolerance, self.max_steps
            )
            return recorded.solution, quadrature(recorded)
        # Far more steps than exhaust the space help no more.
        most = min(self.max_steps, _MORE_STEPS + _MORE_STEPS * size // (2 * columns))
        first = self._first_tolerance
        block = recorded_block_conjugate_gradients(system, every, preconditioner, first, most)
        solution = self._corrected(system, preconditioner, every, block.solution)
        solution = gone_on(solution, system, every, preconditioner, self.tolerance, self.max_steps)
        return solution, block_quadrature(block)

    def _corrected(
        self, system: System, preconditioner: Preconditioner, right: Array, found: Solution
    ) -> Solution:
        """Solutions by products in single precision, gone on with from residuals in double."""
        if self.precision == "double":
            return found

        def on(now: tuple[Solution, Array]) -> tuple[Solution, Array]:
            before, size = now[0], jnp.max(now[0].relative_residual)
            after = block_conjugate_gradients(
                system,
                right,
                preconditioner=preconditioner,
                start=before.value,
                tolerance=jnp.maximum(self.tolerance, _AT_ONCE * size),
                max_steps=self.max_steps - before.steps,
            )
            return eqx.tree_at(lambda s: s.steps, after, before.steps + after.steps), size

        def going(now: tuple[Solution, Array]) -> Any:
            size = jnp.max(now[0].relative_residual)
            helped = size <= _PROGRESS * now[1]
            return (now[0].steps < self.max_steps) & (size > self.tolerance) & helped

        found, _ = jax.lax.while_loop(going, on, (found, jnp.full((), jnp.inf, right.dtype)))
        short = jnp.where(found.code == CONVERGED, STALLED, found.code)
        code = jnp.where(found.relative_residual <= self.tolerance, CONVERGED, short)
        return eqx.tree_at(lambda s: s.code, found, code)

    @property
    def _first_tolerance(self) -> float:
        """Tolerance of the first iteration, which others follow in single precision."""
        return self.tolerance if self.precision == "double" else max(self.tolerance, _AT_ONCE)

    def _preconditioner(self, system: System) -> Preconditioner:
        if self.exact:
            return Complete.of(system)
        size = system.size
        rank = self.rank or int(_RANK_OF_ROOT * size**0.5)
        rank = max(1, min(rank, size // 2))
        key = jax.random.fold_in(jax.random.wrap_key_data(self.key), _OF_ROWS)
        match self.preconditioner:
            case "pivoted-cholesky":
                return PivotedCholesky(rank)(system)
            case "randomised-svd":
                return RandomisedSVD(key, rank)(system)
            case "none":
                return Identity()
        # Random rows, those without weight last.
        order = jax.random.uniform(key, (system.size,)) + (system.scale > 0)
        rows = jax.lax.top_k(order, rank)[1]
        return (Nystrom if self.preconditioner == "nystrom" else Fitc)(rows)(system)
