"""The posterior precision of latents that are conditioned on their neighbours, and solves with it.

With the prior precision B' D^-1 B and site precisions W it is A = B' D^-1 B + W. Solves go by M =
T^-1 A T'^-1 for the root T of a preconditioner P = T T' of the same sparsity, whose determinant is
known. Where sites couple the latents of a row W has blocks of Q x Q, and P, which does not, the
precision of each latent given the others.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.extensions.iterative.solvers.conjugate_gradients import conjugate_gradients
from latentgp.extensions.iterative.solvers.operators import LinearOperator
from latentgp.extensions.iterative.solvers.solution import BREAKDOWN
from latentgp.extensions.neighbours.prior import TriangularFactors
from latentgp.modules import stored_as
from latentgp.numerics.small_matrices import small_eigh
from latentgp.typing import Array, RandomKey, RowLatents, Scalar

MOST_STEPS = 1000
# Up to so many latents nothing is estimated. Laplace's evidence is off by what its mode is.
FEW = 500


class Controls(NamedTuple):
    """Columns t and K such that at the rows the mean of p p' - t t' is K K', p = L'^-1 noise."""

    solutions: Float[Array, "N Q S"]  # t
    root: Float[Array, "N Q M"]  # K


class PosteriorPrecision(LinearOperator):
    """M = L^-1 A L'^-1, for the precision A of C coefficients and its preconditioner P = L L'."""

    @property
    @abstractmethod
    def sparse(self) -> WhitenedOperator:
        """The precision of what neighbours are asked about, given all else."""

    @property
    @abstractmethod
    def log_determinant(self) -> Scalar:
        """Of the preconditioner P."""

    @abstractmethod
    def at_rows(self, coefficients: Float[Array, "C Q S"]) -> Float[Array, "N Q S"]:
        """Latents at the rows."""

    @abstractmethod
    def from_rows(self, right: Float[Array, "N Q S"]) -> Float[Array, "C Q S"]:
        """The transpose of that."""

    @abstractmethod
    def coefficient_times(self, right: Float[Array, "C Q S"]) -> Float[Array, "C Q S"]:
        """A right."""

    @abstractmethod
    def from_white(self, white: Float[Array, "M S"]) -> Float[Array, "C Q S"]:
        """L'^-1 white: a solution of A x = L b from one of M u = b."""

    @abstractmethod
    def to_white(self, right: Float[Array, "C Q S"]) -> Float[Array, "M S"]:
        """L^-1 right."""

    @abstractmethod
    def from_preconditioner(self, white: Float[Array, "M S"]) -> Float[Array, "C Q S"]:
        """L white: of noise, a draw with covariance P."""

    @abstractmethod
    def noise_of(self, solutions: Float[Array, "C Q S"]) -> Float[Array, "N Q S"]:
        """The noise of each row in p = L'^-1 noise, over its standard deviation R given others."""

    def control(self, solutions: Float[Array, "C Q S"]) -> Controls | None:
        """A part of p = L'^-1 noise whose complement has a known mean; none unless overridden."""
        return None

    def times(self, right: Float[Array, "M S"]) -> Float[Array, "M S"]:
        return self.to_white(self.coefficient_times(self.from_white(right)))


@stored_as("Whitened")
class WhitenedOperator(PosteriorPrecision):
    """M = R C'^-1 (B' D^-1 B + W) C^-1 R of all latents at once, for P = C' R^-2 C.

    Coefficients are the latents at the rows.
    """

    factor: TriangularFactors  # B
    variance: RowLatents  # D
    precision: Float[Array, "N Q *R"]  # W; with blocks of Q x Q where latents are coupled
    own: TriangularFactors  # C, ones on its diagonal as B has
    root: RowLatents  # R

    @property
    def size(self) -> int:
        return self.variance.size

    @property
    def sparse(self) -> WhitenedOperator:
        return self

    @property
    def log_determinant(self) -> Scalar:
        return -2 * jnp.sum(jnp.log(self.root))  # the determinants of B and C are one

    def at_rows(self, coefficients: Float[Array, "N Q S"]) -> Float[Array, "N Q S"]:
        return coefficients

    def from_rows(self, right: Float[Array, "N Q S"]) -> Float[Array, "N Q S"]:
        return right

    def coefficient_times(self, right: Float[Array, "N Q S"]) -> Float[Array, "N Q S"]:
        return self.prior_times(right) + row_times(self.precision, right)

    def prior_times(self, right: Float[Array, "N Q S"]) -> Float[Array, "N Q S"]:
        """B' D^-1 B right."""
        through = self.factor.times(right) / self.variance[..., None]
        return self.factor.transposed_times(through)

    def from_white(self, white: Float[Array, "M S"]) -> Float[Array, "N Q S"]:
        cut = white.reshape(*self.variance.shape, -1)
        return self.own.solve(self.root[..., None] * cut)

    def to_white(self, right: Float[Array, "N Q S"]) -> Float[Array, "M S"]:
        turned = self.own.transposed_solve(right)
        return (self.root[..., None] * turned).reshape(self.size, -1)

    def from_preconditioner(self, white: Float[Array, "M S"]) -> Float[Array, "N Q S"]:
        cut = white.reshape(*self.variance.shape, -1)
        return self.own.transposed_times(cut / self.root[..., None])

    def noise_of(self, solutions: Float[Array, "N Q S"]) -> Float[Array, "N Q S"]:
        return self.own.times(solutions) / self.root[..., None] ** 2


def row_times(
    blocks: Float[Array, "N Q *R"], right: Float[Array, "N Q S"]
) -> Float[Array, "N Q S"]:
    """What rows' blocks, or diagonals of them, make of what the rows have."""
    return blocks @ right if blocks.ndim == 3 else blocks[..., None] * right


def root_of(blocks: Float[Array, "N Q *R"]) -> Float[Array, "N Q *R"]:
    """Roots of rows' precisions, whose negative parts count as zero."""
    if blocks.ndim == 2:
        return jnp.sqrt(jnp.maximum(blocks, 0.0))
    values, vectors = small_eigh(blocks)
    return vectors * jnp.sqrt(jnp.maximum(values, 0.0))[:, None]


def positive_part(blocks: Float[Array, "N Q *R"]) -> Float[Array, "N Q *R"]:
    """The same without their negative parts."""
    if blocks.ndim == 2:
        return jnp.maximum(blocks, 0.0)
    root = root_of(blocks)
    return root @ jnp.swapaxes(root, 1, 2)


def without_negative(M: PosteriorPrecision) -> PosteriorPrecision:
    """The same without negative precisions."""
    return eqx.tree_at(lambda M: M.sparse.precision, M, positive_part(M.sparse.precision))


def perturbed(M: PosteriorPrecision, key: RandomKey, number: int) -> Float[Array, "C Q S"]:
    """Draws z ~ N(0, A); negative precisions count as zero."""
    own = M.sparse
    noise = jax.random.normal(key, (2, *own.variance.shape, number), own.variance.dtype)
    z = M.from_rows(row_times(root_of(own.precision), noise[1]))
    of_prior = own.factor.transposed_times(noise[0] / jnp.sqrt(own.variance)[..., None])
    of_weights = jax.random.normal(jax.random.fold_in(key, 1), z[len(of_prior) :].shape, z.dtype)
    return z + jnp.concatenate([of_prior, of_weights])


def solve_to(
    M: PosteriorPrecision, right: Float[Array, "C Q S"], tolerance: float
) -> Float[Array, "C Q S"]:
    """A^-1 right, to a relative residual after the preconditioner; a warning if it is missed."""
    what = "Draws and means of latent functions by neighbours"
    return M.from_white(_iterated(M, M.to_white(right), tolerance, what))


def tolerance_of(M: PosteriorPrecision) -> float:
    """Relative residual of means; of many latents below what random vectors leave of evidences."""
    return 1e-10 if M.size <= FEW else 1e-5


def mean_given(M: PosteriorPrecision, linear: RowLatents) -> Float[Array, "C Q"]:
    """The posterior mean A^-1 l alone."""
    return M.from_white(mean_solved(M, M.to_white(M.from_rows(linear[..., None]))))[..., 0]


def mean_solved(M: PosteriorPrecision, right: Float[Array, "M 1"]) -> Float[Array, "M 1"]:
    """M^-1 right by conjugate gradients; its derivative is another solve."""

    def solve(times: Any, right: Array) -> Array:
        return _iterated(M, right, tolerance_of(M))

    return jax.lax.custom_linear_solve(M.times, right, solve, symmetric=True)


def _iterated(
    M: PosteriorPrecision, right: Float[Array, "M S"], tolerance: float, what: str | None = None
) -> Float[Array, "M S"]:
    """M^-1 right by conjugate gradients; not numbers where M is not positive definite."""
    found = conjugate_gradients(M, right, tolerance=tolerance, max_steps=MOST_STEPS)
    if what is not None:
        found.tell(what)
    return jnp.where(found.code == BREAKDOWN, jnp.nan, found.value)
