"""Fisher information of hyper-parameters, the metric of manifold moves.

Of the Gaussian law N(m, C) of targets or of their stand-ins, C = A'A + 1 / W,

    I_ij = m_i' C^-1 m_j + tr(C^-1 C_i C^-1 C_j) / 2,

where an index is a derivative. With P = I + A W A', V = I - P^-1 = A C^-1 A',
D_i = C^-1 A_i' and T_i = A D_i = P^-1 A W A_i', the trace is 2 tr(T_i T_j) + 2 tr(V A_i D_j):
no matrix of N rows and columns is made, and W can be zero.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from latentgp.extensions.chains.coordinates import ModelAtRows
from latentgp.extensions.chains.target import WhiteTarget
from latentgp.numerics.cholesky import lower_cholesky
from latentgp.numerics.triangular import solve_lower
from latentgp.representations.latent_axis import vmap_latents
from latentgp.representations.whitening import DenseWhitening
from latentgp.site_inference.search.algorithm import prior_mean
from latentgp.typing import Array, Coefs, HyperMatrix, HyperVector, RowLatents


class Information(NamedTuple):
    """Fisher information of a law about hyper-parameters."""

    # expected Fisher information and the negative second derivatives of the prior, in unconstrained
    # hyper-parameters
    matrix: HyperMatrix
    known: Bool[np.ndarray, "H"]  # which entries the law depends on; not those of the likelihood


def with_prior(target: WhiteTarget, vector: HyperVector, fisher: HyperMatrix) -> Information:
    """With the negative second derivatives of the log prior, where these are positive."""
    bends = -jnp.diagonal(jax.hessian(target.space.log_prior)(vector))
    labels = [label for label, _ in target.space.entries()]
    known = np.array([not label.startswith("likelihood") for label in labels])
    return Information(fisher + jnp.diag(jnp.maximum(bends, 0.0)), known)


def information_of_targets(
    target: WhiteTarget, vector: HyperVector, precision: RowLatents
) -> HyperMatrix:
    """That of Gaussian targets of given precisions about f (Girolami & Calderhead 2011, eq. 33)."""
    (features, _), slopes = _slopes(target, vector)

    def halves(features, precision, slopes, mean_slopes):
        root = lower_cholesky(jnp.eye(len(features)) + (features * precision) @ features.T)

        def solved(right: Array) -> Array:
            return solve_lower(root, solve_lower(root, right), transposed=True)

        weighted = features * precision
        explained = jnp.eye(len(features)) - solved(jnp.eye(len(features)))
        T = jax.lax.map(lambda slope: solved(weighted @ slope.T), slopes)
        D = precision[:, None] * jnp.swapaxes(slopes, 1, 2) - weighted.T @ T
        trace = jnp.einsum("iab,jba->ij", T, T)
        trace = trace + jnp.einsum("ian,jna->ij", explained @ slopes, D)
        scaled = mean_slopes @ weighted.T
        of_mean = (mean_slopes * precision) @ mean_slopes.T - scaled @ solved(scaled.T)
        return trace + of_mean

    by_latent = jnp.swapaxes(slopes[0], 0, 1), jnp.moveaxis(slopes[1], 2, 0)
    return jnp.sum(vmap_latents(halves, features, precision.T, *by_latent), axis=0)


def information_of_latents(target: WhiteTarget, vector: HyperVector) -> HyperMatrix:
    """That of f itself at the rows, one coefficient a row."""
    (features, _), slopes = _slopes(target, vector)

    def halves(features, slopes, mean_slopes):
        lower = features.T
        S = jax.lax.map(lambda slope: solve_lower(lower, slope.T), slopes)
        relative = S + jnp.swapaxes(S, 1, 2)
        scaled = solve_lower(lower, mean_slopes.T)
        return 0.5 * jnp.einsum("iab,jab->ij", relative, relative) + scaled.T @ scaled

    by_latent = jnp.swapaxes(slopes[0], 0, 1), jnp.moveaxis(slopes[1], 2, 0)
    return jnp.sum(vmap_latents(halves, features, *by_latent), axis=0)


def information_of_map(target: WhiteTarget, vector: HyperVector, white: Coefs) -> HyperMatrix:
    """That of the targets about f = m + A'v with v held: J' W J, J the derivative of f.

    W is the likelihood's curvature at f (Filippone, Zhong & Girolami 2013, A.2), its expected
    one for likelihoods of a natural parameter.
    """
    (features, offset), slopes = _slopes(target, vector)
    moved = jax.vmap(lambda slope: vmap_latents(lambda a, v: v @ a, slope, white).T)(slopes[0])
    derivative = moved + slopes[1]
    model = target.space.to_model(vector)
    f = offset + vmap_latents(lambda a, v: v @ a, features, white).T
    _, precision = ModelAtRows.of(target, model).sites(f)
    return jnp.einsum("inq,nq,jnq->ij", derivative, precision, derivative)


def _slopes(
    target: WhiteTarget, vector: HyperVector
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """A and m, shapes (#Q, M, N) and (N, Q), and their derivatives, a first axis H more."""

    def parts(vector: Array) -> tuple[Array, Array]:
        model = target.space.to_model(vector)
        whitening = target.whitening(model)
        assert isinstance(whitening, DenseWhitening)
        return whitening.features, prior_mean(model, target.data)

    values, along = jax.linearize(parts, vector)
    return values, jax.lax.map(along, jnp.eye(len(vector), dtype=vector.dtype))
