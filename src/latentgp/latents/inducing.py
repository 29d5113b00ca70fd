"""The latent functions through M inducing points: O(N M^2), streamed over the rows."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Key

from latentgp.arrays import Array
from latentgp.errors import InputError
from latentgp.kernels import Kernel
from latentgp.latents.base import (
    LatentPosterior,
    Pullback,
    Representation,
    SiteUpdate,
    over_latents,
)
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
        block: Float[Array, "M B"],
        prior: Float[Array, "B"],
        linear: Float[Array, "B Q"],
        precision: Float[Array, "B Q"],
    ) -> "Statistics":
        """These sums with the rows of one block added."""
        products = over_latents(lambda w: (block * w) @ block.T, precision.T)
        return Statistics(
            self.products + products,
            self.linear + linear.T @ block.T,
            self.prior_variance + prior @ precision,
        )


class InducingPosterior(LatentPosterior):
    """Posterior N(white_mean, (I + A)^-1) of white inducing variables v = L^-1 u, K_mm = L L'.

    Attributes:
        points: inducing points Z, shape (M, D).
        factor: of K_mm + jitter.
        white_mean: shape (Q, M).
        white_factor: of I + A, A = L^-1 (sum_n w_n k_n k_n') L^-T, shapes (Q, M, M).
        mean_weights: L^-T white_mean, so that the mean at x is k(x, Z) mean_weights.
        reduction: K_mm^-1 - (K_mm + sum_n w_n k_n k_n')^-1, so that the variance at x is
            k(x, x) - k(x, Z) reduction k(Z, x).
    """

    kernel: Kernel
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
        return self.kernel.gram(self.points, X).T @ self.mean_weights.T

    def marginals(self, X: Float[Array, "N D"]) -> tuple[Float[Array, "N Q"], Float[Array, "N Q"]]:
        return self.block_marginals(self.kernel.gram(self.points, X), self.kernel.diagonal(X))

    def block_marginals(
        self, block: Float[Array, "M B"], prior: Float[Array, "B"]
    ) -> tuple[Float[Array, "B Q"], Float[Array, "B Q"]]:
        """Marginals at rows whose kernel block k(Z, X) and prior variances are known."""
        explained = over_latents(lambda r: jnp.sum((r @ block) * block, axis=0), self.reduction)
        return block.T @ self.mean_weights.T, jnp.clip(prior - explained, 0.0, prior).T

    def covariance(self, X: Float[Array, "N D"]) -> Float[Array, "Q N N"]:
        cross, prior = self.kernel.gram(self.points, X), self.kernel.symmetric_gram(X)
        return over_latents(lambda r: prior - cross.T @ r @ cross, self.reduction)

    @property
    def centres(self) -> Float[Array, "M D"]:
        return self.points

    def pathwise_update(
        self, key: Key[Array, ""], prior_path: Callable[[Float[Array, "M D"]], Array]
    ) -> Float[Array, "Q M"]:
        noise = jax.random.normal(key, self.white_mean.shape, self.white_mean.dtype)
        white = self.white_mean + jnp.einsum("qji,qj->qi", self.white_factor.inverse, noise)
        prior_white = self.factor.inverse @ prior_path(self.points)
        return (white - prior_white.T) @ self.factor.inverse


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
        self, X: np.ndarray, weights: np.ndarray | None, kernel: Kernel, key: Key[Array, ""]
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
        self, kernel: Kernel, X: Float[Array, "N D"], sites: GaussianSites
    ) -> InducingPosterior:
        points = self._points()

        def step(statistics, rows, real):
            x, linear, precision = rows
            linear, precision = linear * real[:, None], precision * real[:, None]
            block, prior = kernel.gram(points, x), kernel.diagonal(x)
            return statistics.add(block, prior, linear, precision), None

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
    ) -> tuple[GaussianSites, InducingPosterior, Float[Array, ""]]:
        kernel, points = posterior.kernel, self._points()

        def step(statistics, chunk, real):
            x, rows, sites, offset = chunk
            block, prior = kernel.gram(points, x), kernel.diagonal(x)
            mean, variance = posterior.block_marginals(block, prior)
            sites, terms = update(rows, mean, variance, sites, offset)
            about = sites.about(offset)
            linear, precision = about.linear * real[:, None], about.precision * real[:, None]
            return statistics.add(block, prior, linear, precision), (sites, terms)

        statistics, (sites, terms) = scan_rows(
            step,
            _no_rows(sites.linear.shape[1], points),
            (X, rows, sites, offset),
            columns=len(points),
        )
        return sites, _posterior(kernel, points, statistics), jnp.sum(terms)

    def pull_back(
        self, posterior: InducingPosterior, X: Float[Array, "N D"], sites: GaussianSites
    ) -> Pullback:
        kernel, points = posterior.kernel, self._points()

        def step(slopes, rows, real):
            x, linear, precision = rows
            linear, precision = linear * real[:, None], precision * real[:, None]
            block, pull_block = jax.vjp(lambda k, z: k.gram(z, x), kernel, points)
            prior, pull_prior = jax.vjp(lambda k: k.diagonal(x), kernel)

            def in_block(weights, reduction, linear, precision):
                # d/dP = (reduction - weights weights') / 2 for P = sum_n w_n k_n k_n'.
                product, mean = reduction @ block, weights @ block
                explained = jnp.sum(product * block, axis=0)
                weighted_residual = linear - precision * mean
                slope = product * precision + weights[:, None] * weighted_residual
                return slope, mean, jnp.clip(prior - explained, 0.0, prior)

            slope, mean, variance = over_latents(
                in_block, posterior.mean_weights, posterior.reduction, linear.T, precision.T
            )
            in_kernel, in_points = pull_block(jnp.sum(slope, axis=0))
            (in_kernel_too,) = pull_prior(-0.5 * jnp.sum(precision, axis=1))
            slopes = jax.tree.map(
                lambda total, *parts: total + sum(parts),
                slopes,
                (in_kernel, in_points),
                (in_kernel_too, jnp.zeros_like(points)),
            )
            return slopes, (mean.T, variance.T)

        # The part through K_mm, which does not depend on the rows.
        gram, pull_gram = jax.vjp(lambda k, z: k.symmetric_gram(z), kernel, points)
        relative_jitter = posterior.jitter / jnp.mean(jnp.diagonal(gram))
        identity = jnp.eye(len(points), dtype=gram.dtype)
        inverse = posterior.factor.inverse

        def in_gram(weights, reduction, white_factor):
            A = white_factor.lower @ white_factor.lower.T - identity
            in_products = 0.5 * (reduction - jnp.outer(weights, weights))
            slope = in_products - 0.5 * inverse.T @ A @ inverse
            return slope + relative_jitter * jnp.trace(slope) / len(points) * identity

        slopes = over_latents(
            in_gram, posterior.mean_weights, posterior.reduction, posterior.white_factor
        )
        start = pull_gram(jnp.sum(slopes, axis=0))
        (in_kernel, in_points), (mean, variance) = scan_rows(
            step, start, (X, sites.linear, sites.precision), columns=len(points)
        )
        places = eqx.tree_at(lambda r: r.points, self, in_points)
        return Pullback(in_kernel, places, mean, variance)

    def white_size(self, X: Float[Array, "N D"]) -> int:
        return len(self._points())

    def from_white(
        self, kernel: Kernel, X: Float[Array, "N D"], white: Float[Array, "Q M"]
    ) -> Float[Array, "N Q"]:
        points = self._points()
        inverse = jittered_cholesky(kernel.symmetric_gram(points)).factor.inverse
        return kernel.gram(X, points) @ (inverse.T @ white.T)

    def to_white(
        self, kernel: Kernel, X: Float[Array, "N D"], g: Float[Array, "N Q"]
    ) -> Float[Array, "Q M"]:
        points = self._points()
        inverse = jittered_cholesky(kernel.symmetric_gram(points)).factor.inverse
        return jnp.linalg.lstsq(kernel.gram(X, points) @ inverse.T, g)[0].T

    @property
    def is_exact(self) -> bool:
        return False

    def _points(self) -> Float[Array, "M D"]:
        if self.points is None:
            raise InputError(
                "These inducing points have not been chosen yet; call initialise(...) first, "
                "or fit the model with latentgp.fit."
            )
        return jnp.asarray(self.points)


def _no_rows(latents: int, points: Float[Array, "M D"]) -> Statistics:
    size, dtype = len(points), points.dtype
    return Statistics(
        jnp.zeros((latents, size, size), dtype),
        jnp.zeros((latents, size), dtype),
        jnp.zeros(latents, dtype),
    )


def _posterior(
    kernel: Kernel, points: Float[Array, "M D"], statistics: Statistics
) -> InducingPosterior:
    """The optimal q(u) given sites, and the evidence; everything here is M x M.

    Every eigenvalue of I + A is at least one. Rounding in the sums over rows is amplified by the
    inverse of K_mm, and a pivot below one shows where it would spoil the result: then K_mm gets
    more jitter.
    """
    gram = kernel.symmetric_gram(points)
    scale = jnp.mean(jnp.diagonal(gram))
    identity = jnp.eye(len(points), dtype=gram.dtype)

    def attempt(jitter):
        prior = cholesky(gram + jitter * identity)

        def factorise(products):
            A = prior.inverse @ products @ prior.inverse.T
            return cholesky(identity + 0.5 * (A + A.T)), jnp.trace(A)

        factor, trace = over_latents(factorise, statistics.products)
        pivots = jnp.diagonal(factor.lower, axis1=-2, axis2=-1)
        return (prior, factor, trace), is_safe(prior, scale) & (jnp.min(pivots) >= _SAFE_PIVOT)

    (prior, factor, trace), jitter = climb_jitter(attempt, scale)
    prior_precision = prior.inverse_of_product()

    def solve(factor, linear):
        c = factor.inverse @ (prior.inverse @ linear)
        white_mean = factor.inverse.T @ c
        R = factor.inverse @ prior.inverse
        quadratic, log_determinant = c @ c, factor.half_log_determinant
        kl = (
            0.5 * (jnp.sum(factor.inverse**2) - len(points) + white_mean @ white_mean)
            + log_determinant
        )
        weights = prior.inverse.T @ white_mean
        reduction = prior_precision - R.T @ R
        return white_mean, weights, reduction, 0.5 * quadratic - log_determinant, kl

    white_mean, weights, reduction, log_evidence, kl = over_latents(
        solve, factor, statistics.linear
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
        jitter=jitter,
        deficit=deficit,
    )
