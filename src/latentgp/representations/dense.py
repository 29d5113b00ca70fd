"""The latent functions at all N rows, exactly, by Cholesky: O(N^3)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PyTree

from latentgp.errors import InputError
from latentgp.extensions import answer
from latentgp.kernels import LatentKernel
from latentgp.likelihoods.base import AnyMarginals, Marginals
from latentgp.modules import stored
from latentgp.numerics.cholesky import Factor, cholesky, jittered_cholesky
from latentgp.numerics.sums import sum_over_first
from latentgp.representations.base import PosteriorAtRows, Pullback, Representation, SiteUpdate
from latentgp.representations.coupled import (
    CoupledDensePosterior,
    coupled_posterior,
    row_marginals,
    slope_in_grams,
)
from latentgp.representations.inducing.natural_parameters import WhiteSites
from latentgp.representations.inducing.stream import StreamingPrior
from latentgp.representations.latent_axis import (
    block_means,
    latent_diagonals,
    latent_grams,
    outer_sums,
    over_sharing,
    split_linear,
    vmap_latents,
)
from latentgp.representations.samplers import DenseSampler, dense_sampler
from latentgp.representations.site_form import SiteForm
from latentgp.representations.traits import Traits
from latentgp.representations.whitening import Whitening, whitening_at_rows
from latentgp.rows.data import padded_size
from latentgp.runtime.mesh import gather, number_of_shards
from latentgp.sites.coupled import CoupledSites, Sites
from latentgp.sites.gaussian import Rows
from latentgp.typing import Array, Coefs, Inputs, PerRow, Points, RandomKey, RowLatents, Scalar

_WEAK_SITE = 1e-6  # precision times prior variance: below, marginals are computed the long way
_MOST_ROWS = 30_000


@stored
class DensePosterior(PosteriorAtRows):
    """Posterior with coefficients at the rows, through B = I + W^1/2 K W^1/2 (R&W 2006, 3.27)."""

    kernel: LatentKernel
    X: Inputs  # of the rows; the last ones may be copies of weight zero
    weights: Float[Array, "Q N"]  # K^-1 times the posterior mean
    precision: Float[Array, "#Q N"]  # W, one for all latent functions where these share precisions
    root_precision: Float[Array, "#Q N"]  # W^1/2; zero where a precision is negative
    # of B, shapes (#Q, N, N). With rows over devices its lower half is left out, and its inverse,
    # whose rows are over the devices, is that of B with rows in another order
    factor: Factor
    # U, such that rows of negative precision add |U k(X, x)|^2 to the variance at x, shape
    # (Q, N, N); (Q, 0, N) where no precision can be negative
    raised: Float[Array, "Q raised N"]
    log_evidence: Scalar
    kl: Scalar
    jitter: Scalar
    trace_term: Scalar

    def mean(self, X: Inputs) -> RowLatents:
        return block_means(latent_grams(self.kernel, self.X, X), self.weights)

    def marginals(self, X: Inputs) -> Marginals:
        def variance(cross, prior, root_precision, inverse, raised):
            explained = sum_over_first((inverse @ (root_precision[:, None] * cross)) ** 2)
            return jnp.clip(prior - explained, 0.0, prior) + sum_over_first((raised @ cross) ** 2)

        cross, prior = latent_grams(self.kernel, self.X, X), latent_diagonals(self.kernel, X)
        variances = vmap_latents(
            variance, cross, prior, self.root_precision, self.factor.inverse, self.raised
        )
        return Marginals(block_means(cross, self.weights), variances.T)

    def covariance(self, X: Inputs) -> Float[Array, "Q N N"]:
        def covariance(cross, prior, root_precision, inverse, raised):
            half, added = inverse @ (root_precision[:, None] * cross), raised @ cross
            return prior - half.T @ half + added.T @ added

        cross, prior = latent_grams(self.kernel, self.X, X), latent_grams(self.kernel, X)
        return vmap_latents(
            covariance, cross, prior, self.root_precision, self.factor.inverse, self.raised
        )

    def without_fillers(self) -> "DensePosterior":
        saying = np.any((np.asarray(self.precision) != 0) | (np.asarray(self.weights) != 0), axis=0)
        chosen = np.flatnonzero(saying) if saying.any() else np.arange(1)
        # Their rows of B are those of the identity, and so are those of its factor.
        halves = (half[:, chosen][:, :, chosen] if half.size else half for half in self.factor)
        return dataclasses.replace(
            self,
            X=self.X[chosen],
            weights=self.weights[:, chosen],
            precision=self.precision[:, chosen],
            root_precision=self.root_precision[:, chosen],
            factor=Factor(*halves),
            raised=self.raised[:, :, chosen],
        )

    def left_out(
        self, rows: Int[np.ndarray, "chosen"]
    ) -> tuple[Float[np.ndarray, "chosen"], Float[np.ndarray, "chosen"]]:
        # 1 / [(K + W^-1)^-1]_nn is the predictive variance of a target with all its copies.
        squares = gather((self.factor.inverse[0][:, rows] ** 2).sum(axis=0))
        precision = np.square(self.root_precision[0, rows]) * squares
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.weights[0, rows] / precision, 1 / precision - 1 / self.precision[0, rows]

    def remembered(self, log_evidence: float) -> StreamingPrior:
        grams = latent_grams(self.kernel, self.X)
        prior = vmap_latents(jittered_cholesky, grams).factor

        def sites(gram, lower, weights, precision):
            linear = weights + precision * (gram @ weights)
            return WhiteSites(lower.T @ linear, lower.T @ (precision[:, None] * lower))

        white = vmap_latents(sites, grams, prior.lower, self.weights, self.precision)
        constant, signed = log_evidence - self.log_evidence, self.raised.shape[1] > 0
        settings: Any = {"inverse": prior.inverse, "white": white, "signed": signed}
        return StreamingPrior(centres=self.X, constant=constant, **settings)

    def pathwise_update(self, key: RandomKey, prior_path: Callable[[Points], Array]) -> Coefs:
        dtype, key_more = self.weights.dtype, jax.random.fold_in(key, 1)
        noise = jax.random.normal(key, self.weights.shape, dtype)
        more = jax.random.normal(key_more, self.raised.shape[:2], dtype)
        prior = prior_path(self.X).T

        def weights(weights, root_precision, factor, raised, prior, noise, more):
            # Sites have pseudo-targets l / w with variance 1 / w; the sampled ones are
            # prior + noise / sqrt(w), and W^1/2 B^-1 W^1/2 = (K + W^-1)^-1.
            residual = root_precision * prior + noise
            correction = factor.inverse.T @ (factor.inverse @ residual)
            return weights - root_precision * correction + more @ raised

        own = self.weights, self.root_precision, self.factor, self.raised
        return vmap_latents(weights, *own, prior, noise, more)


AnyDensePosterior: TypeAlias = DensePosterior | CoupledDensePosterior


class Dense(Representation):
    """Every row has its own coefficient: exact given the sites, O(N^3) time, O(N^2) memory.

    With rows over P devices the matrix is too, for `ExactGP`: each holds N^2 / P numbers.

    Args:
        signed: whether precisions of sites can be negative; a method sets it.
        shared: whether those of a row are the same for all latent functions; likewise.
        places: the distinct inputs, the last ones copies, where rows share these; likewise.
    """

    signed: bool = eqx.field(static=True, default=False)
    shared: bool = eqx.field(static=True, default=False)
    places: Float[Array, "places D"] | None = None

    @property
    def traits(self) -> Traits:
        return Traits(
            evidence="exact",
            one_coefficient_a_row=True,
            spreads_rows=True,
            only_fixed="devices" if number_of_shards() > 1 else "",
            signed_sites=True,
            powers=True,
            coupled_sites=True,
        )

    def initialise(
        self, X: Inputs, weights: PerRow | None, kernel: LatentKernel, key: RandomKey
    ) -> "Dense":
        devices = number_of_shards()
        if len(X) > _MOST_ROWS * devices**0.5:
            raise InputError(
                f"One coefficient a row for {len(X)} rows needs matrices of "
                f"{8 * len(X) ** 2 / devices / 2**30:.0f} GiB"
                f"{' on each device' * (devices > 1)}; leave the method out for what serves the "
                "kernel, such as effects of groups, or use Inducing(number=...)."
            )
        return self

    def for_sites(self, form: SiteForm) -> "Dense":
        return dataclasses.replace(self, signed=form.signed, shared=form.shared)

    def at_places(self, X: Inputs) -> "Dense":
        """The same with one coefficient for all rows of equal inputs, if programs are smaller.

        The product of these rows' sites is one site of f there: nothing is approximated.
        """
        places = np.unique(X, axis=0)
        size = padded_size(len(places))
        if size >= padded_size(len(X)):
            return self
        filled = np.minimum(np.arange(size), len(places) - 1)
        return dataclasses.replace(self, places=places[filled])

    def condition(self, kernel: LatentKernel, X: Inputs, sites: Sites) -> AnyDensePosterior:
        if number_of_shards() > 1:
            precision = self._precision(sites)
            return answer("matrices over devices")(kernel, X, sites.linear, precision)
        return self._condition(kernel, X, latent_grams(kernel, self._centres(X)), sites)

    def update_sites(
        self,
        posterior: AnyDensePosterior,
        X: Inputs,
        rows: Rows,
        sites: Sites,
        offset: RowLatents,
        update: SiteUpdate,
    ) -> tuple[Sites, AnyDensePosterior, PyTree]:
        K = latent_grams(posterior.kernel, self._centres(X))
        sites, other = update(rows, self._marginals_of_rows(posterior, K, X), sites, offset)
        return sites, self._condition(posterior.kernel, X, K, sites.about(offset)), other

    def pull_back(self, posterior: AnyDensePosterior, X: Inputs, sites: Sites) -> Pullback:
        if number_of_shards() > 1 and isinstance(posterior, DensePosterior):
            in_kernel, marginals = answer("slopes of matrices over devices")(posterior, X)
            return Pullback(in_kernel, self, marginals)
        centres, nothing = self._centres(X), jax.tree.map(jnp.zeros_like, self)
        K, pull_gram = jax.vjp(lambda k: latent_grams(k, centres), posterior.kernel)
        marginals = self._marginals_of_rows(posterior, K, X)
        if isinstance(posterior, CoupledDensePosterior):
            (in_kernel,) = pull_gram(slope_in_grams(posterior, K))
            return Pullback(in_kernel, nothing, marginals)

        def explained(root_precision, factor):
            return root_precision[:, None] * factor.inverse_of_product() * root_precision

        lost = vmap_latents(explained, posterior.root_precision, posterior.factor)
        latents_of_each = len(posterior.weights) / len(lost)
        slopes = outer_sums(posterior.weights, K) - latents_of_each * over_sharing(lost, K)
        if self.signed:
            raised = vmap_latents(lambda raised: raised.T @ raised, posterior.raised)
            slopes = slopes + over_sharing(raised, K)
        (in_kernel,) = pull_gram(0.5 * slopes)
        return Pullback(in_kernel, nothing, marginals)

    def whitening(self, kernel: LatentKernel, X: Inputs) -> Whitening:
        return whitening_at_rows(kernel, X)

    def sampler(self, kernel: LatentKernel, X: Inputs, power: float = 0.0) -> DenseSampler:
        return dense_sampler(kernel, X)

    def _precision(self, sites: Any) -> Float[Array, "N #Q"]:
        """Precisions, once where all latent functions share them."""
        return sites.precision[:, :1] if self.shared else sites.precision

    def _condition(
        self, kernel: LatentKernel, X: Inputs, K: Float[Array, "#Q places places"], sites: Sites
    ) -> AnyDensePosterior:
        """Prior times sites of rows X, where K are the Gram matrices of the centres."""
        centres = self._centres(X)
        if self.places is not None:
            places, number = self._places_of(X), len(centres)
            sites = jax.tree.map(lambda a: jax.ops.segment_sum(a, places, number), sites)
        if isinstance(sites, CoupledSites):
            return coupled_posterior(kernel, centres, K, sites, self.signed)
        precision = self._precision(sites).T
        return _conditioned(kernel, centres, K, sites.linear.T, precision, self.signed)

    def _centres(self, X: Inputs) -> Float[Array, "places D"]:
        """Inputs of the coefficients."""
        return X if self.places is None else self.places

    def _places_of(self, X: Inputs) -> Int[Array, "N"]:
        """Index of each row's place."""
        return jnp.argmax(jnp.all(X[:, None] == self.places, axis=2), axis=1)

    def _marginals_of_rows(
        self, posterior: AnyDensePosterior, K: Float[Array, "#Q places places"], X: Inputs
    ) -> AnyMarginals:
        is_coupled = isinstance(posterior, CoupledDensePosterior)
        marginals = row_marginals(posterior, K) if is_coupled else _row_marginals(posterior, K)
        if self.places is None:
            return marginals
        return jax.tree.map(itemgetter(self._places_of(X)), marginals)


class _SitePosterior(NamedTuple):
    """Posterior of one latent function given its sites."""

    weights: PerRow
    raised: Float[Array, "raised N"]
    log_evidence: Scalar
    kl: Scalar


def _conditioned(
    kernel: LatentKernel,
    X: Inputs,
    K: Float[Array, "#Q N N"],
    linear: Float[Array, "Q N"],
    precision: Float[Array, "#Q N"],
    signed: bool,
) -> DensePosterior:
    root_precision = jnp.sqrt(jnp.maximum(precision, 0.0))

    def factorise(K, root):
        return cholesky(jnp.eye(len(K), dtype=K.dtype) + root[:, None] * K * root)

    def solve(K, linear, root, precision, factor):
        """With l = W^(1/2) r + l_0, l' S l = r' r + l_0' K l_0 - |h|^2, L h = r - W^(1/2) K l_0.

        Sites of great precision have great l' l / W, which cancels in the evidence: it must not
        be found as a sum over a badly conditioned S.
        """
        root_K = root[:, None] * K
        ratio, rest = split_linear(linear, root, 1 + root**2 * jnp.diagonal(K))
        root_K_rest = root_K @ rest
        half = factor.inverse @ (ratio - root_K_rest)
        weights = rest + root * (factor.inverse.T @ half)
        mean = K @ weights
        explained = ratio @ ratio + rest @ (K @ rest) - half @ half
        log_evidence = 0.5 * explained - factor.half_log_determinant
        kl = 0.5 * (jnp.sum(factor.inverse**2) - len(K) + mean @ weights)
        raised = jnp.zeros((0, len(K)), K.dtype)
        solved = _SitePosterior(weights, raised, log_evidence, kl + factor.half_log_determinant)
        return _with_negative(K, root_K, root, precision, factor, solved) if signed else solved

    factor = vmap_latents(factorise, K, root_precision)
    solved = vmap_latents(solve, K, linear, root_precision, precision, factor)
    return DensePosterior(
        kernel=kernel,
        X=X,
        weights=solved.weights,
        precision=precision,
        root_precision=root_precision,
        factor=factor,
        raised=solved.raised,
        log_evidence=jnp.sum(solved.log_evidence),
        kl=jnp.sum(solved.kl),
        jitter=jnp.zeros((), K.dtype),
        trace_term=jnp.zeros((), K.dtype),
    )


def _with_negative(
    K: Float[Array, "N N"],
    root_K: Float[Array, "N N"],
    root: PerRow,
    precision: PerRow,
    factor: Factor,
    positive: _SitePosterior,
) -> _SitePosterior:
    """Condition the posterior N(m, S) on rows of negative precision -n.

    With C = I - n^1/2 S n^1/2 the covariance is S + S n^1/2 C^-1 n^1/2 S. It is proper, and C
    positive definite, exactly where K^-1 + W is; elsewhere everything here is NaN.
    """

    def change():
        identity = jnp.eye(len(K), dtype=K.dtype)
        lack = jnp.sqrt(jnp.maximum(-precision, 0.0))
        half = factor.inverse @ root_K
        covariance = K - half.T @ half
        left = cholesky(identity - lack[:, None] * covariance * lack)
        to_white = left.inverse * lack
        explained = half.T @ (factor.inverse * root)
        raised = to_white @ (identity - explained)
        pull = to_white @ (K @ positive.weights)
        weights = positive.weights + pull @ raised
        gain, determinant = 0.5 * pull @ pull, left.half_log_determinant
        norms = weights @ (K @ weights) - positive.weights @ (K @ positive.weights)
        more = 0.5 * (jnp.sum(raised * (to_white @ covariance)) + norms)
        evidence, kl = positive.log_evidence + gain - determinant, positive.kl + more + determinant
        return _SitePosterior(weights, raised, evidence, kl)

    nothing = positive._replace(raised=jnp.zeros_like(K))
    return jax.lax.cond(jnp.any(precision < 0), change, lambda: nothing)


def _row_marginals(posterior: DensePosterior, K: Float[Array, "#Q N N"]) -> Marginals:
    """Marginals at the rows themselves, O(N^2): W S = I - B^-1 for the posterior covariance S."""

    def variance(K, root_precision, inverse, raised):
        prior, precision = jnp.diagonal(K), root_precision**2

        def from_sites():
            return (1 - jnp.sum(inverse**2, axis=0)) / precision

        def from_gram():
            return prior - sum_over_first((inverse @ (root_precision[:, None] * K)) ** 2)

        strong = jnp.all(precision * prior > _WEAK_SITE)
        positive = jnp.clip(jax.lax.cond(strong, from_sites, from_gram), 0.0, prior)
        return positive + sum_over_first((raised @ K) ** 2)

    variances = vmap_latents(
        variance, K, posterior.root_precision, posterior.factor.inverse, posterior.raised
    )
    return Marginals(block_means(K, posterior.weights), variances.T)
