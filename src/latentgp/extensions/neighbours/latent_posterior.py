"""Posterior of latents that are conditioned on their neighbours, by solves with a sparse matrix.

With the prior precision B' D^-1 B and site precisions W the posterior precision is A = B' D^-1 B +
W. Solves go by M = T^-1 A T'^-1 for the root T of a preconditioner P = T T' of the same sparsity,
whose determinant is known. Where sites couple the latents of a row W has blocks of Q x Q, and P,
which does not, the precision of each latent given the others.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from latentgp.extensions.iterative.solvers.conjugate_gradients import conjugate_gradients
from latentgp.extensions.iterative.solvers.log_determinant import (
    mean_of,
    quadrature,
    recorded_conjugate_gradients,
)
from latentgp.extensions.iterative.solvers.operators import LinearOperator
from latentgp.extensions.iterative.solvers.preconditioners.base import Identity
from latentgp.extensions.iterative.solvers.solution import BREAKDOWN
from latentgp.extensions.neighbours.conditionals import Block, errors_by, turned
from latentgp.extensions.neighbours.divergence import Roots
from latentgp.extensions.neighbours.full_scale import LowRankPrior, features_seen, loadings_of
from latentgp.extensions.neighbours.near import NearPosterior, Sight, weighted_rows
from latentgp.extensions.neighbours.posterior import with_diagonals
from latentgp.extensions.neighbours.prior import Regression, TriangularFactors, nugget_of
from latentgp.kernels import LatentKernel
from latentgp.likelihoods.base import AnyMarginals, JointMarginals, Marginals
from latentgp.modules import stored, stored_as
from latentgp.numerics.cholesky import cholesky
from latentgp.numerics.small_matrices import small_eigh, small_inverse
from latentgp.representations.coupled import CoupledPosterior
from latentgp.representations.latent_axis import latent_diagonals, over_sharing, vmap_latents
from latentgp.runtime.row_scan import scan_rows
from latentgp.sites.coupled import Sites
from latentgp.typing import (
    Array,
    Coefs,
    Inputs,
    NeighbourRows,
    Points,
    RandomKey,
    RowLatents,
    Scalar,
)

_TOLERANCE, _MOST_STEPS = 1e-6, 1000  # of the mean
_POOR = 1e-3  # residual of the mean, or of a probe vector, that is worth a warning
_COLUMNS = 16  # of draws that are solved for together
_PROBE_TOLERANCE = 1e-5  # errors of estimates are of its square
_MOST_RECORDED = 200  # steps that quadrature reads


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


def _row_products(
    one: Float[Array, "N Q S"], other: Float[Array, "N Q S"], *, coupled: bool
) -> Float[Array, "N Q *R"]:
    """Means over draws of products: of latents of a row with each other, or each with itself."""
    if not coupled:
        return jnp.mean(one * other, axis=2)
    products = one @ jnp.swapaxes(other, 1, 2) / one.shape[2]
    return 0.5 * (products + jnp.swapaxes(products, 1, 2))


def _root(blocks: Float[Array, "N Q *R"]) -> Float[Array, "N Q *R"]:
    """Roots of rows' precisions, whose negative parts count as zero."""
    if blocks.ndim == 2:
        return jnp.sqrt(jnp.maximum(blocks, 0.0))
    values, vectors = small_eigh(blocks)
    return vectors * jnp.sqrt(jnp.maximum(values, 0.0))[:, None]


def _positive(blocks: Float[Array, "N Q *R"]) -> Float[Array, "N Q *R"]:
    """The same without their negative parts."""
    if blocks.ndim == 2:
        return jnp.maximum(blocks, 0.0)
    root = _root(blocks)
    return root @ jnp.swapaxes(root, 1, 2)


@stored_as("Solved")
class PrecisionSolves(NamedTuple):
    """Solves with the posterior precision A."""

    mean: Float[Array, "C Q"]  # A^-1 l
    left: Float[Array, "C Q S"]  # A^-1 z of probe vectors z with covariance P
    right: Float[Array, "C Q S"]  # P^-1 z: the mean of left right' is A^-1
    # variances of the posterior at the rows; covariances of a row's latents where sites couple them
    variance: Float[Array, "N Q *R"]
    log_determinant: Scalar  # of A
    standard_error: Scalar  # of the log-determinant
    residual: Scalar  # relative one of the mean; zero until a fit is finished
    # largest relative residual of the probe vectors' solves, which earlier files lack
    of_probes: Scalar | float = 0.0


def solved(
    M: PosteriorPrecision,
    diagonal: Float[Array, "N Q *R"],
    linear: RowLatents,
    key: RandomKey,
    probes: int,
    exact: bool,
) -> PrecisionSolves:
    """Mean, and all that probe vectors say; with `exact` there is one for each latent.

    A variance is 1 / A_ii + the mean of (x_i - z_i / A_ii)^2 over draws x = A^-1 z, z ~ N(0, A):
    of the row given all others, which is known, and of its mean given these (Sidén, Lindgren,
    Bolin & Villani 2018). Where a precision is negative there are no such draws, and with x = A^-1
    z and p = P^-1 z of probe vectors the square is (x_i - z_i / A_ii) p_i. Where latents are
    coupled A_ii is the block of a row, and squares are products with those of its other latents.
    """
    coupled = diagonal.ndim == 3
    given_others = small_inverse(diagonal) if coupled else 1 / diagonal
    right = M.to_white(M.from_rows(linear[..., None]))
    if not probes:
        mean, nan = M.from_white(_solve(M, right))[..., 0], jnp.asarray(jnp.nan)
        none = jnp.zeros((*mean.shape, 0), linear.dtype)
        return PrecisionSolves(mean, none, none, jnp.zeros_like(diagonal), nan, nan, nan, nan)
    if exact:
        units = jnp.eye(M.size, dtype=right.dtype)
        whole, noise = cholesky(M.times(units)), jnp.sqrt(M.size) * units
        white, left = (whole.inverse.T @ (whole.inverse @ own) for own in (right, noise))
        log_det, error = 2 * whole.half_log_determinant, jnp.zeros((), right.dtype)
        of_probes, by_draws = error, None
    else:
        # All at once: a step of several columns costs little more than of one.
        noise = jax.random.rademacher(key, (M.size, probes), right.dtype)
        z = perturbed(M, jax.random.fold_in(key, 1), probes)
        every = jnp.concatenate([right, noise, M.to_white(z)], axis=1)
        tolerances = jnp.full(every.shape[1], _PROBE_TOLERANCE).at[0].set(_TOLERANCE)
        recorded = recorded_conjugate_gradients(
            M, every, Identity(), tolerances, _MOST_STEPS, _MOST_RECORDED
        )
        own = slice(1, 1 + probes)
        white, left, drawn = jnp.split(recorded.solution.value, [own.start, own.stop], axis=1)
        white = jnp.where(recorded.broken[0], jnp.nan, white)
        log_det, error = mean_of(quadrature(recorded, own))
        of_probes = jnp.max(recorded.solution.relative_residual[1:])
        moved = M.at_rows(M.from_white(drawn)) - row_times(given_others, z[: len(diagonal)])
        by_draws = _row_products(moved, moved, coupled=coupled)
    x, p = M.from_white(left), M.from_white(noise)
    by_others = row_times(given_others, M.from_preconditioner(noise)[: len(diagonal)])
    spread = _row_products(M.at_rows(x) - by_others, M.at_rows(p), coupled=coupled)
    if by_draws is not None:
        precision = M.sparse.precision
        values = small_eigh(precision)[0] if coupled else precision
        spread = jnp.where(jnp.any(values < 0), _positive(spread), by_draws)
    log_det += M.log_determinant
    mean, unknown = M.from_white(white)[..., 0], jnp.zeros((), linear.dtype)
    return PrecisionSolves(mean, x, p, given_others + spread, log_det, error, unknown, of_probes)


def draws_of(M: PosteriorPrecision, key: RandomKey, number: int) -> Float[Array, "C Q S"]:
    """Draws A^-1 z, z ~ N(0, A), of coefficients less their mean.

    Where a precision is negative there is no such z: it counts as zero.
    """
    held = _held(M)
    return solve_to(held, perturbed(held, key, number), _PROBE_TOLERANCE)


def _held(M: PosteriorPrecision) -> PosteriorPrecision:
    """The same without negative precisions."""
    return eqx.tree_at(lambda M: M.sparse.precision, M, _positive(M.sparse.precision))


def perturbed(M: PosteriorPrecision, key: RandomKey, number: int) -> Float[Array, "C Q S"]:
    """Draws z ~ N(0, A); negative precisions count as zero."""
    own = M.sparse
    noise = jax.random.normal(key, (2, *own.variance.shape, number), own.variance.dtype)
    z = M.from_rows(row_times(_root(own.precision), noise[1]))
    of_prior = own.factor.transposed_times(noise[0] / jnp.sqrt(own.variance)[..., None])
    of_weights = jax.random.normal(jax.random.fold_in(key, 1), z[len(of_prior) :].shape, z.dtype)
    return z + jnp.concatenate([of_prior, of_weights])


def solve_to(
    M: PosteriorPrecision, right: Float[Array, "C Q S"], tolerance: float
) -> Float[Array, "C Q S"]:
    """A^-1 right, to a relative residual after the preconditioner; a warning if it is missed."""
    what = "Draws and means of latent functions by neighbours"
    return M.from_white(_iterated(M, M.to_white(right), tolerance, what))


def mean_given(M: PosteriorPrecision, linear: RowLatents) -> Float[Array, "C Q"]:
    """The posterior mean A^-1 l alone."""
    return M.from_white(_solve(M, M.to_white(M.from_rows(linear[..., None]))))[..., 0]


def _solve(M: PosteriorPrecision, right: Float[Array, "M 1"]) -> Float[Array, "M 1"]:
    """By conjugate gradients; its derivative is another solve."""

    def solve(times: Any, right: Array) -> Array:
        return _iterated(M, right, _TOLERANCE)

    return jax.lax.custom_linear_solve(M.times, right, solve, symmetric=True)


def _iterated(
    M: PosteriorPrecision, right: Float[Array, "M S"], tolerance: float, what: str | None = None
) -> Float[Array, "M S"]:
    """M^-1 right by conjugate gradients; not numbers where M is not positive definite."""
    found = conjugate_gradients(M, right, tolerance=tolerance, max_steps=_MOST_STEPS)
    if what is not None:
        found.tell(what)
    return jnp.where(found.code == BREAKDOWN, jnp.nan, found.value)


def diagonal_of(
    prior: Regression, neighbours: NeighbourRows, precision: Float[Array, "N Q *R"]
) -> Float[Array, "N Q *R"]:
    """Diagonal of A: 1 / D_i + W_i + the sum of A_ji^2 / D_j over those whose neighbour i is.

    Where latents are coupled, its blocks of the rows.
    """
    scaled = prior.weights**2 / prior.variance[..., None]
    block = Block.of(jnp.arange(len(precision)), jnp.asarray(neighbours))
    own = (1 / prior.variance)[..., None]
    sums = block.add(jnp.zeros_like(prior.variance), jnp.concatenate([scaled, own], axis=2))
    if precision.ndim == 2:
        return sums.T + precision
    identity = jnp.eye(precision.shape[1], dtype=precision.dtype)
    return sums.T[..., None] * identity + precision


@stored
class LatentNeighboursPosterior(NearPosterior):
    """Posterior of latents at the rows; a new one is conditioned on those at the nearest rows."""

    kernel: LatentKernel
    X: Inputs
    neighbours: NeighbourRows  # numbers of each row's neighbours, shape (N, #Q, V)
    prior: Regression  # each row given its neighbours
    operator: PosteriorPrecision  # the posterior precision with its preconditioner
    real: Bool[Array, "N"]  # rows that are not padding
    sites: Sites  # as functions of g
    solved: PrecisionSolves  # mean, and solves with probe vectors
    jitter: Scalar
    number: int = eqx.field(static=True)  # of the rows that a new input sees
    blocks: Int[Array, "K S"] | None = None
    order: Int[Array, "M"] | None = None
    low_rank: LowRankPrior | None = None  # what neighbours are not asked about

    @property
    def observed(self) -> tuple[Roots, Any]:
        of_others = 1 / jnp.sqrt(nugget_of(self.kernel, self.X))[:, None]
        of_others = jnp.broadcast_to(of_others, (len(of_others), len(self.X)))
        features = None if self.low_rank is None else self.low_rank.features
        return Roots(of_others, jnp.sqrt(jnp.maximum(self.sites.precisions, 0.0)).T), features

    @property
    def rank(self) -> int:
        return 0 if self.low_rank is None else len(self.low_rank.points)

    @property
    def mean_at_rows(self) -> RowLatents:
        """Means of latents at the rows."""
        return self.operator.at_rows(self.solved.mean[..., None])[..., 0]

    @property
    def log_evidence(self) -> Scalar:
        pull = 0.5 * jnp.sum(self.sites.linear * self.mean_at_rows)
        return pull - 0.5 * self._log_determinants

    @property
    def evidence_error(self) -> Scalar:
        return 0.5 * self.solved.standard_error

    @property
    def notes(self) -> tuple[str, ...]:
        residual, draws = float(self.solved.residual), self.solved.left.shape[2]
        if residual == 0:
            return super().notes
        return (
            f"Solves left a relative residual of {self._worst:.1e}, the log evidence has a "
            f"standard error of {float(self.evidence_error):.2g} nats by its random vectors, and "
            f"variances at new inputs, by {draws} draws, one of {np.sqrt(2 / draws):.0%} in what "
            "the rows leave of them.",
            *super().notes,
        )

    @property
    def complaints(self) -> tuple[str, ...]:
        if self._worst <= _POOR:
            return ()
        return (
            f"Solves with the posterior precision left a relative residual of {self._worst:.1e}; "
            "add noise or priors against huge variances, or use Inducing(...).",
        )

    @property
    def _worst(self) -> float:
        """Largest relative residual of the mean and of probe vectors."""
        return float(np.maximum(self.solved.residual, self.solved.of_probes))

    @property
    def kl(self) -> Scalar:
        mean, variance = self.mean_at_rows, self.solved.variance
        quadratic = jnp.sum(mean * self.sites.slope(mean))
        quadratic = quadratic - jnp.sum(self.sites.precision * variance)
        return 0.5 * (quadratic + self._log_determinants)

    @property
    def _log_determinants(self) -> Scalar:
        """Of the posterior precision, and of the prior covariance."""
        each = jnp.sum(jnp.log(self.prior.variance), axis=1)
        prior = jnp.broadcast_to(each, self.solved.mean.shape[1:])
        return self.solved.log_determinant + jnp.sum(prior)

    @property
    def at_rows(self) -> AnyMarginals:
        """Marginals at the rows themselves."""
        return Marginals(self.mean_at_rows, self.solved.variance)

    @property
    def absent(self) -> Bool[Array, "N"]:
        return ~self.real

    def seen_from(self, X: Float[Array, "B D"]) -> Sight:
        return self._sight_and_draws(X)[0]

    def _sight_and_draws(
        self, X: Float[Array, "B D"]
    ) -> tuple[Sight, Float[Array, "Q B S"], Float[Array, "Q B S"]]:
        """With what the rows seen have of A^-1 z and P^-1 z, weighted.

        Shrunk where a variance by them is above the prior's, as are covariances by them then.
        """
        near = self.rows.near(self.kernel, X)
        features = self._features_seen(near, X)
        weights, left = self.rows.latents_given(self.kernel, near, X, features)

        def at_new(coefficients: Float[Array, "C Q S"]) -> Float[Array, "Q B S"]:
            found = weighted_rows(weights, near, coefficients)
            if features is None:
                return found
            of_low_rank = jnp.moveaxis(coefficients[len(self.X) :], 1, 0)
            return found + vmap_latents(jnp.matmul, features[:, :, -1], of_low_rank)

        mean = at_new(self.solved.mean[..., None])[..., 0]
        left = jnp.broadcast_to(left, mean.shape)
        x, p = map(at_new, (self.solved.left, self.solved.right))
        prior = jnp.broadcast_to(latent_diagonals(self.kernel, X), mean.shape)
        through = jnp.mean(x * p, axis=2)
        allowed = jnp.clip(through, 0.0, jnp.maximum(prior - left, 0.0))
        root = jnp.sqrt(jnp.where(through > 0, allowed / through, 0.0))[..., None]
        return Sight(near, weights, errors_by(weights), mean, left + allowed), root * x, root * p

    def covariance(self, X: Inputs) -> Float[Array, "Q N N"]:
        """Covariances of latents at the nearest rows, and of the errors of means given these."""
        return self._covariance(X, *self._sight_and_draws(X))

    def _covariance(
        self, X: Inputs, sight: Sight, x: Float[Array, "Q N S"], p: Float[Array, "Q N S"]
    ) -> Float[Array, "Q N N"]:
        through = jnp.einsum("qis,qjs->qij", x, p) / x.shape[2]
        through = 0.5 * (through + jnp.swapaxes(through, 1, 2))
        errors = self.rows.errors_together(self.kernel, sight.near, sight.in_g, X)
        features = self._features_seen(sight.near, X)
        if features is not None:
            open_ = loadings_of(sight.in_g, features)
            errors = errors - open_ @ jnp.swapaxes(open_, 1, 2)
        return with_diagonals(errors + through, sight.variance)

    def pathwise_update(self, key: RandomKey, prior_path: Callable[[Points], Array]) -> Coefs:
        """Weights W^1/2 n + l - W g at the rows, which the path's latents g there solve for.

        With a prior path g_0 and white noise n these are g_0 + A^-1 (l + W^1/2 n - W g_0).
        """
        M = _held(self.operator)
        precision, before = M.sparse.precision, prior_path(self.X)
        noise = jax.random.normal(key, before.shape, before.dtype)[..., None]
        right = self.sites.linear[..., None] + row_times(_root(precision), noise)
        right = right - row_times(precision, before[..., None])
        moved = M.at_rows(solve_to(M, M.from_rows(right), _PROBE_TOLERANCE))
        return (right - row_times(precision, moved))[..., 0].T

    def _features_seen(
        self, near: Block, X: Float[Array, "B D"]
    ) -> Float[Array, "#Q B M points"] | None:
        """Features of the nearest rows and, last, of new inputs; None without a low rank."""
        low_rank = self.low_rank
        return None if low_rank is None else features_seen(low_rank, self.kernel, near, X)


@stored
class CoupledNeighboursPosterior(LatentNeighboursPosterior, CoupledPosterior):
    """The same under which the latents of a row are correlated."""

    @property
    def at_rows(self) -> JointMarginals:
        return JointMarginals(self.mean_at_rows, self.solved.variance)

    def marginals(self, X: Inputs) -> JointMarginals:
        def step(carry: Any, x: Array, real: Bool[Array, "B"]) -> tuple[Any, JointMarginals]:
            sight, *draws = self._sight_and_draws(x)
            one, other = (jnp.swapaxes(each, 0, 1) for each in draws)
            identity = jnp.eye(one.shape[1], dtype=one.dtype)
            products = _row_products(one, other, coupled=True)
            own = sight.variance.T[..., None]
            return carry, JointMarginals(sight.mean.T, jnp.where(identity > 0, own, products))

        return scan_rows(step, None, X, columns=self.columns, in_cache=True)[1]

    def joint_covariance(self, X: Inputs) -> Float[Array, "Q N Q N"]:
        sight, x, p = self._sight_and_draws(X)
        own = self._covariance(X, sight, x, p)
        products = jnp.einsum("qis,rjs->qirj", x, p) / x.shape[2]
        products = 0.5 * (products + jnp.transpose(products, (2, 3, 0, 1)))
        identity = jnp.eye(len(own), dtype=own.dtype)[:, None, :, None]
        return jnp.where(identity > 0, own[:, :, None], products)


def with_draws(
    posterior: LatentNeighboursPosterior, key: RandomKey, number: int
) -> LatentNeighboursPosterior:
    """The posterior with draws in place of probe vectors, for variances at new inputs.

    A variance by S draws has a relative error of sqrt(2 / S) in what the rows leave of it.
    """
    parts = -(-number // _COLUMNS)
    drawn = jax.lax.map(
        lambda key: draws_of(posterior.operator, key, _COLUMNS), jax.random.split(key, parts)
    )
    drawn = jnp.moveaxis(drawn, 0, -1).reshape(*drawn.shape[1:3], -1)
    M = posterior.operator
    linear = M.from_rows(posterior.sites.linear[..., None])
    left = linear - M.coefficient_times(posterior.solved.mean[..., None])
    residual = jnp.sqrt(jnp.sum(left**2) / jnp.maximum(jnp.sum(linear**2), 1e-300))
    finished = posterior.solved._replace(left=drawn, right=drawn, residual=residual)
    return eqx.tree_at(lambda p: p.solved, posterior, finished)


def slope_in_prior(posterior: LatentNeighboursPosterior) -> Regression:
    """Derivatives of the log evidence in each row's weights and variance, the sites held.

    With R = m m' + A^-1 and b = (1, -A_i) they are (R b)_c / D and (b' R b / D - 1) / (2 D). The
    mean of p p' C' R^-2, which is zero at the neighbours, makes the first less noisy. So does, of
    both, what the operator knows of the mean of p p'.
    """
    solved, prior = posterior.solved, posterior.prior
    latents = solved.mean.shape[1]
    neighbours, M = jnp.asarray(posterior.neighbours), posterior.operator
    noise, known = M.noise_of(solved.right), M.control(solved.right)

    def step(carry: Any, chunk: Any, real: Bool[Array, "B"]) -> tuple[Any, Regression]:
        rows, neighbours, weights, variance, noise = chunk
        block = Block.of(rows, neighbours)
        numbers = jnp.broadcast_to(block.rows, (len(rows), latents, block.rows.shape[2]))
        there = jnp.broadcast_to(block.there, numbers.shape)
        b = errors_by(weights)
        variance = jnp.broadcast_to(variance, numbers.shape[:2])
        at = numbers, jnp.arange(latents)[:, None]

        def along(values: Array) -> tuple[Array, Array]:
            taken = jnp.where(there[..., None], values[at], 0.0)
            return taken, jnp.sum(b[..., None] * taken, axis=2)

        (mean, b_mean), (x, b_x), (p, b_p) = map(
            along, (solved.mean[..., None], solved.left, solved.right)
        )
        cross = jnp.mean(x * b_p[:, :, None] + p * b_x[:, :, None], axis=3)
        moment = mean[..., 0] * b_mean + 0.5 * cross
        if known is not None:
            (t, b_t), (k, b_k) = map(along, known)
            change = jnp.mean(t * b_t[:, :, None] - p * b_p[:, :, None], axis=3)
            moment = moment + change + jnp.sum(k * b_k[:, :, None], axis=3)
        form = jnp.sum(b * moment, axis=2)
        control = jnp.mean(p * noise[:, :, None], axis=3)
        in_weights = (moment / variance[..., None] - control)[..., :-1]
        in_variance = 0.5 * (form / variance - 1) / variance
        keep = real[:, None]
        return carry, Regression(
            jnp.where(keep[..., None] & there[..., :-1], in_weights, 0.0),
            jnp.where(keep, in_variance, 0.0),
        )

    rows = jnp.arange(len(posterior.X)), neighbours, *turned(prior), noise
    each = solved.left.shape[2] * 2 + 2 + posterior.rank
    columns = (neighbours.shape[2] + 1) * each * latents
    _, found = scan_rows(step, None, rows, columns=columns, in_cache=True)
    return jax.tree.map(over_sharing, turned(found), prior)
