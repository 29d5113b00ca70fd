"""Derivatives of the log evidence of latents given their neighbours, the sites held."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from latentgp.extensions.neighbours.base import NearestRows
from latentgp.extensions.neighbours.conditionals import Block, errors_by, turned
from latentgp.extensions.neighbours.full_scale import features_if_any, pull_features
from latentgp.extensions.neighbours.latent_posterior import LatentNeighboursPosterior
from latentgp.extensions.neighbours.prior import Regression, slope_of_regression
from latentgp.kernels import LatentKernel
from latentgp.likelihoods.base import AnyMarginals
from latentgp.representations.latent_axis import over_sharing
from latentgp.representations.variables import Centres
from latentgp.runtime.row_scan import scan_rows
from latentgp.typing import Array


class PriorSlopes(NamedTuple):
    """Derivatives of the log evidence in what the prior is at the rows."""

    law: Regression  # of each row given its neighbours
    features: Float[Array, "#Q N M"] | None  # of a low rank, in what sites see


class LatentPullback(NamedTuple):
    """`Pullback` whose kernel part takes a change before its pass over the rows."""

    kernel: LatentKernel
    representation: NearestRows | None
    marginals: AnyMarginals
    posterior: LatentNeighboursPosterior
    in_prior: PriorSlopes

    def kernel_with(self, change: PriorSlopes) -> LatentKernel:
        """The kernel's with a change of those in the prior, by one pass for both."""
        return slopes_given(self.posterior, jax.tree.map(jnp.add, self.in_prior, change))[0]


def slopes_in_prior(posterior: LatentNeighboursPosterior) -> PriorSlopes:
    """Derivatives of the log evidence in each row's weights and variance, and in features."""
    slope, low_rank = _slope_in_regression(posterior), posterior.low_rank
    if low_rank is None:
        return PriorSlopes(slope, None)
    of_sites = posterior.sites.slope(posterior.mean_at_rows)
    solves = posterior.solved.mean, posterior.solved.left, posterior.solved.right
    M: Any = posterior.operator
    return PriorSlopes(slope, over_sharing(M.in_features(of_sites, *solves), low_rank.features))


def slopes_given(
    posterior: LatentNeighboursPosterior, slopes: PriorSlopes
) -> tuple[LatentKernel, Centres | None]:
    """Derivatives in kernel and inducing points of what has these in `slopes_in_prior`."""
    low_rank, (in_law, direct) = posterior.low_rank, slopes
    in_features: Any
    own = posterior.kernel, posterior.X, posterior.neighbours, features_if_any(low_rank)
    in_kernel, in_features = slope_of_regression(*own, posterior.prior, in_law)
    if low_rank is None:
        return in_kernel, None
    in_features = in_features + direct
    through, in_points = pull_features(posterior.kernel, low_rank.points, posterior.X, in_features)
    return jax.tree.map(jnp.add, in_kernel, through), in_points


def _slope_in_regression(posterior: LatentNeighboursPosterior) -> Regression:
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
