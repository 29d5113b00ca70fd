"""Posterior of latents that are conditioned on their neighbours, by solves with a sparse matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from latentgp.extensions.neighbours.conditionals import Block, errors_by
from latentgp.extensions.neighbours.divergence import Roots
from latentgp.extensions.neighbours.full_scale import (
    LowRankPrior,
    features_if_any,
    features_seen,
    loadings_of,
)
from latentgp.extensions.neighbours.latent_precision import (
    PosteriorPrecision,
    root_of,
    row_times,
    solve_to,
    without_negative,
)
from latentgp.extensions.neighbours.latent_solves import (
    PROBE_TOLERANCE,
    PrecisionSolves,
    draws_of,
    row_products,
)
from latentgp.extensions.neighbours.near import NearPosterior, Sight, weighted_rows
from latentgp.extensions.neighbours.posterior import with_diagonals
from latentgp.extensions.neighbours.prior import Regression, nugget_of
from latentgp.kernels import LatentKernel
from latentgp.likelihoods.base import AnyMarginals, JointMarginals, Marginals
from latentgp.modules import stored
from latentgp.representations.coupled import CoupledPosterior
from latentgp.representations.latent_axis import latent_diagonals, vmap_latents
from latentgp.runtime.row_scan import scan_rows
from latentgp.sites.coupled import Sites, negative_left_out
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

_POOR = 1e-3  # residual of the mean, or of a probe vector, that is worth a warning
_COLUMNS = 16  # of draws that are solved for together


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
        of_own = jnp.sqrt(jnp.maximum(self.sites.precisions, 0.0)).T
        return Roots(of_others, of_own, of_latents=True), features_if_any(self.low_rank)

    @property
    def sites_of_rows(self) -> Sites:
        return self.sites

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
            return (*super().notes, *self._left_out("Sample paths"))
        return (
            f"Solves left a relative residual of {self._worst:.1e}, the log evidence has a "
            f"standard error of {float(self.evidence_error):.2g} nats by its random vectors, and "
            f"variances at new inputs, by {draws} draws, one of {np.sqrt(2 / draws):.0%} in what "
            "the rows leave of them.",
            *super().notes,
            *self._left_out("Variances at new inputs and sample paths"),
        )

    def _left_out(self, what: str) -> tuple[str, ...]:
        return negative_left_out(what, self.sites.precision, self.at_rows)

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
        """Weights l - W m of the mean, and of a draw about it with negative precisions left out.

        Of a prior path g_0 and white noise n, with r = W^1/2 n - W g_0, those are r - W A^-1 r.
        """
        M = without_negative(self.operator)
        precision, before = M.sparse.precision, prior_path(self.X)
        noise = jax.random.normal(key, before.shape, before.dtype)[..., None]
        right = row_times(root_of(precision), noise) - row_times(precision, before[..., None])
        moved = M.at_rows(solve_to(M, M.from_rows(right), PROBE_TOLERANCE))
        of_mean = self.sites.slope(self.mean_at_rows)
        return (of_mean + (right - row_times(precision, moved))[..., 0]).T

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
            products = row_products(one, other, coupled=True)
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
