"""M inducing points under sites that couple the latents of a row: O(N Q^2 M^2 + (Q M)^3).

White inducing variables of all latents are one Gaussian of size Q M. With a_q = L_q^-1 k_q(Z, x)
a row's site of precision W adds W_qr a_q a_r' to the block (q, r) of their precision I + A. What is
linear in all variables has shape (Q, M, ...).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from latentgp.kernels import LatentKernel
from latentgp.likelihoods.base import JointMarginals
from latentgp.modules import stored
from latentgp.numerics.cholesky import Factor, cholesky
from latentgp.numerics.small_matrices import small_cholesky, small_solve_lower
from latentgp.representations.base import SiteUpdate
from latentgp.representations.coupled import CoupledPosterior, WhiteMoments
from latentgp.representations.inducing.posterior import (
    InducingPosterior,
    PosteriorByVariables,
    Prior,
    kernel_blocks,
    residuals,
)
from latentgp.representations.latent_axis import block_means, vmap_latents
from latentgp.representations.variables import Centres, cross_covariance, prior_covariance
from latentgp.runtime.row_scan import scan_rows
from latentgp.sites.coupled import CoupledSites
from latentgp.sites.gaussian import Rows
from latentgp.typing import Array, Coefs, Inputs, RandomKey, RowLatents, Scalar


@stored
class CoupledInducingPosterior(PosteriorByVariables, CoupledPosterior):
    """Posterior N(white_mean, (I + A)^-1) of the white inducing variables of all latents."""

    kernel: LatentKernel
    variables: Centres  # the inducing variables: points Z, shape (M, D), or others
    factor: Factor  # of K_mm + jitter, shapes (#Q, M, M)
    white_mean: Coefs
    white_root: Float[Array, "size size"]  # R with R' R = (I + A)^-1, shape (Q M, Q M)
    mean_weights: Coefs  # L^-T white_mean, so that the mean at x is k(x, Z) mean_weights
    reduction: Float[Array, "Q M Q M"]  # K_mm^-1 - L^-T (I + A)^-1 L^-1 of all latents
    log_evidence: Scalar
    kl: Scalar
    jitter: Scalar
    trace_term: Scalar
    signed: bool = eqx.field(static=True, default=False)

    def marginals(self, X: Inputs) -> JointMarginals:
        return self.block_marginals(*kernel_blocks(self.kernel, self.centres, X))

    def block_marginals(
        self, blocks: Float[Array, "#Q M B"], prior: Float[Array, "#Q B"]
    ) -> JointMarginals:
        """Marginals at rows whose kernel blocks k(Z, X) and prior variances are known."""
        latents = len(self.mean_weights)
        reduced = jnp.einsum("qmrk,rkb->qmrb", self.reduction, _each(blocks, latents))
        explained = jnp.einsum("qmrb,qmb->bqr", reduced, _each(blocks, latents))
        prior = _each(prior, latents).T
        own = prior - jnp.diagonal(explained, axis1=1, axis2=2)
        variance = jnp.clip(own, 0.0, jnp.inf if self.signed else prior)
        identity = jnp.eye(latents, dtype=prior.dtype)
        covariance = jnp.where(identity > 0, variance[:, :, None], -explained)
        return JointMarginals(block_means(blocks, self.mean_weights), covariance)

    def open_variances(self, X: Inputs) -> Float[Array, "N #Q"]:
        precision = vmap_latents(Factor.inverse_of_product, self.factor)
        return residuals(precision, *kernel_blocks(self.kernel, self.centres, X)).T

    def joint_covariance(self, X: Inputs) -> Float[Array, "Q N Q N"]:
        latents = len(self.mean_weights)
        cross = _each(cross_covariance(self.kernel, self.centres, X), latents)
        prior = _each(prior_covariance(self.kernel, self.centres, X), latents)
        identity = jnp.eye(latents, dtype=prior.dtype)
        joint = prior[:, :, None, :] * identity[:, None, :, None]
        return joint - jnp.einsum("qmn,qmrk,rkl->qnrl", cross, self.reduction, cross)

    def white_moments(self) -> WhiteMoments:
        latents, points = self.white_mean.shape
        shape = latents, points, latents, points
        identity = jnp.eye(points, dtype=self.white_mean.dtype)
        lower = jnp.linalg.inv(self.white_root)  # of I + A
        joint = (lower @ lower.T).reshape(shape)
        covariance = (self.white_root.T @ self.white_root).reshape(shape)
        own = jnp.stack([joint[q, :, q] - identity for q in range(latents)])
        marginal = jnp.stack([covariance[q, :, q] for q in range(latents)])

        def deviations(factor: Factor, covariance: Float[Array, "M M"]) -> Float[Array, "M"]:
            spread = jnp.einsum("ab,bc,ac->a", factor.lower, covariance, factor.lower)
            return jnp.sqrt(spread)

        return WhiteMoments(
            factor=self.factor,
            mean=self.white_mean,
            precision=own,
            half_log_determinant=jnp.sum(jnp.log(jnp.diagonal(lower))),
            deviations=vmap_latents(deviations, self.factor, marginal),
            signed=self.signed,
        )

    def pathwise_update(self, key: RandomKey, prior_path: Callable[[Centres], Array]) -> Coefs:
        noise = jax.random.normal(key, self.white_root.shape[:1], self.white_root.dtype)
        drawn = self.white_mean + (noise @ self.white_root).reshape(self.white_mean.shape)

        def weights(inverse, drawn, prior):
            return (drawn - inverse @ prior) @ inverse

        return vmap_latents(weights, self.factor.inverse, drawn, prior_path(self.centres).T)


AnyInducingPosterior: TypeAlias = InducingPosterior | CoupledInducingPosterior


class CoupledProjection(NamedTuple):
    """Sites for g = k' K_mm^-1 u left of coupled sites for f = g + e, e ~ N(0, diag(r))."""

    linear: Float[Array, "B Q"]
    precision: Float[Array, "B Q Q"]
    loss: Float[Array, "B"]  # minus twice the log of the factor that does not depend on g

    @classmethod
    def of(
        cls,
        linear: Float[Array, "B Q"],
        precision: Float[Array, "B Q Q"],
        residual: Float[Array, "B Q"],
        power: float,
    ) -> "CoupledProjection":
        """[E_e site(g + e)^power]^(1 / power); of power 0 the exponential of the mean log."""
        if not power:
            own = jnp.diagonal(precision, axis1=1, axis2=2)
            return cls(linear, precision, jnp.sum(own * residual, axis=1))
        lower, root = _shrinking(precision, residual, power)
        # With r^1/2 on both sides of W, which may have no inverse, nor may r.
        half = small_solve_lower(lower, root[:, :, None] * precision)
        left = small_solve_lower(lower, (root * linear)[:, :, None])
        pulled = (jnp.swapaxes(half, 1, 2) @ left)[:, :, 0]
        log_size = 2 * jnp.sum(jnp.log(jnp.diagonal(lower, axis1=1, axis2=2)), axis=1)
        return cls(
            linear - power * pulled,
            precision - power * jnp.swapaxes(half, 1, 2) @ half,
            log_size / power - power * jnp.sum(left**2, axis=(1, 2)),
        )


def row_marginals(
    marginals: JointMarginals,
    linear: Float[Array, "B Q"],
    precision: Float[Array, "B Q Q"],
    residual: Float[Array, "B Q"],
    power: float,
) -> JointMarginals:
    """Marginals of rows' f whose own sites^power tell about its variance given u, too."""
    if not power:
        return marginals
    identity = jnp.eye(residual.shape[1], dtype=residual.dtype)
    lower, root = _shrinking(precision, residual, power)
    half = small_solve_lower(lower, root[:, :, None] * identity)
    left = jnp.swapaxes(half, 1, 2) @ half  # covariance of e given g
    mean, covariance = marginals
    pull = linear - (precision @ mean[:, :, None])[:, :, 0]
    turn = identity - power * left @ precision
    given = covariance - residual[:, :, None] * identity
    shift = power * (left @ pull[:, :, None])[:, :, 0]
    return JointMarginals(mean + shift, turn @ given @ jnp.swapaxes(turn, 1, 2) + left)


def _shrinking(
    precision: Float[Array, "B Q Q"], residual: Float[Array, "B Q"], power: float
) -> tuple[Float[Array, "B Q Q"], Float[Array, "B Q"]]:
    """Factor of I + power r^1/2 W r^1/2, and r^1/2."""
    # A root has no derivative at zero.
    some = residual > 0
    root = jnp.where(some, jnp.sqrt(jnp.where(some, residual, 1.0)), 0.0)
    identity = jnp.eye(residual.shape[1], dtype=residual.dtype)
    inner = root[:, :, None] * precision * root[:, None]
    return small_cholesky(identity + power * inner), root


class _Sums(NamedTuple):
    """Sums over rows in white inducing variables."""

    precision: Float[Array, "Q M Q M"]  # A
    linear: Coefs
    loss: Scalar  # of the projections, half of it

    @classmethod
    def none(cls, latents: int, centres: Centres) -> "_Sums":
        shape, dtype = (latents, len(centres)), centres.dtype
        return cls(jnp.zeros(shape * 2, dtype), jnp.zeros(shape, dtype), jnp.zeros((), dtype))

    def add(
        self, white: Float[Array, "Q M B"], sites: CoupledProjection, real: Bool[Array, "B"]
    ) -> "_Sums":
        linear, precision, loss = (
            jnp.where(real.reshape(-1, *[1] * (a.ndim - 1)), a, 0.0) for a in sites
        )
        latents = range(len(white))
        table = [
            [(white[q] * precision[:, q, r]) @ white[r].T if r <= q else None for r in latents]
            for q in latents
        ]
        full = [[_entry(table, q, r) for r in latents] for q in latents]
        A = jnp.transpose(jnp.stack([jnp.stack(row) for row in full]), (0, 2, 1, 3))
        linear = jnp.einsum("qmb,bq->qm", white, linear)
        return _Sums(self.precision + A, self.linear + linear, self.loss + 0.5 * jnp.sum(loss))


def _entry(table: list[list[Any]], q: int, r: int) -> Array:
    return table[q][r] if r <= q else table[r][q].T


def condition(
    kernel: LatentKernel,
    centres: Centres,
    prior: Prior,
    X: Inputs,
    sites: CoupledSites,
    *,
    power: float,
    signed: bool,
) -> CoupledInducingPosterior:
    """Prior times sites."""
    latents = sites.linear.shape[1]

    def step(sums: _Sums, chunk: Any, real: Bool[Array, "B"]) -> tuple[_Sums, None]:
        x, linear, precision = chunk
        blocks, variances = kernel_blocks(kernel, centres, x)
        return _added(sums, prior, blocks, variances, linear, precision, power, real), None

    rows = X, sites.linear, sites.precision
    columns = latents * len(centres)
    sums, _ = scan_rows(step, _Sums.none(latents, centres), rows, columns=columns)
    return _posterior(kernel, centres, prior, sums, power, signed)


def update_sites(
    posterior: CoupledInducingPosterior,
    prior: Prior,
    X: Inputs,
    rows: Rows,
    sites: CoupledSites,
    offset: RowLatents,
    update: SiteUpdate,
    *,
    power: float,
) -> tuple[CoupledSites, CoupledInducingPosterior, Any]:
    """New sites from the posterior's marginals, and the posterior they give."""
    kernel, centres, latents = posterior.kernel, posterior.centres, sites.linear.shape[1]

    def step(sums: _Sums, chunk: Any, real: Bool[Array, "B"]) -> tuple[_Sums, Any]:
        x, rows, sites, offset = chunk
        blocks, variances = kernel_blocks(kernel, centres, x)
        about = sites.about(offset)
        marginals = _marginals(posterior, prior, blocks, variances, about, power)
        sites, other = update(rows, marginals, sites, offset)
        about = sites.about(offset)
        own = about.linear, about.precision
        return _added(sums, prior, blocks, variances, *own, power, real), (sites, other)

    start, columns = _Sums.none(latents, centres), latents * len(centres)
    chunks = X, rows, sites, offset
    sums, (sites, other) = scan_rows(step, start, chunks, columns=columns)
    return sites, _posterior(kernel, centres, prior, sums, power, posterior.signed), other


class EvidenceGradient(NamedTuple):
    """Derivatives of the log evidence, sites held.

    Attributes:
        rows: through the rows' kernel blocks, in kernel and inducing variables.
        prior: in K_mm through the residual variances, shape (#Q, M, M).
        evidence: in K_mm, sums over rows held, shape (Q, M, M).
        marginals: of g at the rows.
    """

    rows: tuple[LatentKernel, Centres]
    prior: Float[Array, "#Q M M"]
    evidence: Float[Array, "Q M M"]
    marginals: JointMarginals


def pull_back(
    posterior: CoupledInducingPosterior,
    prior: Prior,
    X: Inputs,
    sites: CoupledSites,
    *,
    power: float,
) -> EvidenceGradient:
    """Derivatives of `condition(...).log_evidence`."""
    weights, latents = posterior.mean_weights, len(posterior.mean_weights)
    places = (posterior.kernel, posterior.centres)
    inverse = prior.precision
    identity = jnp.eye(latents, dtype=weights.dtype)
    # With P the sums of W_qr k_q k_r': d/dP = -(weights weights' + (K_mm + P)^-1) / 2.
    outer = jnp.einsum("qm,rk->qmrk", weights, weights)
    own = _each(inverse, latents)[:, :, None] * identity[:, None, :, None]
    in_sums = -0.5 * (outer + own - posterior.reduction)

    def step(slopes: Any, chunk: Any, real: Bool[Array, "B"]) -> tuple[Any, JointMarginals]:
        x, linear, precision = chunk

        def value(kernel: LatentKernel, centres: Any, inverse: Array) -> Array:
            blocks, variances = kernel_blocks(kernel, centres, x)
            residual = _each(residuals(inverse, blocks, variances), latents).T
            projected = CoupledProjection.of(linear, precision, residual, power)
            blocks = _each(blocks, latents)
            turned = jnp.einsum("qmrk,rkb->qmrb", in_sums, blocks)
            products = jnp.einsum("qmrb,qmb->bqr", turned, blocks)
            terms = jnp.sum(products * projected.precision, axis=(1, 2))
            terms = terms + jnp.einsum("bq,qm,qmb->b", projected.linear, weights, blocks)
            return jnp.sum(jnp.where(real, terms - 0.5 * projected.loss, 0.0))

        *here, in_inverse = jax.grad(value, (0, 1, 2))(*places, inverse)
        blocks, variances = kernel_blocks(*places, x)
        own = CoupledSites(linear, precision, jnp.zeros_like(linear[:, 0]))
        marginals = _marginals(posterior, prior, blocks, variances, own, power)
        return jax.tree.map(jnp.add, slopes, (tuple(here), in_inverse)), marginals

    start = jax.tree.map(jnp.zeros_like, (places, inverse))
    chunks = X, sites.linear, sites.precision
    columns = latents * len(posterior.centres)
    (through_rows, in_inverse), marginals = scan_rows(step, start, chunks, columns=columns)
    through_prior = vmap_latents(lambda i, s: -i @ s @ i, inverse, in_inverse)
    reduction = jnp.stack([posterior.reduction[q, :, q] for q in range(latents)])
    evidence = 0.5 * (reduction - weights[:, :, None] * weights[:, None])
    return EvidenceGradient(through_rows, through_prior, evidence, marginals)


def _added(
    sums: _Sums,
    prior: Prior,
    blocks: Float[Array, "#Q M B"],
    variances: Float[Array, "#Q B"],
    linear: Float[Array, "B Q"],
    precision: Float[Array, "B Q Q"],
    power: float,
    real: Bool[Array, "B"],
) -> _Sums:
    latents = linear.shape[1]
    white, residual = _white(prior, blocks, variances)
    projected = CoupledProjection.of(linear, precision, _each(residual, latents).T, power)
    return sums.add(_each(white, latents), projected, real)


def _white(
    prior: Prior, blocks: Float[Array, "#Q M B"], variances: Float[Array, "#Q B"]
) -> tuple[Float[Array, "#Q M B"], Float[Array, "#Q B"]]:
    """L^-1 k(Z, X), and the rows' variances given u."""
    white = vmap_latents(jnp.matmul, prior.factor.inverse, blocks)
    return white, jnp.maximum(variances - jnp.sum(white**2, axis=1), 0.0)


def _marginals(
    posterior: CoupledInducingPosterior,
    prior: Prior,
    blocks: Float[Array, "#Q M B"],
    variances: Float[Array, "#Q B"],
    about: CoupledSites,
    power: float,
) -> JointMarginals:
    marginals = posterior.block_marginals(blocks, variances)
    residual = _each(_white(prior, blocks, variances)[1], about.linear.shape[1]).T
    return row_marginals(marginals, about.linear, about.precision, residual, power)


def _posterior(
    kernel: LatentKernel, centres: Centres, prior: Prior, sums: _Sums, power: float, signed: bool
) -> CoupledInducingPosterior:
    shape, size = sums.linear.shape, sums.linear.size
    identity = jnp.eye(size, dtype=centres.dtype)
    factor = cholesky(identity + sums.precision.reshape(size, size))
    root, determinant = factor.inverse, factor.half_log_determinant
    c = root @ sums.linear.ravel()
    white_mean = root.T @ c
    kl = 0.5 * (jnp.sum(root**2) - size + white_mean @ white_mean) + determinant
    white_mean = white_mean.reshape(shape)
    explained = (identity - factor.inverse_of_product()).reshape(*shape, *shape)
    inverse = _each(prior.factor.inverse, shape[0])
    halfway = jnp.einsum("qam,qark->qmrk", inverse, explained)
    lost = sums.loss if not power else jnp.zeros((), centres.dtype)
    return CoupledInducingPosterior(
        kernel=kernel,
        variables=centres,
        factor=prior.factor,
        white_mean=white_mean,
        white_root=root,
        mean_weights=jnp.einsum("qam,qa->qm", inverse, white_mean),
        reduction=jnp.einsum("qmra,ran->qmrn", halfway, inverse),
        log_evidence=0.5 * c @ c - determinant - sums.loss,
        kl=kl,
        jitter=jnp.max(prior.jitter),
        trace_term=lost,
        signed=signed,
    )


def _each(values: Float[Array, "#Q *S"], latents: int) -> Float[Array, "Q *S"]:
    """For each latent what those that share a kernel have once."""
    return jnp.broadcast_to(values, (latents, *values.shape[1:]))
