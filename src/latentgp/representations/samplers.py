# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)
"""Draws of the latent functions given Gaussian sites, at fixed hyper-parameters.

What depends on the kernel alone is worked out once; a draw then costs one factorisation of
I + PSD, without its inverse. Coefficients are white, v ~ N(0, I) under the prior, and g = L v at
the representation's centres.
"""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentgp.errors import InputError
from latentgp.kernels import LatentKernel
from latentgp.numerics.cholesky import jittered_cholesky, lower_cholesky
from latentgp.numerics.triangular import solve_lower
from latentgp.representations.latent_axis import latent_grams, split_linear, vmap_latents
from latentgp.representations.variables import (
    Centres,
    covariance_of,
    cross_covariance,
    prior_variances,
)
from latentgp.sites.gaussian import Block, GaussianSites
from latentgp.typing import Array, Inputs, RandomKey, Scalar

_MOST_NUMBERS = 1 << 28  # of an N x M array that is kept


class Covariances(NamedTuple):
    """Posterior covariances of some rows' g, exact to rounding however precise their sites are."""

    with_all: Float[Array, "functions M chosen"]  # C = cov(g, g_S)
    shrinkage: Float[Array, "functions chosen chosen"]  # I - W^1/2 C_S W^1/2, W their precisions


class CoefficientDraw(NamedTuple):
    """A draw of coefficients, shape (functions, M), and covariances of some rows if wanted."""

    coefficients: Float[Array, "functions M"]
    covariances: Covariances | None


class BlockUpdate(NamedTuple):
    """Update of the coefficients of a block of latents, given sites.

    The draw is m - a (start - m) + sqrt(1 - a^2) e with mean m and e ~ N(0, S), which leaves
    N(m, S) unchanged (Adler 1981). What does not say how draws afresh.
    """

    sites: GaussianSites  # of all latents, for g
    block: Block  # whose coefficients are drawn
    key: RandomKey
    start: Float[Array, "functions M"]  # the coefficients so far
    over_relaxation: float = 0.0  # a in [0, 1)
    # whose covariances are wanted too, where coefficients are rows
    rows: Int[Array, "chosen"] | None = None


class SiteSampler(eqx.Module):
    """Draws from prior times sites, for one kernel and the rows' inputs."""

    centres: eqx.AbstractVar[Centres]  # of the coefficients, such as points of shape (M, D)
    jitter: eqx.AbstractVar[Scalar]  # the largest added to the prior's diagonal there, absolute

    @abstractmethod
    def draw(self, update: BlockUpdate) -> CoefficientDraw:
        """A draw of the coefficients of a block of latents, given their sites for g."""

    def at_rows(
        self, coefficients: Float[Array, "functions M"], block: Block, key: RandomKey
    ) -> Float[Array, "N functions"]:
        """A draw of the block's g at the rows given its coefficients: by default these."""
        return coefficients.T

    @abstractmethod
    def white(self, coefficients: Float[Array, "Q *S M"]) -> Float[Array, "Q *S M"]:
        """White coefficients v ~ N(0, I) under the prior, g = L v at the centres."""


class DenseSampler(SiteSampler):
    """Coefficients are g at the rows; a draw by Matheron's rule through B = I + W^1/2 K W^1/2."""

    centres: Inputs
    gram: Float[Array, "#Q N N"]  # K with its jitter
    lower: Float[Array, "#Q N N"]  # L, with L L' = K
    jitter: Scalar

    def draw(self, update: BlockUpdate) -> CoefficientDraw:
        sites, block, key, start, over_relaxation, rows = update
        columns = jnp.asarray(block)
        linear, precision = sites.linear[:, columns].T, sites.precision[:, columns].T
        noise = jax.random.normal(key, (2, *linear.shape), linear.dtype)
        fresh = float(np.sqrt(1 - over_relaxation**2))

        def draw(gram, lower, linear, precision, noise, start):
            root, prior = jnp.sqrt(precision), lower @ noise[0]
            identity = jnp.eye(len(gram), dtype=gram.dtype)
            B = identity + root[:, None] * gram * root
            factor = lower_cholesky(B)
            ratio, rest = split_linear(linear, root, jnp.diagonal(B))
            right = jnp.stack([ratio - root * (gram @ rest), root * prior + noise[1]], axis=1)
            if rows is not None:
                own = [root[:, None] * gram[:, rows], identity[:, rows]]
                right = jnp.concatenate([right, *own], axis=1)
            solved = solve_lower(factor, solve_lower(factor, right), transposed=True)
            mean = gram @ (rest + root * solved[:, 0])
            deviation = prior - gram @ (root * solved[:, 1])
            coefficients = mean - over_relaxation * (start - mean) + fresh * deviation
            if rows is None:
                return CoefficientDraw(coefficients, None)
            of_gram, inverse = jnp.split(solved[:, 2:], 2, axis=1)
            # W^1/2 C W^1/2 = I - B^-1, which is exact where sites are precise.
            from_gram = gram[:, rows] - gram @ (root[:, None] * of_gram)
            scale = root[:, None] * root[rows]
            spread = jnp.sqrt(jnp.diagonal(gram))
            precise = scale * spread[:, None] * spread[rows] > 1
            from_sites = (identity[:, rows] - inverse) / jnp.where(precise, scale, 1.0)
            with_all = jnp.where(precise, from_sites, from_gram)
            return CoefficientDraw(coefficients, Covariances(with_all, inverse[rows]))

        gram, lower = _of_block(self.gram, block), _of_block(self.lower, block)
        noise = jnp.moveaxis(noise, 0, 1)
        return vmap_latents(draw, gram, lower, linear, precision, noise, start)

    def white(self, coefficients: Float[Array, "Q *S M"]) -> Float[Array, "Q *S M"]:
        def solve(lower, g):
            return solve_lower(lower, g.reshape(-1, len(lower)).T).T.reshape(g.shape)

        return vmap_latents(solve, self.lower, coefficients)


class InducingSampler(SiteSampler):
    """Coefficients are white inducing variables; g at a row is its conditional given them.

    The Gaussian of a sweep minimises the alpha divergence to prior times sites (Galy-Fajou 2022,
    7.5; Bui, Yan & Turner 2017, 3.4) of alpha = power: 0 is variational, 1 is that of FITC.
    """

    centres: Centres
    features: Float[Array, "#Q M N"]  # L^-1 k(Z, X)
    residual: Float[Array, "#Q N"]  # prior variance that the inducing variables leave
    lower: Float[Array, "#Q M M"]  # L, with L L' = K + jitter at the points
    jitter: Scalar
    power: float = eqx.field(static=True)  # in [0, 1]

    def draw(self, update: BlockUpdate) -> CoefficientDraw:
        sites, block, key, *_ = update
        columns = jnp.asarray(block)
        linear, precision = sites.linear[:, columns].T, sites.precision[:, columns].T
        shape = (len(block), self.lower.shape[-1])
        noise = jax.random.normal(key, shape, linear.dtype)

        def draw(features, residual, linear, precision, noise):
            # A pseudo-observation's variance 1 / w grows by power times what is left.
            shrink = 1 / (1 + self.power * residual * precision)
            A = (features * (shrink * precision)) @ features.T
            factor = lower_cholesky(jnp.eye(len(A), dtype=A.dtype) + 0.5 * (A + A.T))
            half = solve_lower(factor, features @ (shrink * linear))
            return solve_lower(factor, half + noise, transposed=True)

        features, residual = _of_block(self.features, block), _of_block(self.residual, block)
        drawn = vmap_latents(draw, features, residual, linear, precision, noise)
        return CoefficientDraw(drawn, None)

    def at_rows(
        self, coefficients: Float[Array, "functions M"], block: Block, key: RandomKey
    ) -> Float[Array, "N functions"]:
        noise = jax.random.normal(key, (len(block), self.features.shape[-1]), coefficients.dtype)

        def value(features, residual, v, noise):
            return v @ features + jnp.sqrt(residual) * noise

        features, residual = _of_block(self.features, block), _of_block(self.residual, block)
        return vmap_latents(value, features, residual, coefficients, noise).T

    def white(self, coefficients: Float[Array, "Q *S M"]) -> Float[Array, "Q *S M"]:
        return coefficients


def dense_sampler(kernel: LatentKernel, X: Inputs) -> DenseSampler:
    """A sampler with one coefficient a row."""
    gram = latent_grams(kernel, X)
    factor, jitter = vmap_latents(jittered_cholesky, gram)
    identity = jnp.eye(gram.shape[-1], dtype=gram.dtype)
    return DenseSampler(X, gram + jitter[:, None, None] * identity, factor.lower, jnp.max(jitter))


def inducing_sampler(
    kernel: LatentKernel, centres: Centres, X: Inputs, power: float
) -> InducingSampler:
    """A sampler through inducing variables; InputError if N x M numbers are too many."""
    if len(centres) * len(X) > _MOST_NUMBERS:
        raise InputError(
            f"Sampling keeps rows x points = {len(X)} x {len(centres)} numbers, more than 2 GiB; "
            "use fewer inducing points or AugmentedVI."
        )
    factor, jitter = vmap_latents(jittered_cholesky, covariance_of(kernel, centres))
    features = vmap_latents(solve_lower, factor.lower, cross_covariance(kernel, centres, X))
    residual = jnp.maximum(prior_variances(kernel, centres, X) - jnp.sum(features**2, axis=1), 0.0)
    return InducingSampler(centres, features, residual, factor.lower, jnp.max(jitter), power)


def _of_block(array: Float[Array, "#Q ..."], block: Block) -> Float[Array, "#functions ..."]:
    return array if array.shape[0] == 1 else array[jnp.asarray(block)]
