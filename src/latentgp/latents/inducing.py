"""The latent functions through M inducing points: O(N M^2), streamed over the rows."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

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

Covariance = Literal["full", "diagonal"]


class Statistics(NamedTuple):
    """Sums over rows of raw kernel blocks k_n = k(Z, x_n), whitened only afterwards.

    Attributes:
        products: sum_n w_n k_n k_n', shape (Q, M, M).
        linear: sum_n l_n k_n, shape (Q, M).
        loss: what the evidence loses to prior variance that the coefficients leave open, in
            half nats, shape (Q,): sum_n w_n k(x_n, x_n), of which the part that they express is
            taken off afterwards, or that of a power above zero.
    """

    products: Float[Array, "Q M M"]
    linear: Float[Array, "Q M"]
    loss: Float[Array, "Q"]

    def add(
        self,
        blocks: Float[Array, "#Q M B"],
        linear: Float[Array, "Q B"],
        precision: Float[Array, "Q B"],
        loss: Float[Array, "Q B"],
    ) -> "Statistics":
        """These sums with some rows added, given their kernel blocks and sites for k' K_mm^-1 u."""

        def sums(block, linear, precision, loss):
            return (block * precision) @ block.T, linear @ block.T, jnp.sum(loss)

        return Statistics(*map(jnp.add, self, over_latents(sums, blocks, linear, precision, loss)))


class Projected(NamedTuple):
    """Sites for g = k' K_mm^-1 u that are left of sites for f = g + e, e ~ N(0, residual).

    Bui, Yan & Turner (2017, 4): with power a they are [E_e site(g + e)^a]^(1 / a).

    Attributes:
        linear: shape (Q, B).
        precision: shape (Q, B).
        loss: minus twice the log of the factor that does not depend on g, shape (Q, B).
    """

    linear: Float[Array, "Q B"]
    precision: Float[Array, "Q B"]
    loss: Float[Array, "Q B"]

    @classmethod
    def of(
        cls,
        linear: Float[Array, "Q B"],
        precision: Float[Array, "Q B"],
        residual: Float[Array, "#Q B"],
        power: float,
    ) -> "Projected":
        """For a power above zero."""
        shrunk = power * precision * residual
        loss = jnp.log1p(shrunk) / power - power * linear**2 * residual / (1 + shrunk)
        return cls(linear / (1 + shrunk), precision / (1 + shrunk), loss)


class InducingPosterior(LatentPosterior):
    """Posterior N(white_mean, S) of white inducing variables v = L^-1 u, K_mm = L L'.

    S is (I + A)^-1, A = L^-1 (sum_n w_n k_n k_n') L^-T, or diagonal with the same precisions.

    Attributes:
        points: inducing points Z, shape (M, D).
        factor: of K_mm + jitter, shapes (#Q, M, M).
        white_mean: shape (Q, M).
        white_lower: Cholesky factor of I + A, shape (Q, M, M).
        white_root: R with S = R' R, shape (Q, M, M).
        mean_weights: L^-T white_mean, so that the mean at x is k(x, Z) mean_weights.
        reduction: K_mm^-1 - L^-T S L^-1, so that the variance at x is
            k(x, x) - k(x, Z) reduction k(Z, x).
    """

    kernel: LatentKernel
    points: Float[Array, "M D"]
    factor: Factor
    white_mean: Float[Array, "Q M"]
    white_lower: Float[Array, "Q M M"]
    white_root: Float[Array, "Q M M"]
    mean_weights: Float[Array, "Q M"]
    reduction: Float[Array, "Q M M"]
    log_evidence: Float[Array, ""]
    kl: Float[Array, ""]
    jitter: Float[Array, ""]
    deficit: Float[Array, ""]
    signed: bool = eqx.field(static=True, default=False)

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
            # Rows of negative precision can leave more variance than the prior has.
            return jnp.clip(prior - explained, 0.0, jnp.inf if self.signed else prior)

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

        def weights(inverse, white_mean, white_root, prior, noise):
            return (white_mean + noise @ white_root - inverse @ prior) @ inverse

        return over_latents(
            weights,
            self.factor.inverse,
            self.white_mean,
            self.white_root,
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
        covariance: of the white inducing variables: "full", or "diagonal", the mean-field family,
            which has the same mean given the sites and too small variances.
        signed: whether precisions of sites can be negative; a method sets it.
        power: how the prior variance that the points leave open counts; a method sets it.

    Raises:
        InputError: neither a number nor points; an unknown selection or covariance.

    Example:
        >>> Inducing(number=100).number
        100
    """

    number: int | None = eqx.field(static=True, default=None)
    points: Float[Array, "M D"] | None = None
    selection: Selection = eqx.field(static=True, default="k-means++")
    covariance: Covariance = eqx.field(static=True, default="full")
    signed: bool = eqx.field(static=True, default=False)
    power: float = eqx.field(static=True, default=0.0)

    def __check_init__(self) -> None:
        if self.points is None and (self.number is None or self.number < 1):
            raise InputError(
                f"Inducing needs points, or a positive number of them to choose, got "
                f"number={self.number}; give for example Inducing(number=200)."
            )
        for name, known in (("selection", Selection), ("covariance", Covariance)):
            if getattr(self, name) not in get_args(known):
                raise InputError(
                    f"Inducing.{name} must be one of {', '.join(get_args(known))}, "
                    f"got {getattr(self, name)!r}."
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
        return dataclasses.replace(self, number=len(points), points=points)

    def suited(self, *, signed: bool, power: float) -> "Inducing":
        if power and self.covariance == "diagonal":
            raise InputError(
                'Inducing(covariance="diagonal") is a variational family, which Laplace and '
                "ExpectationPropagation have no use for; leave covariance out, or use "
                "VariationalInference."
            )
        return dataclasses.replace(self, signed=signed, power=power)

    def condition(
        self, kernel: LatentKernel, X: Float[Array, "N D"], sites: GaussianSites
    ) -> InducingPosterior:
        points, prior = self._points(), self._prior(kernel)

        def step(statistics, rows, real):
            x, linear, precision = rows
            blocks, variances = _blocks(kernel, points, x)
            linear, precision = linear.T * real, precision.T * real
            residuals = self._residuals(prior, blocks, variances)
            return statistics.add(blocks, *self._project(residuals, linear, precision)), None

        statistics, _ = scan_rows(
            step,
            _no_rows(sites.linear.shape[1], points),
            (X, sites.linear, sites.precision),
            columns=len(points),
        )
        return self._posterior(kernel, prior, statistics)

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
        prior = self._prior(kernel)

        def step(statistics, chunk, real):
            x, rows, sites, offset = chunk
            blocks, variances = _blocks(kernel, points, x)
            marginals = posterior.block_marginals(blocks, variances)
            residuals = self._residuals(prior, blocks, variances)
            if self.power:
                about = sites.about(offset)
                marginals = self._row_marginals(
                    residuals, *marginals, about.linear, about.precision
                )
            sites, other = update(rows, *marginals, sites, offset)
            about = sites.about(offset)
            linear, precision = about.linear.T * real, about.precision.T * real
            projected = self._project(residuals, linear, precision)
            return statistics.add(blocks, *projected), (sites, other)

        statistics, (sites, other) = scan_rows(
            step,
            _no_rows(sites.linear.shape[1], points),
            (X, rows, sites, offset),
            columns=len(points),
        )
        return sites, self._posterior(kernel, prior, statistics), other

    def pull_back(
        self, posterior: InducingPosterior, X: Float[Array, "N D"], sites: GaussianSites
    ) -> Pullback:
        grams, pull_grams = jax.vjp(latent_grams, posterior.kernel, self._points())
        rows = (X, sites.linear, sites.precision)
        if self.power:
            (through_rows, in_prior), marginals = self._pull_rows_of_power(posterior, rows)
            inverse = over_latents(Factor.inverse_of_product, posterior.factor)
            through_prior = over_latents(lambda i, s: -i @ s @ i, inverse, in_prior)
        else:
            through_rows, marginals = _pull_rows(posterior, rows)
            through_prior = over_latents(_slope_of_trace, posterior.factor, posterior.white_lower)
            through_prior = over_sharing(through_prior, grams)
        if self.covariance == "full":
            in_determinant = 0.5 * posterior.reduction
        else:
            white = posterior.factor, posterior.white_lower, posterior.white_root
            in_determinant = over_latents(_slope_of_precisions, *white)
        slopes = over_latents(
            lambda slope, weights: slope - 0.5 * jnp.outer(weights, weights),
            in_determinant,
            posterior.mean_weights,
        )
        slopes = over_sharing(slopes, grams) + through_prior
        # The jitter is relative to the prior variance.
        relative_jitter = posterior.jitter / jnp.max(_scales(grams))
        size = len(posterior.points)
        traces = jnp.trace(slopes, axis1=1, axis2=2)[:, None, None] / size
        through_grams = pull_grams(
            slopes + relative_jitter * traces * jnp.eye(size, dtype=grams.dtype)
        )
        in_kernel, in_points = jax.tree.map(jnp.add, through_grams, through_rows)
        places = eqx.tree_at(lambda r: r.points, self, in_points)
        return Pullback(in_kernel, places, *marginals)

    def _pull_rows_of_power(
        self, posterior: InducingPosterior, rows: tuple[Array, Array, Array]
    ) -> tuple[Any, tuple[Array, Array]]:
        """Derivatives through the rows' blocks in kernel, points and K_mm^-1; marginals of f."""
        prior = self._prior_of(posterior.factor, posterior.jitter)
        in_sums = over_latents(
            lambda inverse, weights, reduction: (
                -0.5 * (jnp.outer(weights, weights) + inverse - reduction)
            ),
            prior.precision,
            posterior.mean_weights,
            posterior.reduction,
        )

        def step(slopes, chunk, real):
            x, linear, precision = chunk

            def value(kernel, points, inverse):
                blocks, variances = _blocks(kernel, points, x)
                residuals = self._residuals(prior._replace(precision=inverse), blocks, variances)
                projected = self._project(residuals, linear.T * real, precision.T * real)

                def worth(block, linear, precision, loss, in_products, weights):
                    products = jnp.sum((in_products @ block) * block, axis=0) @ precision
                    return products + linear @ (weights @ block) - 0.5 * jnp.sum(loss)

                return jnp.sum(
                    over_latents(worth, blocks, *projected, in_sums, posterior.mean_weights)
                )

            *here, in_prior = jax.grad(value, (0, 1, 2))(
                posterior.kernel, posterior.points, prior.precision
            )
            blocks, variances = _blocks(posterior.kernel, posterior.points, x)
            marginals = self._row_marginals(
                self._residuals(prior, blocks, variances),
                *posterior.block_marginals(blocks, variances),
                linear,
                precision,
            )
            return jax.tree.map(jnp.add, slopes, (tuple(here), in_prior)), marginals

        places = (posterior.kernel, posterior.points)
        start = jax.tree.map(jnp.zeros_like, (places, prior.precision))
        return scan_rows(step, start, rows, columns=len(posterior.points))

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
        if self.covariance == "diagonal":
            raise InputError(
                'Inducing(covariance="diagonal") is no family to sample from; leave covariance out.'
            )
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

    def _prior(self, kernel: LatentKernel) -> "_Prior | None":
        """The factor of K_mm, where sites cannot be projected without it."""
        if not self.power:
            return None
        jittered = over_latents(jittered_cholesky, latent_grams(kernel, self._points()))
        return self._prior_of(jittered.factor, jittered.jitter)

    def _prior_of(self, factor: Factor, jitter: Float[Array, "*#Q"]) -> "_Prior":
        return _Prior(factor, jitter, over_latents(Factor.inverse_of_product, factor))

    def _residuals(
        self,
        prior: "_Prior | None",
        blocks: Float[Array, "#Q M B"],
        variances: Float[Array, "#Q B"],
    ) -> Float[Array, "#Q B"]:
        """Rows' variance given u; without power the whole prior variance, see `Statistics`."""
        if prior is None:
            return variances

        def residual(block, variance, inverse):
            return jnp.maximum(variance - jnp.sum((inverse @ block) * block, axis=0), 0.0)

        return over_latents(residual, blocks, variances, prior.precision)

    def _project(
        self,
        residuals: Float[Array, "#Q B"],
        linear: Float[Array, "Q B"],
        precision: Float[Array, "Q B"],
    ) -> Projected:
        """Sites of some rows for k' K_mm^-1 u."""
        if not self.power:
            return Projected(linear, precision, precision * residuals)
        return Projected.of(linear, precision, residuals, self.power)

    def _row_marginals(
        self,
        residuals: Float[Array, "#Q B"],
        mean: Float[Array, "B Q"],
        variance: Float[Array, "B Q"],
        linear: Float[Array, "B Q"],
        precision: Float[Array, "B Q"],
    ) -> tuple[Float[Array, "B Q"], Float[Array, "B Q"]]:
        """Marginals of rows' f whose own sites^power tell about its variance given u, too."""
        residual = residuals.T
        shrunk = 1 + self.power * precision * residual
        shift = self.power * residual * (linear - precision * mean) / shrunk
        given = jnp.maximum(variance - residual, 0.0) / shrunk**2
        return mean + shift, given + residual / shrunk

    def _posterior(
        self, kernel: LatentKernel, prior: "_Prior | None", statistics: Statistics
    ) -> InducingPosterior:
        return _posterior(kernel, self._points(), prior, statistics, self.signed, self.covariance)

    def _points(self) -> Float[Array, "M D"]:
        if self.points is None:
            raise InputError(
                "These inducing points have not been chosen yet; call initialise(...) first, "
                "or fit the model with latentgp.fit."
            )
        return jnp.asarray(self.points)


class _Prior(NamedTuple):
    """K_mm with its jitter, factorised and inverted."""

    factor: Factor
    jitter: Float[Array, "*#Q"]
    precision: Float[Array, "#Q M M"]


def _pull_rows(
    posterior: InducingPosterior, rows: tuple[Array, Array, Array]
) -> tuple[Any, tuple[Array, Array]]:
    """Derivatives through the rows' blocks in kernel and points, and the rows' marginals."""
    kernel, points = posterior.kernel, posterior.points

    def step(slopes, chunk, real):
        x, linear, precision = chunk
        linear, precision = linear * real[:, None], precision * real[:, None]
        (blocks, prior), pull_blocks = jax.vjp(lambda k, z: _blocks(k, z, x), kernel, points)

        def in_block(block, prior, weights, reduction, linear, precision):
            # d/dP = (reduction - weights weights') / 2 for P = sum_n w_n k_n k_n'.
            product, mean = reduction @ block, weights @ block
            explained = jnp.sum(product * block, axis=0)
            weighted_residual = linear - precision * mean
            slope = product * precision + weights[:, None] * weighted_residual
            top = jnp.inf if posterior.signed else prior
            return slope, mean, jnp.clip(prior - explained, 0.0, top)

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
        here = pull_blocks((over_sharing(in_blocks, blocks), in_prior))
        return jax.tree.map(jnp.add, slopes, here), (mean.T, variance.T)

    start = jax.tree.map(jnp.zeros_like, (kernel, points))
    return scan_rows(step, start, rows, columns=len(points))


def _slope_of_trace(factor: Factor, white_lower: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """Of tr(A) / 2 in K_mm, A = L^-1 P L^-T."""
    return -0.5 * factor.inverse.T @ _without_prior(white_lower) @ factor.inverse


def _slope_of_precisions(
    factor: Factor, white_lower: Float[Array, "M M"], white_root: Float[Array, "M M"]
) -> Float[Array, "M M"]:
    """Of -sum_j log(1 + A_jj) / 2 in K_mm, through dL = L Phi(L^-1 dK L^-T) (Murray 2016, 8)."""
    inner = jnp.diagonal(white_root)[:, None] ** 2 * _without_prior(white_lower)
    inner = jnp.tril(inner) - 0.5 * jnp.diag(jnp.diagonal(inner))
    return 0.5 * factor.inverse.T @ (inner + inner.T) @ factor.inverse


def _without_prior(white_lower: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """A from the factor of I + A."""
    return white_lower @ white_lower.T - jnp.eye(len(white_lower), dtype=white_lower.dtype)


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
    kernel: LatentKernel,
    points: Float[Array, "M D"],
    known: _Prior | None,
    statistics: Statistics,
    signed: bool,
    covariance: Covariance,
) -> InducingPosterior:
    """The optimal q(u) given sites, and the evidence; everything here is M x M.

    The best diagonal Gaussian has the mean of the full one and the diagonal of its precision;
    with them the bound loses half of sum_j log(1 + A_jj) - log|I + A|, never negative.

    Every eigenvalue of I + A is at least one (where no precision is negative). Rounding in the
    sums over rows is amplified by the inverse of K_mm, and a pivot below one shows where it would
    spoil the result: then K_mm gets more jitter. Latent functions with kernels of their own climb
    the ladder together, each in units of its own prior variance.
    """
    grams = latent_grams(kernel, points)
    scales = _scales(grams)
    identity = jnp.eye(len(points), dtype=grams.dtype)

    def white_factor(inverse, products):
        A = inverse @ products @ inverse.T
        return cholesky(identity + 0.5 * (A + A.T)), jnp.trace(A)

    def attempt(jitters):
        prior = over_latents(lambda K, jitter: cholesky(K + jitter * identity), grams, jitters)
        factor, trace = over_latents(white_factor, prior.inverse, statistics.products)
        pivots = jnp.diagonal(factor.lower, axis1=-2, axis2=-1)
        sound = jnp.all(over_latents(is_safe, prior, scales))
        return (prior, factor, trace), sound & (signed | (jnp.min(pivots) >= _SAFE_PIVOT))

    if known is None:
        (prior, factor, trace), jitters = climb_jitter(attempt, scales)
    else:
        prior, jitters = known.factor, known.jitter
        factor, _ = over_latents(white_factor, prior.inverse, statistics.products)
        trace = jnp.zeros((), grams.dtype)

    def solve(inverse, precision, factor, linear):
        c = factor.inverse @ (inverse @ linear)
        white_mean = factor.inverse.T @ c
        if covariance == "full":
            root, half_log_determinant = factor.inverse, factor.half_log_determinant
        else:
            precisions = jnp.sum(factor.lower**2, axis=1)
            root = jnp.diag(precisions**-0.5)
            half_log_determinant = 0.5 * jnp.sum(jnp.log(precisions))
        R = root @ inverse
        kl = 0.5 * (jnp.sum(root**2) - len(points) + white_mean @ white_mean) + half_log_determinant
        weights, log_evidence = inverse.T @ white_mean, 0.5 * c @ c - half_log_determinant
        return white_mean, root, weights, precision - R.T @ R, log_evidence, kl

    precision = over_latents(Factor.inverse_of_product, prior)
    white_mean, root, weights, reduction, log_evidence, kl = over_latents(
        solve, prior.inverse, precision, factor, statistics.linear
    )
    loss = 0.5 * jnp.sum(statistics.loss - trace)
    return InducingPosterior(
        kernel=kernel,
        points=points,
        factor=prior,
        white_mean=white_mean,
        white_lower=factor.lower,
        white_root=root,
        mean_weights=weights,
        reduction=reduction,
        log_evidence=jnp.sum(log_evidence) - loss,
        kl=jnp.sum(kl),
        jitter=jnp.max(jitters),
        deficit=loss if known is None else jnp.zeros_like(loss),
        signed=signed,
    )
