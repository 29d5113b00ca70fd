# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)
"""The latent functions at all N rows, those of a row coupled by its site: O((N Q)^3).

The Q latent functions at the rows are one Gaussian of size N Q with a block-diagonal prior K. With
W = U diag(w) U' the precision of a row, S = U diag(w)^1/2 (zero where w is negative), everything
of `dense` carries over to B = I + S' K S of size N Q. What is linear in all latents has shape
(R, Q, N), R of them.
"""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.kernels import LatentKernel
from latentgp.likelihoods.base import JointMarginals
from latentgp.modules import stored
from latentgp.numerics.cholesky import cholesky, jittered_cholesky, jittered_lower
from latentgp.numerics.small_matrices import small_eigh
from latentgp.representations.base import LatentPosterior, PosteriorAtRows
from latentgp.representations.inducing.natural_parameters import WhiteSites, for_all
from latentgp.representations.inducing.stream import StreamingPrior
from latentgp.representations.latent_axis import (
    block_means,
    latent_diagonals,
    latent_grams,
    over_sharing,
    split_linear,
    vmap_latents,
)
from latentgp.sites.coupled import CoupledSites
from latentgp.typing import Array, Coefs, Inputs, Points, RandomKey, RowLatents, Scalar


class CoupledPosterior(LatentPosterior):
    """Posterior under which the latents of a row are correlated."""

    @abstractmethod
    def joint_covariance(self, X: Inputs) -> Float[Array, "Q N Q N"]:
        """Covariances of all latent functions at all rows of X."""

    def covariance(self, X: Inputs) -> Float[Array, "Q N N"]:
        joint = self.joint_covariance(X)
        return jnp.stack([joint[q, :, q] for q in range(len(joint))])

    def draws(self, key: RandomKey, X: Inputs, number: int) -> Float[Array, "S N Q"]:
        mean = self.mean(X)
        size = mean.size
        joint = self.joint_covariance(X).reshape(size, size)
        lower = jittered_lower(joint, jnp.mean(latent_diagonals(self.kernel, X)))
        noise = jax.random.normal(key, (number, size), mean.dtype)
        return mean + jnp.swapaxes((noise @ lower.T).reshape(number, *mean.T.shape), 1, 2)


class CoupledByCoefficients(CoupledPosterior):
    """One Gaussian of the white coefficients of all latents."""

    @abstractmethod
    def white(self) -> "WhiteCoefficients":
        """The posterior of white coefficients v = L^-1 u of the centres."""

    def white_sites(self) -> WhiteSites:
        """White sites of all rows, of all latents together."""
        return self.white().sites

    def remembered(self, log_evidence: float) -> StreamingPrior:
        white = self.white()
        sites = white.sites
        own = 0.5 * white.mean @ sites.linear[0] + jnp.sum(jnp.log(jnp.diagonal(white.root)))
        settings: Any = {"inverse": white.inverse, "white": sites, "signed": white.signed}
        return StreamingPrior(centres=self.centres, constant=log_evidence - own, **settings)


class WhiteCoefficients(NamedTuple):
    """A posterior N(mean, root' root) of white coefficients of all latents together."""

    inverse: Float[Array, "#Q M M"]  # of the factor of their prior covariance
    mean: Float[Array, "R"]
    root: Float[Array, "R R"]  # triangular
    signed: bool  # whether rows can have negative precisions

    @property
    def sites(self) -> WhiteSites:
        """The rows' factor of them."""
        lower = jnp.linalg.inv(self.root)
        precision = lower @ lower.T
        identity = jnp.eye(len(precision), dtype=precision.dtype)
        return WhiteSites((precision @ self.mean)[None], (precision - identity)[None])


@stored
class CoupledDensePosterior(PosteriorAtRows, CoupledByCoefficients):
    """Posterior with coefficients at the rows, the latents of a row coupled."""

    kernel: LatentKernel
    X: Inputs  # inputs of the rows; the last ones may be copies of weight zero
    weights: Float[Array, "Q N"]  # K^-1 times the posterior mean
    inverse: Float[Array, "R R"]  # L^-1 for the factor L of B, shape (N Q, N Q)
    # L^-1 S', such that rows take |L^-1 S' k(X, x)|^2 from the covariance at x, shape (N Q, Q, N)
    lowered: Float[Array, "R Q N"]
    # the same of rows of negative precision, which add to it; shape (N Q, Q, N), or (0, Q, N) where
    # there can be none
    raised: Float[Array, "raised Q N"]
    precision: Float[Array, "Q N"]  # of the sites, for each latent given the others of its row
    half_log_determinant: Scalar  # half that of I + K W
    log_evidence: Scalar
    kl: Scalar
    jitter: Scalar
    trace_term: Scalar

    def mean(self, X: Inputs) -> RowLatents:
        return block_means(latent_grams(self.kernel, self.X, X), self.weights)

    def marginals(self, X: Inputs) -> JointMarginals:
        cross, prior = latent_grams(self.kernel, self.X, X), latent_diagonals(self.kernel, X)
        lowered, raised = (_times_blocks(part, cross) for part in (self.lowered, self.raised))
        return JointMarginals(block_means(cross, self.weights), _spread(prior, lowered, raised))

    def joint_covariance(self, X: Inputs) -> Float[Array, "Q N Q N"]:
        cross, prior = latent_grams(self.kernel, self.X, X), latent_grams(self.kernel, X)
        lowered, raised = (_times_blocks(part, cross) for part in (self.lowered, self.raised))
        latents = len(self.weights)
        own = jnp.broadcast_to(prior, (latents, *prior.shape[1:]))
        identity = jnp.eye(latents, dtype=prior.dtype)
        joint = own[:, :, None, :] * identity[:, None, :, None]
        joint = joint - jnp.einsum("jqn,jrm->qnrm", lowered, lowered)
        return joint + jnp.einsum("jqn,jrm->qnrm", raised, raised)

    def white(self) -> WhiteCoefficients:
        grams = latent_grams(self.kernel, self.X)
        factor = vmap_latents(jittered_cholesky, grams).factor
        mean = vmap_latents(lambda lower, weights: lower.T @ weights, factor.lower, self.weights)
        lower = for_all(factor.lower, len(mean))[0]
        down, up = (part.reshape(-1, mean.size) @ lower for part in (self.lowered, self.raised))
        covariance = jnp.eye(mean.size, dtype=mean.dtype) - down.T @ down + up.T @ up
        root = jittered_lower(covariance, jnp.ones((), mean.dtype)).T
        return WhiteCoefficients(factor.inverse, mean.ravel(), root, len(self.raised) > 0)

    def without_fillers(self) -> "CoupledDensePosterior":
        latents = len(self.weights)
        used = (np.asarray(part) != 0 for part in (self.lowered, self.raised, self.weights[None]))
        saying = np.any([np.any(part, axis=(0, 1)) for part in used], axis=0)
        chosen = np.flatnonzero(saying) if saying.any() else np.arange(1)
        # Their rows of B are those of the identity, and so are those of its factor.
        places = (chosen[:, None] * latents + np.arange(latents)).ravel()
        raised = self.raised[places] if len(self.raised) else self.raised
        return dataclasses.replace(
            self,
            X=self.X[chosen],
            weights=self.weights[:, chosen],
            inverse=self.inverse[places][:, places],
            lowered=self.lowered[places][:, :, chosen],
            raised=raised[:, :, chosen],
            precision=self.precision[:, chosen],
        )

    def pathwise_update(self, key: RandomKey, prior_path: Callable[[Points], Array]) -> Coefs:
        key_more = jax.random.fold_in(key, 1)
        noise = jax.random.normal(key, self.inverse.shape[:1], self.inverse.dtype)
        more = jax.random.normal(key_more, self.raised.shape[:1], self.inverse.dtype)
        # As of single sites: pseudo-targets whose draws are S' prior + noise.
        prior = prior_path(self.X).T
        residual = jnp.einsum("jqn,qn->j", self.lowered, prior) + self.inverse @ noise
        down = jnp.einsum("jqn,j->qn", self.lowered, residual)
        return self.weights - down + jnp.einsum("jqn,j->qn", self.raised, more)


def coupled_posterior(
    kernel: LatentKernel, X: Inputs, K: Float[Array, "#Q N N"], sites: CoupledSites, signed: bool
) -> CoupledDensePosterior:
    """Prior times sites, where K are the Gram matrices of the rows."""
    linear, precision, _ = sites
    rows, latents = linear.shape
    values, vectors = small_eigh(precision)
    root, lack = (jnp.sqrt(jnp.maximum(sign * values, 0.0)) for sign in (1, -1))
    S = vectors * root[:, None]
    factor = cholesky(jnp.eye(rows * latents, dtype=K.dtype) + _inside(K, S))
    # As of single sites, in the directions of each row's eigenvectors: l = S r + l_0.
    prior = jnp.broadcast_to(jnp.diagonal(K, axis1=1, axis2=2), (latents, rows)).T
    turned = jnp.einsum("nqj,nq->nj", vectors, linear)
    diagonal = 1 + root**2 * jnp.einsum("nqj,nq->nj", vectors**2, prior)
    ratio, left = split_linear(turned, root, diagonal)
    rest = jnp.einsum("nqj,nj->qn", vectors, left)
    K_rest = _times_vector(K, rest)
    half = factor.inverse @ (ratio - jnp.einsum("nqj,qn->nj", S, K_rest)).ravel()
    pulled = (factor.inverse.T @ half).reshape(rows, latents)
    weights = rest + jnp.einsum("nqj,nj->qn", S, pulled)
    mean = _times_vector(K, weights)
    explained = jnp.sum(ratio**2) + jnp.sum(rest * K_rest) - half @ half
    determinant = factor.half_log_determinant
    kl = 0.5 * (jnp.sum(factor.inverse**2) - rows * latents + jnp.sum(mean * weights))
    posterior = CoupledDensePosterior(
        kernel=kernel,
        X=X,
        weights=weights,
        inverse=factor.inverse,
        lowered=_behind(factor.inverse, S),
        raised=jnp.zeros((0, latents, rows), K.dtype),
        precision=sites.precisions.T,
        half_log_determinant=determinant,
        log_evidence=0.5 * explained - determinant,
        kl=kl + determinant,
        jitter=jnp.zeros((), K.dtype),
        trace_term=jnp.zeros((), K.dtype),
    )
    return _with_negative(K, vectors * lack[:, None], posterior) if signed else posterior


def _with_negative(
    K: Float[Array, "#Q N N"], T: Float[Array, "N Q Q"], positive: CoupledDensePosterior
) -> CoupledDensePosterior:
    """Condition the posterior N(m, C) on negative precisions -T T'.

    With I - T' C T the covariance is C + C T (I - T' C T)^-1 T' C, see `dense`.
    """
    shape = positive.lowered.shape
    size = shape[0]

    def flat(part: Float[Array, "R Q N"]) -> Float[Array, "R R"]:
        return part.reshape(size, size)

    def change() -> CoupledDensePosterior:
        lowered_K = _times_blocks(positive.lowered, K)
        across = jnp.einsum("jqn,nqk->jnk", lowered_K, T).reshape(size, size)
        identity = jnp.eye(size, dtype=K.dtype)
        left = cholesky(identity - _inside(K, T) + across.T @ across)
        to_white = _behind(left.inverse, T)
        back = flat(to_white) @ flat(lowered_K).T
        raised = to_white - (back @ flat(positive.lowered)).reshape(shape)
        pull = jnp.einsum("jqn,qn->j", to_white, _times_vector(K, positive.weights))
        weights = positive.weights + jnp.einsum("jqn,j->qn", raised, pull)
        gain, determinant = 0.5 * pull @ pull, left.half_log_determinant
        norms = jnp.sum(weights * _times_vector(K, weights))
        norms = norms - jnp.sum(positive.weights * _times_vector(K, positive.weights))
        white_C = _times_blocks(to_white, K) - (back @ flat(lowered_K)).reshape(shape)
        more = 0.5 * (jnp.sum(raised * white_C) + norms)
        return dataclasses.replace(
            positive,
            weights=weights,
            raised=raised,
            half_log_determinant=positive.half_log_determinant + determinant,
            log_evidence=positive.log_evidence + gain - determinant,
            kl=positive.kl + more + determinant,
        )

    nothing = dataclasses.replace(positive, raised=jnp.zeros(shape, K.dtype))
    return jax.lax.cond(jnp.any(T != 0), change, lambda: nothing)


def row_marginals(posterior: CoupledDensePosterior, K: Float[Array, "#Q N N"]) -> JointMarginals:
    """Marginals at the rows themselves."""
    prior = jnp.diagonal(K, axis1=1, axis2=2)
    lowered, raised = (_times_blocks(part, K) for part in (posterior.lowered, posterior.raised))
    return JointMarginals(block_means(K, posterior.weights), _spread(prior, lowered, raised))


def slope_in_grams(
    posterior: CoupledDensePosterior, like: Float[Array, "#Q N N"]
) -> Float[Array, "#Q N N"]:
    """Derivative of the log evidence in the Gram matrices, sites held."""

    def squares(part: Float[Array, "R Q N"]) -> Float[Array, "Q N N"]:
        return jnp.einsum("jqn,jqm->qnm", part, part)

    weights = posterior.weights
    slopes = weights[:, :, None] * weights[:, None, :] - squares(posterior.lowered)
    return 0.5 * over_sharing(slopes + squares(posterior.raised), like)


def _inside(K: Float[Array, "#Q N N"], S: Float[Array, "N Q Q"]) -> Float[Array, "R R"]:
    """S' K S, row by row."""
    rows, latents = S.shape[:2]
    if len(K) == 1:
        table = jnp.einsum("nqj,mqk->njmk", S, S) * K[0][:, None, :, None]
    else:
        table = jnp.einsum("nqj,qnm,mqk->njmk", S, K, S)
    return table.reshape(rows * latents, rows * latents)


def _behind(inverse: Float[Array, "R R"], S: Float[Array, "N Q Q"]) -> Float[Array, "R Q N"]:
    """Inverse times S', as functions of all latents."""
    rows, latents = S.shape[:2]
    return jnp.einsum("jnk,nqk->jqn", inverse.reshape(-1, rows, latents), S)


def _times_blocks(
    functions: Float[Array, "R Q N"], blocks: Float[Array, "#Q N B"]
) -> Float[Array, "R Q B"]:
    """Functions of the rows' latents times kernel blocks."""
    if len(blocks) == 1:
        return functions @ blocks[0]
    return jnp.einsum("jqn,qnb->jqb", functions, blocks)


def _times_vector(K: Float[Array, "#Q N N"], vector: Float[Array, "Q N"]) -> Float[Array, "Q N"]:
    return vector @ K[0] if len(K) == 1 else jnp.einsum("qn,qnm->qm", vector, K)


def _spread(
    prior: Float[Array, "#Q B"], lowered: Float[Array, "R Q B"], raised: Float[Array, "raised Q B"]
) -> Float[Array, "B Q Q"]:
    """Covariances of the latents of rows; variances in [0, prior] without what is raised."""
    latents = lowered.shape[1]
    explained = jnp.einsum("jqb,jrb->bqr", lowered, lowered)
    own = jnp.diagonal(explained, axis1=1, axis2=2)
    prior = jnp.broadcast_to(prior, (latents, lowered.shape[2])).T
    identity = jnp.eye(latents, dtype=prior.dtype)
    variance = jnp.clip(prior - own, 0.0, prior)
    covariance = jnp.where(identity > 0, variance[:, :, None], -explained)
    return covariance + jnp.einsum("jqb,jrb->bqr", raised, raised)
