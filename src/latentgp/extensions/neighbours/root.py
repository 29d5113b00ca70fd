"""White coefficients of latents given their neighbours, and draws given Gaussian sites.

With B and D of the prior N(0, (B' D^-1 B)^-1) the latents are g = B^-1 D^(1/2) v, v ~ N(0, I).
Given sites l and W they are N(A^-1 l, A^-1), A = B' D^-1 B + W: A^-1 z is a draw for z ~ N(l, A).
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentgp.extensions.neighbours.latent_precision import WhitenedOperator, perturbed, solve_to
from latentgp.extensions.neighbours.levels import Levels
from latentgp.extensions.neighbours.prior import Regression, TriangularFactors, posterior_regression
from latentgp.kernels import LatentKernel
from latentgp.likelihoods.base import Marginals
from latentgp.representations.latent_axis import vmap_latents
from latentgp.representations.samplers import BlockUpdate, CoefficientDraw, SiteSampler
from latentgp.representations.whitening import WhiteningBySolves
from latentgp.typing import Array, Inputs, NeighbourRows, RowLatents, Scalar

_DRAW_TOLERANCE = 1e-8  # relative residual of a draw's solve


class SparseRoot(NamedTuple):
    """The root B^-1 D^(1/2) of a prior covariance, differentiable in all of it."""

    law: Regression  # each row given its neighbours
    neighbours: NeighbourRows  # numbers of each row's neighbours, shape (N, #Q, V)
    factor: TriangularFactors  # B

    def times(self, white: Float[Array, "Q N"]) -> RowLatents:
        """B^-1 D^(1/2) white: solves, whose derivatives are others."""
        right = (jnp.sqrt(self.law.variance) * white).T

        def forward(_: object, right: RowLatents) -> RowLatents:
            return self.factor.solve(right[..., None])[..., 0]

        def backward(_: object, right: RowLatents) -> RowLatents:
            return self.factor.transposed_solve(right[..., None])[..., 0]

        return jax.lax.custom_linear_solve(self._errors, right, forward, backward)

    def inverse(self, g: RowLatents) -> Float[Array, "Q N"]:
        """D^(-1/2) B g."""
        return self._errors(g).T / jnp.sqrt(self.law.variance)

    def log_determinant(self, latents: int) -> Scalar:
        """Log-determinant of the root, over so many latent functions."""
        logs = 0.5 * jnp.log(self.law.variance)
        return jnp.sum(jnp.broadcast_to(logs, (latents, logs.shape[1])))

    def attached(self, neighbours: NeighbourRows, levels: tuple[Levels, ...]) -> "SparseRoot":
        """With these neighbours and levels, which are its own."""
        return SparseRoot(self.law, neighbours, self.factor.attached(levels))

    def _errors(self, g: RowLatents) -> RowLatents:
        """B g by gathers alone, which JAX can differentiate."""

        def of_latent(weights: Array, neighbours: Array, g: Array) -> Array:
            return g - jnp.sum(weights * g[neighbours], axis=1)

        return vmap_latents(of_latent, self.law.weights, jnp.moveaxis(self.neighbours, 1, 0), g.T).T


class SparseWhitening(WhiteningBySolves):
    """The map from white coefficients to g at the rows, which are the centres."""

    centres: Inputs
    residual: Float[Array, "#Q N"]
    jitter: Scalar
    root: SparseRoot  # of the prior covariance
    kernel: LatentKernel  # of the prior
    later: Int[Array, "N #Q later"]  # nearest rows after each, whose sites a preconditioner sees
    levels: tuple[Levels, ...]  # of each distinct kernel

    def conditional(self, white: Float[Array, "Q N"]) -> Marginals:
        return Marginals.known(self.root.times(white))

    def white_of(self, g: RowLatents) -> Float[Array, "Q N"]:
        return self.root.inverse(g)

    def log_determinant(self, latents: int) -> Scalar:
        return self.root.log_determinant(latents)

    def attached(self, representation: Any) -> "SparseWhitening":
        """With neighbours and levels of a representation, `LatentNeighbours`."""
        neighbours = jnp.asarray(representation.rows_found(len(self.centres)))
        levels, later = representation.levels, jnp.asarray(representation.later)
        root = self.root.attached(neighbours, levels)
        return dataclasses.replace(self, root=root, levels=levels, later=later)

    def attached_root(self, root: SparseRoot) -> SparseRoot:
        return root.attached(self.root.neighbours, self.levels)

    def posterior(
        self, linear: RowLatents, precision: RowLatents, tolerance: float
    ) -> tuple[SparseRoot, RowLatents]:
        """The preconditioner's root C^-1 R, near one of A^-1, and the mean of g given sites."""
        own, M = self.given_sites(precision)
        root = SparseRoot(own, self.root.neighbours, M.own)
        return root, solve_to(M, linear[..., None], tolerance)[..., 0]

    def given_sites(self, precision: RowLatents) -> tuple[Regression, WhitenedOperator]:
        """Each latent given its neighbours and sites, and the posterior precision with it."""
        own = posterior_regression(
            self.kernel, self.centres, self.root.neighbours, self.later, precision
        )
        return own, preconditioned(self.root, self.levels, own, precision)


class NeighbourSampler(SiteSampler):
    """Draws of g at the rows by perturbing and solving, to a relative residual of 1e-8."""

    centres: Inputs
    jitter: Scalar
    whitening: SparseWhitening  # the prior at the rows

    def draw(self, update: BlockUpdate) -> CoefficientDraw:
        """A draw as of any sampler; it finds no covariances, and `rows` has no effect."""
        sites, block, key, start, over_relaxation, _ = update
        there = np.isin(np.arange(sites.linear.shape[1]), np.asarray(block))
        _, M = self.whitening.given_sites(jnp.where(there, sites.precision, 0.0))
        noise = jnp.where(there[:, None], perturbed(M, key, 1), 0.0)
        # The mean and a deviation together: one solve, of (1 + a) l + sqrt(1 - a^2) z.
        fresh = float(np.sqrt(1 - over_relaxation**2))
        linear = jnp.where(there, sites.linear, 0.0)[..., None]
        right = (1 + over_relaxation) * linear + fresh * noise
        found = solve_to(M, right, _DRAW_TOLERANCE)[..., 0]
        return CoefficientDraw(found.T[jnp.asarray(block)] - over_relaxation * start, None)

    def white(self, coefficients: Float[Array, "Q *S M"]) -> Float[Array, "Q *S M"]:
        flat = coefficients.reshape(coefficients.shape[0], -1, coefficients.shape[-1])
        found = jax.lax.map(lambda g: self.whitening.white_of(g.T), jnp.moveaxis(flat, 1, 0))
        return jnp.moveaxis(found, 0, 1).reshape(coefficients.shape)


def preconditioned(
    root: SparseRoot, levels: tuple[Levels, ...], own: Regression, precision: Float[Array, "N Q *R"]
) -> WhitenedOperator:
    """The posterior precision with its preconditioner."""
    each = levels * (len(own.weights) // len(levels))
    variance = jnp.broadcast_to(root.law.variance.T, precision.shape[:2])
    factor = TriangularFactors.of(own.weights, each)
    return WhitenedOperator(root.factor, variance, precision, factor, jnp.sqrt(own.variance.T))
