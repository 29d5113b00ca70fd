# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)
"""The posterior of M inducing variables, from sums over rows or from natural parameters."""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.kernels import LatentKernel
from latentgp.kernels.parts import telling_parts
from latentgp.likelihoods.base import Marginals
from latentgp.modules import stored
from latentgp.numerics.cholesky import Factor, cholesky, climb_jitter, is_safe
from latentgp.numerics.sums import sum_over_first
from latentgp.numerics.triangular import lower_product
from latentgp.representations.base import LatentPosterior
from latentgp.representations.inducing.natural_parameters import Memory, Statistics, WhiteSites
from latentgp.representations.inducing.stream import StreamingPrior
from latentgp.representations.latent_axis import block_means, vmap_latents
from latentgp.representations.variables import (
    Centres,
    InducingVariables,
    covariance_of,
    cross_covariance,
    prior_covariance,
    prior_variances,
    wholes_at,
)
from latentgp.typing import Array, Coefs, Inputs, RandomKey, RowLatents, Scalar

_SAFE_PIVOT = 0.95

Covariance = Literal["full", "diagonal"]


class PosteriorByVariables(LatentPosterior):
    """Posterior through inducing variables, whose mean at x is k(x, Z) mean_weights."""

    variables: eqx.AbstractVar[Centres]
    factor: eqx.AbstractVar[Factor]  # of K_mm + jitter, shapes (#Q, M, M)
    mean_weights: eqx.AbstractVar[Coefs]

    @property
    def prior_precision(self) -> Float[Array, "#Q M M"]:
        """K_mm^-1."""
        return vmap_latents(Factor.inverse_of_product, self.factor)

    @property
    @abstractmethod
    def slope_in_sums(self) -> Float[Array, "..."]:
        """Derivative of the log evidence in the sums of w_n k_n k_n', with K_mm held."""

    def open_variances(self, X: Inputs) -> Float[Array, "N #Q"]:
        blocks = kernel_blocks(self.kernel, self.centres, X)
        return residuals(self.prior_precision, *blocks).T

    def mean(self, X: Inputs) -> RowLatents:
        return block_means(cross_covariance(self.kernel, self.centres, X), self.mean_weights)

    def telling_parts(self, number: int) -> "PosteriorByVariables":
        parts = telling_parts(self.kernel, number), wholes_at(self.variables, number)
        return eqx.tree_at(lambda p: (p.kernel, p.variables), self, parts)

    @property
    def centres(self) -> Centres:
        return self.variables


@stored
class InducingPosterior(PosteriorByVariables):
    """Posterior N(white_mean, S) of white inducing variables v = L^-1 u, K_mm = L L'.

    S is (I + A)^-1, A = L^-1 (sum_n w_n k_n k_n') L^-T, or diagonal with the same precisions.
    """

    kernel: LatentKernel
    variables: Centres  # the inducing variables: points Z, shape (M, D), or others
    factor: Factor  # of K_mm + jitter, shapes (#Q, M, M)
    white_mean: Coefs
    white_lower: Float[Array, "Q M M"]  # Cholesky factor of I + A
    white_root: Float[Array, "Q M M"]  # R with S = R' R
    mean_weights: Coefs  # L^-T white_mean, so that the mean at x is k(x, Z) mean_weights
    # K_mm^-1 - L^-T S L^-1, so that the variance at x is k(x, x) - k(x, Z) reduction k(Z, x)
    reduction: Float[Array, "Q M M"]
    log_evidence: Scalar
    # KL divergence from the prior, in nats; less the expected log of the streaming prior's factor,
    # if there is one
    kl: Scalar
    jitter: Scalar
    trace_term: Scalar
    signed: bool = eqx.field(static=True, default=False)

    @property
    def notes(self) -> tuple[str, ...]:
        centres = self.centres
        return centres.notes(self.kernel) if isinstance(centres, InducingVariables) else ()

    def marginals(self, X: Inputs) -> Marginals:
        return self.block_marginals(*kernel_blocks(self.kernel, self.centres, X))

    def block_marginals(
        self, blocks: Float[Array, "#Q M B"], prior: Float[Array, "#Q B"]
    ) -> Marginals:
        """Marginals at rows whose kernel blocks k(Z, X) and prior variances are known."""

        def variance(block, prior, reduction):
            return self.variance_left(prior, block, reduction @ block)

        variances = vmap_latents(variance, blocks, prior, self.reduction)
        return Marginals(block_means(blocks, self.mean_weights), variances.T)

    def variance_left(
        self, prior: Float[Array, "B"], block: Float[Array, "M B"], product: Float[Array, "M B"]
    ) -> Float[Array, "B"]:
        """Posterior variances of one latent at rows; `product` is reduction times block."""
        # Rows of negative precision can leave more variance than the prior has.
        top = jnp.inf if self.signed else prior
        return jnp.clip(prior - sum_over_first(product * block), 0.0, top)

    def covariance(self, X: Inputs) -> Float[Array, "Q N N"]:
        cross = cross_covariance(self.kernel, self.centres, X)
        prior = prior_covariance(self.kernel, self.centres, X)
        return vmap_latents(lambda c, p, r: p - c.T @ r @ c, cross, prior, self.reduction)

    @property
    def own_reduction(self) -> Float[Array, "Q M M"]:
        """The reduction of each latent alone."""
        return self.reduction

    @property
    def slope_in_sums(self) -> Float[Array, "Q M M"]:
        def slope(inverse, weights, reduction):
            return -0.5 * (jnp.outer(weights, weights) + inverse - reduction)

        return vmap_latents(slope, self.prior_precision, self.mean_weights, self.reduction)

    def remembered(self, log_evidence: float) -> StreamingPrior:
        white = self.white_sites()
        own = 0.5 * jnp.sum(self.white_mean * white.linear)
        own = own + sum(jnp.sum(jnp.log(jnp.diagonal(root))) for root in self.white_root)
        settings: Any = {"inverse": self.factor.inverse, "white": white, "signed": self.signed}
        return StreamingPrior(centres=self.centres, constant=log_evidence - own, **settings)

    def white_sites(self) -> WhiteSites:
        """White sites of all rows, those of the streaming prior included."""
        identity = jnp.eye(self.white_mean.shape[1], dtype=self.white_mean.dtype)

        def sites(mean, lower):
            precision = lower @ lower.T
            return WhiteSites(precision @ mean, precision - identity)

        return vmap_latents(sites, self.white_mean, self.white_lower)

    def pathwise_update(self, key: RandomKey, prior_path: Callable[[Centres], Array]) -> Coefs:
        noise = jax.random.normal(key, self.white_mean.shape, self.white_mean.dtype)

        def weights(inverse, white_mean, white_root, prior, noise):
            return (white_mean + noise @ white_root - inverse @ prior) @ inverse

        white, prior = (self.white_mean, self.white_root), prior_path(self.centres).T
        return vmap_latents(weights, self.factor.inverse, *white, prior, noise)


@stored
class Prior(NamedTuple):
    """K_mm with its jitter, factorised."""

    factor: Factor
    jitter: Float[Array, "*#Q"]

    @property
    def precision(self) -> Float[Array, "#Q M M"]:
        """K_mm^-1."""
        return vmap_latents(Factor.inverse_of_product, self.factor)


def kernel_blocks(
    kernel: LatentKernel, centres: Centres, X: Float[Array, "B D"]
) -> tuple[Float[Array, "#Q M B"], Float[Array, "#Q B"]]:
    """Kernel blocks of some rows: k(Z, X), and the prior variances."""
    return cross_covariance(kernel, centres, X), prior_variances(kernel, centres, X)


class RowSites(NamedTuple):
    """Rows by their kernel blocks and prior variances, with their sites for g."""

    blocks: Float[Array, "#Q M B"]
    variances: Float[Array, "#Q B"]
    linear: Float[Array, "B Q"]
    precision: Float[Array, "B Q *S"]


def scales_of(grams: Float[Array, "#Q M M"]) -> Float[Array, "#Q"]:
    """Scale that the jitter of each Gram matrix is relative to."""
    return jnp.mean(jnp.diagonal(grams, axis1=1, axis2=2), axis=1)


def residuals(
    precision: Float[Array, "#Q M M"], blocks: Float[Array, "#Q M B"], prior: Float[Array, "#Q B"]
) -> Float[Array, "#Q B"]:
    """Rows' variance given u, where `precision` is K_mm^-1."""

    def residual(precision, block, prior):
        return jnp.maximum(prior - sum_over_first((precision @ block) * block), 0.0)

    return vmap_latents(residual, precision, blocks, prior)


def no_rows(latents: int, centres: Centres) -> Statistics:
    """Sums over nothing."""
    size = len(centres)
    shapes = (latents, size, size), (latents, size), (latents,)
    return Statistics(*(jnp.zeros(shape, centres.dtype) for shape in shapes))


def posterior_given(
    kernel: LatentKernel,
    centres: Centres,
    known: Prior | None,
    statistics: Statistics,
    signed: bool,
    covariance: Covariance,
    remembered: StreamingPrior | None = None,
) -> InducingPosterior:
    """The optimal q(u) given sites, and the evidence; everything here is M x M.

    The best diagonal Gaussian has the mean of the full one and the diagonal of its precision;
    with them the bound loses half of sum_j log(1 + A_jj) - log|I + A|, never negative.

    Every eigenvalue of I + A is at least one (where no precision is negative). Rounding in the
    sums over rows is amplified by the inverse of K_mm, and a pivot below one shows where it would
    spoil the result: then K_mm gets more jitter. Latent functions with kernels of their own climb
    the ladder together, each in units of its own prior variance.
    """
    grams = covariance_of(kernel, centres)
    scales = scales_of(grams)
    identity = jnp.eye(len(centres), dtype=grams.dtype)
    seen = None if remembered is None else remembered.seen(kernel, centres)

    def whitened(prior: Factor) -> tuple[WhiteSites, Factor, Memory | None]:
        white = WhiteSites.of(statistics, prior)
        if remembered is None or seen is None:
            return white, white.factor(), None
        memory = remembered.memory(seen, prior)
        white = white.plus(memory.white)
        return white, white.factor(), memory

    def attempt(jitters):
        prior = vmap_latents(lambda K, jitter: cholesky(K + jitter * identity), grams, jitters)
        found = whitened(prior)
        pivots = jnp.diagonal(found[1].lower, axis1=-2, axis2=-1)
        sound = jnp.all(vmap_latents(is_safe, prior.lower, scales))
        return (prior, *found), sound & (signed | jnp.all(pivots >= _SAFE_PIVOT))

    if known is None:
        (factor_of_prior, white, factor, memory), jitters = climb_jitter(attempt, scales)
        prior = Prior(factor_of_prior, jitters)
        rows = white.precision if memory is None else white.precision - memory.white.precision
        loss = 0.5 * jnp.sum(statistics.loss - jnp.trace(rows, axis1=1, axis2=2))
        trace_term = loss
    else:
        prior, (white, factor, memory) = known, whitened(known.factor)
        loss, trace_term = 0.5 * jnp.sum(statistics.loss), jnp.zeros((), grams.dtype)
    if memory is not None:
        loss, trace_term = loss - memory.constant, trace_term + memory.lost
    settings = {"signed": signed, "covariance": covariance, "memory": memory}
    posterior = posterior_of_white(kernel, centres, prior, white.linear, factor, **settings)
    log_evidence = posterior.log_evidence - loss
    return dataclasses.replace(posterior, log_evidence=log_evidence, trace_term=trace_term)


def half_reduction(root: Float[Array, "M M"], inverse: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """L^-T (I - R'R), so that this times L^-1 is the reduction."""
    return inverse.T - lower_product(root, inverse).T @ root


def posterior_of_white(
    kernel: LatentKernel,
    centres: Centres,
    prior: Prior,
    linear: Coefs,
    factor: Factor,
    *,
    signed: bool,
    covariance: Covariance,
    memory: Memory | None = None,
) -> InducingPosterior:
    """The posterior given `WhiteSites`: their linear terms, and the factor of I + A.

    Its log evidence is that of these sites alone, and the trace term what earlier rows lose, of
    which `memory` is the part of the sites.
    """

    def solve(inverse, factor, linear):
        c = factor.inverse @ linear
        white_mean = factor.inverse.T @ c
        if covariance == "full":
            root, half_log_determinant = factor.inverse, factor.half_log_determinant
        else:
            precisions = jnp.sum(factor.lower**2, axis=1)
            root = jnp.diag(precisions**-0.5)
            half_log_determinant = 0.5 * jnp.sum(jnp.log(precisions))
        kl = 0.5 * (jnp.sum(root**2) - len(centres) + white_mean @ white_mean)
        kl = kl + half_log_determinant
        weights, log_evidence = inverse.T @ white_mean, 0.5 * c @ c - half_log_determinant
        reduction = half_reduction(root, inverse) @ inverse
        return white_mean, root, weights, reduction, log_evidence, kl

    white_mean, root, weights, reduction, log_evidence, kl = vmap_latents(
        solve, prior.factor.inverse, factor, linear
    )
    known = jnp.zeros((), linear.dtype) if memory is None else memory.expected(white_mean, root)
    return InducingPosterior(
        kernel=kernel,
        variables=centres,
        factor=prior.factor,
        white_mean=white_mean,
        white_lower=factor.lower,
        white_root=root,
        mean_weights=weights,
        reduction=reduction,
        log_evidence=jnp.sum(log_evidence),
        kl=jnp.sum(kl) - known,
        jitter=jnp.max(prior.jitter),
        trace_term=jnp.zeros((), linear.dtype) if memory is None else memory.lost,
        signed=signed,
    )
