"""The latent functions through M inducing points: O(N M^2), streamed over the rows."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Key, PyTree

from latentgp.arrays import Array
from latentgp.errors import InputError
from latentgp.kernels import LatentKernel
from latentgp.latents.base import (
    LatentPosterior,
    Pullback,
    Representation,
    SiteUpdate,
    block_means,
    latent_diagonals,
    latent_grams,
    over_latents,
    over_sharing,
)
from latentgp.latents.sampling import InducingSampler, inducing_sampler
from latentgp.latents.selection import Selection, select_points
from latentgp.linalg.cholesky import (
    Factor,
    cholesky,
    climb_jitter,
    is_safe,
    jittered_cholesky,
)
from latentgp.linalg.streaming import scan_rows
from latentgp.sites.base import GaussianSites, Rows

_SAFE_PIVOT = 0.95


class Statistics(NamedTuple):
    """Sums over rows of raw kernel blocks k_n = k(Z, x_n), whitened only afterwards.

    Attributes:
        products: sum_n w_n k_n k_n', shape (Q, M, M).
        linear: sum_n l_n k_n, shape (Q, M).
        prior_variance: sum_n w_n k(x_n, x_n), shape (Q,).
    """

    products: Float[Array, "Q M M"]
    linear: Float[Array, "Q M"]
    prior_variance: Float[Array, "Q"]

    def add(
        self,
        blocks: Float[Array, "#Q M B"],
        prior: Float[Array, "#Q B"],
        linear: Float[Array, "B Q"],
        precision: Float[Array, "B Q"],
    ) -> "Statistics":
        """These sums with some rows added, given their kernel blocks."""

        def sums(block, prior, linear, precision):
            return (block * precision) @ block.T, linear @ block.T, prior @ precision

        return Statistics(
            *map(jnp.add, self, over_latents(sums, blocks, prior, linear.T, precision.T))
        )


class InducingPosterior(LatentPosterior):
    """Posterior N(white_mean, (I + A)^-1) of white inducing variables v = L^-1 u, K_mm = L L'.

    Attributes:
        points: inducing points Z, shape (M, D).
        factor: of K_mm + jitter, shapes (#Q, M, M).
        white_mean: shape (Q, M).
        white_factor: of I + A, A = L^-1 (sum_n w_n k_n k_n') L^-T, shapes (Q, M, M).
        mean_weights: L^-T white_mean, so that the mean at x is k(x, Z) mean_weights.
        reduction: K_mm^-1 - (K_mm + sum_n w_n k_n k_n')^-1, so that the variance at x is
            k(x, x) - k(x, Z) reduction k(Z, x).
    """

    kernel: LatentKernel
    points: Float[Array, "M D"]
    factor: Factor
    white_mean: Float[Array, "Q M"]
    white_factor: Factor
    mean_weights: Float[Array, "Q M"]
    reduction: Float[Array, "Q M M"]
    log_evidence: Float[Array, ""]
    kl: Float[Array, ""]
    jitter: Float[Array, ""]
    deficit: Float[Array, ""]

    def mean(self, X: Float[Array, "N D"]) -> Float[Array, "N Q"]:
        return block_means(latent_grams(self.kernel, self.points, X), self.mean_weights)

    def marginals(self, X: Float[Array, "N D"]) -> tuple[Float[Array, "N Q"], Float[Array, "N Q"]]:
        return self.block_marginals(*_blocks(self.kernel, self.points, X))

    def block_marginals(
        self, blocks: Float[Array, "#Q M B"], prior: Float[Array, "#Q B"]
    ) -> tuple[Float[Array, "B Q"], Float[Array, "B Q"]]:
        """Marginals at rows whose kernel blocks k(Z, X) and prior variances are known."""

        def variance(block, prior, reduction):
            explained = jnp.sum((reduction @ block) * block, axis=0)
            return jnp.clip(prior - explained, 0.0, prior)

        variances = over_latents(variance, blocks, prior, self.reduction)
        return block_means(blocks, self.mean_weights), variances.T

    def covariance(self, X: Float[Array, "N D"]) -> Float[Array, "Q N N"]:
        cross = latent_grams(self.kernel, self.points, X)
        prior = latent_grams(self.kernel, X)
        return over_latents(lambda c, p, r: p - c.T @ r @ c, cross, prior, self.reduction)

    @property
    def centres(self) -> Float[Array, "M D"]:
        return self.points

    def pathwise_update(
        self, key: Key[Array, ""], prior_path: Callable[[Float[Array, "M D"]], Array]
    ) -> Float[Array, "Q M"]:
        noise = jax.random.normal(key, self.white_mean.shape, self.white_mean.dtype)

        def weights(inverse, white_mean, white_inverse, prior, noise):
            return (white_mean + noise @ white_inverse - inverse @ prior) @ inverse

        return over_latents(
            weights,
            self.factor.inverse,
            self.white_mean,
            self.white_factor.inverse,
            prior_path(self.points).T,
            noise,
        )


class Inducing(Representation):
    """Inducing points Z, fixed while hyper-parameters are learned (Titsias 2009).

    Args:
        number: how many points to choose; not needed where `points` are given.
        points: shape (M, D), units of the inputs.
        selection: how points are chosen among the rows: "k-means++" takes the centres of
            clusters, "greedy-variance" the rows with the largest prior variance given those
            already chosen (Burt et al. 2020, 4.2).

    Raises:
        InputError: neither a number nor points.

    Example:
        >>> Inducing(number=100).number
        100
    """

    number: int | None = eqx.field(static=True, default=None)
    points: Float[Array, "M D"] | None = None
    selection: Selection = eqx.field(static=True, default="k-means++")

    def __check_init__(self) -> None:
        if self.points is None and (self.number is None or self.number < 1):
            raise InputError(
                f"Inducing needs points, or a positive number of them to choose, got "
                f"number={self.number}; give for example Inducing(number=200)."
            )

    def initialise(
        self, X: np.ndarray, weights: np.ndarray | None, kernel: LatentKernel, key: Key[Array, ""]
    ) -> "Inducing":
        if self.points is not None:
            points = np.asarray(self.points, X.dtype)
            if points.ndim != 2 or points.shape[1] != X.shape[1]:
                raise InputError(
                    f"Inducing points must have shape (M, {X.shape[1]}) like the inputs, "
                    f"got shape {points.shape}."
                )
        else:
            assert self.number is not None
            points = select_points(X, weights, kernel, self.number, self.selection, key)
        return type(self)(number=len(points), points=points, selection=self.selection)

    def condition(
        self, kernel: LatentKernel, X: Float[Array, "N D"], sites: GaussianSites
    ) -> InducingPosterior:
        points = self._points()

        def step(statistics, rows, real):
            x, linear, precision = rows
            linear, precision = linear * real[:, None], precision * real[:, None]
            return statistics.add(*_blocks(kernel, points, x), linear, precision), None

        statistics, _ = scan_rows(
            step,
            _no_rows(sites.linear.shape[1], points),
            (X, sites.linear, sites.precision),
            columns=len(points),
        )
        return _posterior(kernel, points, statistics)

    def update_sites(
        self,
        posterior: InducingPosterior,
        X: Float[Array, "N D"],
        rows: Rows,
        sites: GaussianSites,
        offset: Float[Array, "N Q"],
        update: SiteUpdate,
    ) -> tuple[GaussianSites, InducingPosterior, PyTree]:
        kernel, points = posterior.kernel, self._points()

        def step(statistics, chunk, real):
            x, rows, sites, offset = chunk
            blocks, prior = _blocks(kernel, points, x)
            mean, variance = posterior.block_marginals(blocks, prior)
            sites, other = update(rows, mean, variance, sites, offset)
            about = sites.about(offset)
            linear, precision = about.linear * real[:, None], about.precision * real[:, None]
            return statistics.add(blocks, prior, linear, precision), (sites, other)

        statistics, (sites, other) = scan_rows(
            step,
            _no_rows(sites.linear.shape[1], points),
            (X, rows, sites, offset),
            columns=len(points),
        )
        return sites, _posterior(kernel, points, statistics), other

    def pull_back(
        self, posterior: InducingPosterior, X: Float[Array, "N D"], sites: GaussianSites
    ) -> Pullback:
        kernel, points = posterior.kernel, self._points()

        def step(slopes, rows, real):
            x, linear, precision = rows
            linear, precision = linear * real[:, None], precision * real[:, None]
            (blocks, prior), pull_blocks = jax.vjp(lambda k, z: _blocks(k, z, x), kernel, points)

            def in_block(block, prior, weights, reduction, linear, precision):
                # d/dP = (reduction - weights weights') / 2 for P = sum_n w_n k_n k_n'.
                product, mean = reduction @ block, weights @ block
                explained = jnp.sum(product * block, axis=0)
                weighted_residual = linear - precision * mean
                slope = product * precision + weights[:, None] * weighted_residual
                return slope, mean, jnp.clip(prior - explained, 0.0, prior)

            in_blocks, mean, variance = over_latents(
                in_block,
                blocks,
                prior,
                posterior.mean_weights,
                posterior.reduction,
                linear.T,
                precision.T,
            )
            in_prior = over_sharing(-0.5 * precision.T, prior)
            slopes_here = pull_blocks((over_sharing(in_blocks, blocks), in_prior))
            return jax.tree.map(jnp.add, slopes, slopes_here), (mean.T, variance.T)

        # The part through K_mm, which does not depend on the rows.
        grams, pull_grams = jax.vjp(latent_grams, kernel, points)
        relative_jitter = posterior.jitter / jnp.max(_scales(grams))
        identity = jnp.eye(len(points), dtype=grams.dtype)

        def in_gram(inverse, weights, reduction, white_factor):
            A = white_factor.lower @ white_factor.lower.T - identity
            in_products = 0.5 * (reduction - jnp.outer(weights, weights))
            slope = in_products - 0.5 * inverse.T @ A @ inverse
            return slope + relative_jitter * jnp.trace(slope) / len(points) * identity

        slopes = over_latents(
            in_gram,
            posterior.factor.inverse,
            posterior.mean_weights,
            posterior.reduction,
            posterior.white_factor,
        )
        start = pull_grams(over_sharing(slopes, grams))
        (in_kernel, in_points), (mean, variance) = scan_rows(
            step, start, (X, sites.linear, sites.precision), columns=len(points)
        )
        places = eqx.tree_at(lambda r: r.points, self, in_points)
        return Pullback(in_kernel, places, mean, variance)

    def white_size(self, X: Float[Array, "N D"]) -> int:
        return len(self._points())

    def from_white(
        self, kernel: LatentKernel, X: Float[Array, "N D"], white: Float[Array, "Q M"]
    ) -> Float[Array, "N Q"]:
        cross, inverse = self._white_blocks(kernel, X)
        return over_latents(lambda c, inverse, v: c @ (inverse.T @ v), cross, inverse, white).T

    def to_white(
        self, kernel: LatentKernel, X: Float[Array, "N D"], g: Float[Array, "N Q"]
    ) -> Float[Array, "Q M"]:
        features = over_latents(lambda c, inverse: c @ inverse.T, *self._white_blocks(kernel, X))
        return over_latents(lambda features, g: jnp.linalg.lstsq(features, g)[0], features, g.T)

    def sampler(
        self, kernel: LatentKernel, X: Float[Array, "N D"], alpha: float = 0.0
    ) -> InducingSampler:
        return inducing_sampler(kernel, self._points(), X, alpha)

    @property
    def is_exact(self) -> bool:
        return False

    def _white_blocks(
        self, kernel: LatentKernel, X: Float[Array, "N D"]
    ) -> tuple[Float[Array, "#Q N M"], Float[Array, "#Q M M"]]:
        """k(X, Z) and L^-1, so that g = k(X, Z) L^-T v for white coefficients v."""
        points = self._points()
        factor = over_latents(jittered_cholesky, latent_grams(kernel, points)).factor
        return latent_grams(kernel, X, points), factor.inverse

    def _points(self) -> Float[Array, "M D"]:
        if self.points is None:
            raise InputError(
                "These inducing points have not been chosen yet; call initialise(...) first, "
                "or fit the model with latentgp.fit."
            )
        return jnp.asarray(self.points)


def _blocks(
    kernel: LatentKernel, points: Float[Array, "M D"], X: Float[Array, "B D"]
) -> tuple[Float[Array, "#Q M B"], Float[Array, "#Q B"]]:
    """What the kernel says about some rows: k(Z, X), and the prior variances."""
    return latent_grams(kernel, points, X), latent_diagonals(kernel, X)


def _scales(grams: Float[Array, "#Q M M"]) -> Float[Array, "#Q"]:
    """What jitter is relative to, for each Gram matrix."""
    return jnp.mean(jnp.diagonal(grams, axis1=1, axis2=2), axis=1)


def _no_rows(latents: int, points: Float[Array, "M D"]) -> Statistics:
    size, dtype = len(points), points.dtype
    return Statistics(
        jnp.zeros((latents, size, size), dtype),
        jnp.zeros((latents, size), dtype),
        jnp.zeros(latents, dtype),
    )


def _posterior(
    kernel: LatentKernel, points: Float[Array, "M D"], statistics: Statistics
) -> InducingPosterior:
    """The optimal q(u) given sites, and the evidence; everything here is M x M.

    Every eigenvalue of I + A is at least one. Rounding in the sums over rows is amplified by the
    inverse of K_mm, and a pivot below one shows where it would spoil the result: then K_mm gets
    more jitter. Latent functions with kernels of their own climb the ladder together, each in
    units of its own prior variance.
    """
    grams = latent_grams(kernel, points)
    scales = _scales(grams)
    identity = jnp.eye(len(points), dtype=grams.dtype)

    def attempt(jitters):
        prior = over_latents(lambda K, jitter: cholesky(K + jitter * identity), grams, jitters)

        def factorise(inverse, products):
            A = inverse @ products @ inverse.T
            return cholesky(identity + 0.5 * (A + A.T)), jnp.trace(A)

        factor, trace = over_latents(factorise, prior.inverse, statistics.products)
        pivots = jnp.diagonal(factor.lower, axis1=-2, axis2=-1)
        safe = over_latents(is_safe, prior, scales)
        return (prior, factor, trace), jnp.all(safe) & (jnp.min(pivots) >= _SAFE_PIVOT)

    (prior, factor, trace), jitters = climb_jitter(attempt, scales)

    def solve(inverse, precision, factor, linear):
        c = factor.inverse @ (inverse @ linear)
        white_mean = factor.inverse.T @ c
        R = factor.inverse @ inverse
        quadratic, log_determinant = c @ c, factor.half_log_determinant
        kl = (
            0.5 * (jnp.sum(factor.inverse**2) - len(points) + white_mean @ white_mean)
            + log_determinant
        )
        weights = inverse.T @ white_mean
        return white_mean, weights, precision - R.T @ R, 0.5 * quadratic - log_determinant, kl

    precision = over_latents(Factor.inverse_of_product, prior)
    white_mean, weights, reduction, log_evidence, kl = over_latents(
        solve, prior.inverse, precision, factor, statistics.linear
    )
    deficit = 0.5 * jnp.sum(statistics.prior_variance - trace)
    return InducingPosterior(
        kernel=kernel,
        points=points,
        factor=prior,
        white_mean=white_mean,
        white_factor=factor,
        mean_weights=weights,
        reduction=reduction,
        log_evidence=jnp.sum(log_evidence) - deficit,
        kl=jnp.sum(kl),
        jitter=jnp.max(jitters),
        deficit=deficit,
    )
