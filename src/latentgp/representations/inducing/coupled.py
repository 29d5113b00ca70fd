"""M inducing points under sites that couple the latents of a row: O(N Q^2 M^2 + (Q M)^3).

White inducing variables of all latents are one Gaussian of size Q M. With a_q = L_q^-1 k_q(Z, x)
a row's site of precision W adds W_qr a_q a_r' to the block (q, r) of their precision I + A. What is
linear in all variables has shape (Q, M, ...).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from latentgp.kernels import LatentKernel
from latentgp.likelihoods.base import JointMarginals
from latentgp.modules import stored
from latentgp.numerics.cholesky import Factor
from latentgp.numerics.small_matrices import small_cholesky, small_solve_lower
from latentgp.representations.coupled import CoupledByCoefficients, WhiteCoefficients
from latentgp.representations.inducing.natural_parameters import Memory, WhiteSites
from latentgp.representations.inducing.posterior import (
    InducingPosterior,
    PosteriorByVariables,
    Prior,
    RowSites,
    kernel_blocks,
    residuals,
)
from latentgp.representations.latent_axis import block_means, over_sharing, vmap_latents
from latentgp.representations.variables import Centres, cross_covariance, prior_covariance
from latentgp.sites.coupled import CoupledSites
from latentgp.typing import Array, Coefs, Inputs, RandomKey, Scalar


@stored
class CoupledInducingPosterior(PosteriorByVariables, CoupledByCoefficients):
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

    @property
    def slope_in_sums(self) -> Float[Array, "Q M Q M"]:
        latents = len(self.mean_weights)
        identity = jnp.eye(latents, dtype=self.mean_weights.dtype)
        outer = jnp.einsum("qm,rk->qmrk", self.mean_weights, self.mean_weights)
        own = _each(self.prior_precision, latents)[:, :, None] * identity[:, None, :, None]
        return -0.5 * (outer + own - self.reduction)

    @property
    def own_reduction(self) -> Float[Array, "Q M M"]:
        """The reduction of each latent alone."""
        return jnp.stack([self.reduction[q, :, q] for q in range(len(self.reduction))])

    def joint_covariance(self, X: Inputs) -> Float[Array, "Q N Q N"]:
        latents = len(self.mean_weights)
        cross = _each(cross_covariance(self.kernel, self.centres, X), latents)
        prior = _each(prior_covariance(self.kernel, self.centres, X), latents)
        identity = jnp.eye(latents, dtype=prior.dtype)
        joint = prior[:, :, None, :] * identity[:, None, :, None]
        return joint - jnp.einsum("qmn,qmrk,rkl->qnrl", cross, self.reduction, cross)

    def white(self) -> WhiteCoefficients:
        mean, root = self.white_mean.ravel(), self.white_root
        return WhiteCoefficients(self.factor.inverse, mean, root, self.signed)

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

    @property
    def white(self) -> WhiteSites:
        """White sites of all latents together."""
        size = self.linear.size
        return WhiteSites(self.linear.reshape(1, size), self.precision.reshape(1, size, size))

    def add(
        self, white: Float[Array, "Q M B"], sites: CoupledProjection, real: Bool[Array, "B"]
    ) -> "_Sums":
        linear, precision, loss = (
            jnp.where(real.reshape(-1, *[1] * (a.ndim - 1)), a, 0.0) for a in sites
        )
        latents = range(len(white))
        table = [
            [(white[q] * precision[:, q, r]) @ white[r].T for r in range(q + 1)] for q in latents
        ]
        full = [[table[q][r] if r <= q else table[r][q].T for r in latents] for q in latents]
        A = jnp.transpose(jnp.stack([jnp.stack(row) for row in full]), (0, 2, 1, 3))
        linear = jnp.einsum("qmb,bq->qm", white, linear)
        return _Sums(self.precision + A, self.linear + linear, self.loss + 0.5 * jnp.sum(loss))


class CoupledRows(NamedTuple):
    """Rows of coupled sites, as `RowsAlone` are those of single ones."""

    prior: Prior
    power: float

    @staticmethod
    def none(latents: int, centres: Centres) -> tuple[_Sums, int]:
        shapes = (latents, len(centres)) * 2, (latents, len(centres)), ()
        return _Sums(*(jnp.zeros(shape, centres.dtype) for shape in shapes)), latents * len(centres)

    def add(self, sums: _Sums, rows: RowSites, real: Bool[Array, "B"]) -> _Sums:
        latents, (white, residual) = rows.linear.shape[1], self._white(rows)
        projected = CoupledProjection.of(*rows[2:], _each(residual, latents).T, self.power)
        return sums.add(_each(white, latents), projected, real)

    def marginals(self, posterior: CoupledInducingPosterior, rows: RowSites) -> JointMarginals:
        found = posterior.block_marginals(rows.blocks, rows.variances)
        residual = _each(self._white(rows)[1], rows.linear.shape[1]).T
        return row_marginals(found, *rows[2:], residual, self.power)

    def worth(
        self,
        posterior: CoupledInducingPosterior,
        slopes: Float[Array, "Q M Q M"],
        inverse: Float[Array, "#Q M M"],
        rows: RowSites,
        real: Bool[Array, "B"],
    ) -> Scalar:
        weights, latents = posterior.mean_weights, len(slopes)
        residual = _each(residuals(inverse, rows.blocks, rows.variances), latents).T
        projected = CoupledProjection.of(*rows[2:], residual, self.power)
        blocks = _each(rows.blocks, latents)
        turned = jnp.einsum("qmrk,rkb->qmrb", slopes, blocks)
        products = jnp.einsum("qmrb,qmb->bqr", turned, blocks)
        terms = jnp.sum(products * projected.precision, axis=(1, 2))
        terms = terms + jnp.einsum("bq,qm,qmb->b", projected.linear, weights, blocks)
        return jnp.sum(jnp.where(real, terms - 0.5 * projected.loss, 0.0))

    def _white(self, rows: RowSites) -> tuple[Float[Array, "#Q M B"], Float[Array, "#Q B"]]:
        """L^-1 k(Z, X), and the rows' variances given u."""
        white = vmap_latents(jnp.matmul, self.prior.factor.inverse, rows.blocks)
        return white, jnp.maximum(rows.variances - jnp.sum(white**2, axis=1), 0.0)


class CoupledBlockRead(NamedTuple):
    """Kernel blocks of some rows, and a posterior's marginals there: a `BlockRead`."""

    posterior: CoupledInducingPosterior
    blocks: Float[Array, "#Q M B"]  # k(Z, X)
    prior: Float[Array, "#Q B"]  # variances
    # from derivatives in blocks and prior to those in kernel and inducing variables
    pull_blocks: Callable[[tuple[Array, Array]], tuple[LatentKernel, Centres]]

    @classmethod
    def of(cls, posterior: CoupledInducingPosterior, X: Float[Array, "B D"]) -> "CoupledBlockRead":
        places = posterior.kernel, posterior.centres
        (blocks, prior), pull = jax.vjp(lambda k, Z: kernel_blocks(k, Z, X), *places)
        return cls(posterior, blocks, prior, pull)

    @property
    def marginals(self) -> JointMarginals:
        return self.posterior.block_marginals(self.blocks, self.prior)

    def white(self, sites: CoupledSites) -> WhiteSites:
        """White sites of the rows."""
        latents = len(self.posterior.mean_weights)
        white = vmap_latents(jnp.matmul, self.posterior.factor.inverse, self.blocks)
        start, _ = CoupledRows.none(latents, self.posterior.centres)
        own = CoupledProjection(*sites)
        sums = start.add(_each(white, latents), own, jnp.ones(len(sites.linear), bool))
        return sums.white

    def pull(self, sites: CoupledSites) -> tuple[LatentKernel, Centres]:
        """Derivatives of the log evidence through the blocks, given the rows' sites."""
        weights = self.posterior.mean_weights
        each = _each(self.blocks, len(weights))
        products = jnp.einsum("qmrk,rkb->qmrb", self.posterior.reduction, each)
        slope = sites.slope(block_means(self.blocks, weights))
        through = jnp.einsum("qmrb,bqr->qmb", products, sites.precision)
        through = through + weights[:, :, None] * slope.T[:, None]
        in_prior = over_sharing(-0.5 * sites.precisions.T, self.prior)
        return self.pull_blocks((over_sharing(through, self.blocks), in_prior))


def posterior_given(
    kernel: LatentKernel,
    centres: Centres,
    prior: Prior,
    power: float,
    signed: bool,
    memory: Memory | None,
    sums: _Sums,
) -> CoupledInducingPosterior:
    """Prior times sites, and times the factor of earlier rows."""
    white, loss = sums.white, sums.loss
    if memory is not None:
        white, loss = white.plus(memory.white), loss - memory.constant
    found = posterior_of_white(
        kernel, centres, prior, white.linear, white.factor(), signed=signed, memory=memory
    )
    lost = found.trace_term if power else found.trace_term + sums.loss
    return dataclasses.replace(found, log_evidence=found.log_evidence - loss, trace_term=lost)


def posterior_of_white(
    kernel: LatentKernel,
    centres: Centres,
    prior: Prior,
    linear: Float[Array, "1 R"],
    factor: Factor,
    *,
    signed: bool,
    memory: Memory | None = None,
) -> CoupledInducingPosterior:
    """The posterior given `WhiteSites` of all latents together, as of `InducingPosterior`."""
    factor, size = jax.tree.map(lambda a: a[0], factor), linear.size
    shape = size // len(centres), len(centres)
    root, determinant = factor.inverse, factor.half_log_determinant
    c = root @ linear[0]
    mean = root.T @ c
    kl = 0.5 * (jnp.sum(root**2) - size + mean @ mean) + determinant
    explained = jnp.eye(size, dtype=c.dtype) - factor.inverse_of_product()
    inverse = _each(prior.factor.inverse, shape[0])
    halfway = jnp.einsum("qam,qark->qmrk", inverse, explained.reshape(*shape, *shape))
    known = lost = jnp.zeros((), c.dtype)
    if memory is not None:
        known, lost = memory.expected(mean[None], root[None]), memory.lost
    return CoupledInducingPosterior(
        kernel=kernel,
        variables=centres,
        factor=prior.factor,
        white_mean=mean.reshape(shape),
        white_root=root,
        mean_weights=jnp.einsum("qam,qa->qm", inverse, mean.reshape(shape)),
        reduction=jnp.einsum("qmra,ran->qmrn", halfway, inverse),
        log_evidence=0.5 * c @ c - determinant,
        kl=kl - known,
        jitter=jnp.max(prior.jitter),
        trace_term=lost,
        signed=signed,
    )


def _each(values: Float[Array, "#Q *S"], latents: int) -> Float[Array, "Q *S"]:
    """For each latent what those that share a kernel have once."""
    return jnp.broadcast_to(values, (latents, *values.shape[1:]))
