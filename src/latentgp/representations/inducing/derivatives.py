"""Derivatives of bounds and evidences through inducing points, in closed form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.kernels import LatentKernel
from latentgp.likelihoods.base import Marginals
from latentgp.numerics.cholesky import Factor
from latentgp.representations.inducing.natural_parameters import WhiteSites
from latentgp.representations.inducing.posterior import (
    InducingPosterior,
    PosteriorByVariables,
    half_reduction,
    kernel_blocks,
)
from latentgp.representations.latent_axis import over_sharing, vmap_latents
from latentgp.representations.variables import Centres, covariance_between, covariance_of
from latentgp.runtime.row_scan import scan_rows
from latentgp.sites.gaussian import GaussianSites
from latentgp.typing import Array, Scalar


def pull_rows(
    posterior: InducingPosterior, rows: tuple[Array, Array, Array]
) -> tuple[Any, Marginals]:
    """Derivatives through the rows' blocks in kernel and variables, and the rows' marginals."""

    def step(slopes, chunk, real):
        x, linear, precision = chunk
        read = BlockRead.of(posterior, x)
        counted = jnp.asarray(real, linear.dtype)
        sites = GaussianSites(linear, precision, linear[:, 0]).weighted(counted)
        return jax.tree.map(jnp.add, slopes, read.pull(sites)), read.marginals

    start = jax.tree.map(jnp.zeros_like, (posterior.kernel, posterior.centres))
    return scan_rows(step, start, rows, columns=len(posterior.centres))


class BlockRead(NamedTuple):
    """Kernel blocks of some rows, and a posterior's marginals there."""

    blocks: Float[Array, "#Q M B"]  # k(Z, X)
    prior: Float[Array, "#Q B"]  # variances
    products: Float[Array, "Q M B"]  # reduction times block
    mean: Float[Array, "Q B"]  # of g at the rows
    variance: Float[Array, "Q B"]  # of g at the rows
    posterior: InducingPosterior
    # from derivatives in blocks and prior to those in kernel and inducing variables
    pull_blocks: Callable[[tuple[Array, Array]], tuple[LatentKernel, Centres]]

    @classmethod
    def of(cls, posterior: InducingPosterior, X: Float[Array, "B D"]) -> "BlockRead":
        places = posterior.kernel, posterior.centres
        (blocks, prior), pull_blocks = jax.vjp(lambda k, Z: kernel_blocks(k, Z, X), *places)

        def read(block, prior, weights, reduction):
            product = reduction @ block
            return product, weights @ block, posterior.variance_left(prior, block, product)

        weights = posterior.mean_weights
        products, mean, variance = vmap_latents(read, blocks, prior, weights, posterior.reduction)
        return cls(blocks, prior, products, mean, variance, posterior, pull_blocks)

    @property
    def marginals(self) -> Marginals:
        """Marginals of g at the rows."""
        return Marginals(self.mean.T, self.variance.T)

    def white(self, sites: GaussianSites) -> WhiteSites:
        """White sites of the rows."""
        own = sites.linear.T, sites.precision.T
        return WhiteSites.of_rows(self.blocks, *own, self.posterior.factor)

    def pull(self, sites: GaussianSites) -> tuple[LatentKernel, Centres]:
        """Derivatives of the log evidence through the blocks, given the rows' sites."""
        linear, precision = sites.linear.T, sites.precision.T

        def in_block(product, mean, weights, linear, precision):
            # d/dP = (reduction - weights weights') / 2 for P = sum_n w_n k_n k_n'.
            return product * precision + weights[:, None] * (linear - precision * mean)

        weights = self.posterior.mean_weights
        through = vmap_latents(in_block, self.products, self.mean, weights, linear, precision)
        in_prior = over_sharing(-0.5 * precision, self.prior)
        return self.pull_blocks((over_sharing(through, self.blocks), in_prior))


def slope_of_trace(factor: Factor, precision: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """Derivative of tr(A) / 2 in K_mm, A = L^-1 P L^-T."""
    return -0.5 * factor.inverse.T @ precision @ factor.inverse


def _rest(mean: Float[Array, "M"], held: WhiteSites, rows: WhiteSites) -> Float[Array, "M"]:
    """By how much the rows' linear term is not what is held, less D m, D that of precisions."""
    return rows.linear - held.linear - (rows.precision - held.precision) @ mean


def slope_of_bound(
    factor: Factor,
    weights: Float[Array, "M"],
    mean: Float[Array, "M"],
    root: Float[Array, "M M"],
    held: WhiteSites,
    rows: WhiteSites,
) -> Float[Array, "M M"]:
    """Derivative in K_mm of the bound at N(m, S), S = R'R, for any sites of the rows.

    With what is held, H, as a function of u, it is in units of the prior
    -(Y (I + P) Y + (m + 2 Y r) m') / 2, made symmetric, where Y = I - S, S = (I + H)^-1, P is the
    rows' precision, and r their linear term less that of H and (P - H) m.
    """
    half = half_reduction(root, factor.inverse)
    inner = half @ (rows.precision + jnp.eye(len(mean), dtype=mean.dtype)) @ half.T
    cross = jnp.outer(half @ _rest(mean, held, rows), weights)
    return -0.5 * (inner + jnp.outer(weights, weights) + cross + cross.T)


def slope_of_held(
    factor: Factor,
    mean: Float[Array, "M"],
    root: Float[Array, "M M"],
    held: WhiteSites,
    rows: WhiteSites,
) -> Float[Array, "M M"]:
    """Derivative of that bound in k(Z, Z'), where fixed sites for g are at other points Z'.

    It is H (S D S - S r m' - m r' S) + l r' S, l the linear term that is held, D = P - H.
    """
    covariance = root.T @ root
    rest = covariance @ _rest(mean, held, rows)
    cross = jnp.outer(rest, mean)
    inner = covariance @ (rows.precision - held.precision) @ covariance - cross - cross.T
    slope = held.precision @ inner + jnp.outer(held.linear, rest)
    return factor.inverse.T @ slope @ factor.inverse


def pull_moved(posterior: PosteriorByVariables, slope: Float[Array, "Q M M"]) -> Centres:
    """The derivative in points that goes through k(Z, Z') K(Z', Z')^-1, at Z' = Z."""
    kernel, centres = posterior.kernel, posterior.centres

    def worth(moved: Centres) -> Scalar:
        change = covariance_between(kernel, centres, moved) - covariance_of(kernel, moved)
        return jnp.sum(over_sharing(slope, change) * change)

    return jax.grad(worth)(centres)


def slope_of_precisions(
    factor: Factor, white_lower: Float[Array, "M M"], white_root: Float[Array, "M M"]
) -> Float[Array, "M M"]:
    """Derivative of -sum_j log(1 + A_jj) / 2 in K_mm, dL = L Phi(L^-1 dK L^-T) (Murray 2016, 8)."""
    inner = jnp.diagonal(white_root)[:, None] ** 2 * without_prior(white_lower)
    inner = jnp.tril(inner) - 0.5 * jnp.diag(jnp.diagonal(inner))
    return 0.5 * factor.inverse.T @ (inner + inner.T) @ factor.inverse


def without_prior(white_lower: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """A from the factor of I + A."""
    return white_lower @ white_lower.T - jnp.eye(len(white_lower), dtype=white_lower.dtype)
