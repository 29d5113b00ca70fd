"""Some more Gibbs sampling of a few rows that mix slowly, inside a sweep.

Where several rows may each be the outlier, their latents and auxiliary variables hold each other in
place. With the other rows' latents integrated out, a few rows cost next to nothing to sample again
and again: their latents given the other rows' sites are Gaussian with a small covariance.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentgp.extensions.chains.copies import Copies
from latentgp.numerics.cholesky import lower_cholesky
from latentgp.numerics.triangular import solve_lower
from latentgp.representations.latent_axis import vmap_latents
from latentgp.representations.samplers import CoefficientDraw
from latentgp.sites.augmentations import Augmentation
from latentgp.sites.gaussian import Block, GaussianSites, Rows
from latentgp.typing import Array, RandomKey, RowLatents

_ROUNDS = 10


def update_some_rows(
    augmentation: Augmentation,
    drawn: CoefficientDraw,
    sites: GaussianSites,
    f: RowLatents,
    offset: RowLatents,
    some: Int[Array, "slow"],
    block: Block,
    key: RandomKey,
) -> Float[Array, "functions N"]:
    """The zero-mean part of a block after ten rounds of Gibbs sampling of some rows.

    With V = cov(g, g_S) given the other rows' sites, the others' latents less V V_S^-1 g_S do not
    depend on g_S and its sites; so these may be drawn anew with the rest held. Exact for any
    fixed S.

    The block's g was drawn with the sites, its f is not updated yet; the augmentation is that of S.
    """
    columns = jnp.asarray(block)
    assert drawn.covariances is not None
    linear, precision = sites.linear[:, columns].T, sites.precision[:, columns].T
    before = drawn.coefficients[:, some]
    others = jnp.ones(len(f), f.dtype).at[some].set(0.0)

    def without(covariances, linear, precision):
        """V, V_S^-1 and the mean of g_S given the others' sites.

        With M = I - R C_S R, R^2 = W, for C = cov(g, g_S) given all sites: V = C + C R M^-1 R C_S,
        a sum of positive terms however precise the sites are; likewise the mean.
        """
        C, shrinkage = covariances
        root = jnp.sqrt(precision[some])
        mean = C.T @ (others * linear)
        lower = lower_cholesky(0.5 * (shrinkage + shrinkage.T))
        half = solve_lower(lower, root[:, None] * jnp.column_stack([C[some], mean]))
        back = root[:, None] * solve_lower(lower, half, transposed=True)
        cavity = C + C @ back[:, :-1]
        own = cavity[some]
        lower = lower_cholesky(0.5 * (own + own.T))
        half = solve_lower(lower, jnp.eye(len(own), dtype=own.dtype))
        return cavity, half.T @ half, mean + C[some] @ back[:, -1]

    cavity, inverse, mean = vmap_latents(without, drawn.covariances, linear, precision)

    def again(index: Int[Array, ""], g: Float[Array, "Q slow"]) -> Float[Array, "Q slow"]:
        key_w, key_g = jax.random.split(jax.random.fold_in(key, index))
        latents = f[some].at[:, columns].set(offset[some][:, columns] + g.T)
        w = augmentation.draw(latents, key_w, block)
        own = augmentation.conditional_sites(w, latents, block).about(offset[some])

        def draw(inverse, mean, linear, precision, noise):
            lower = lower_cholesky(inverse + jnp.diag(precision))
            half = solve_lower(lower, inverse @ mean + linear)
            return solve_lower(lower, half + noise, transposed=True)

        noise = jax.random.normal(key_g, g.shape, g.dtype)
        parts = own.linear[:, columns].T, own.precision[:, columns].T
        return vmap_latents(draw, inverse, mean, *parts, noise)

    change = jax.lax.fori_loop(0, _ROUNDS, again, before) - before
    known = cavity, inverse, change
    return drawn.coefficients + vmap_latents(lambda V, inverse, g: V @ (inverse @ g), *known)


def rows_at(copies: Copies, some: Int[Array, "slow"]) -> Rows:
    """The targets of some rows, each of which has one copy."""
    first = jnp.searchsorted(copies.origin, some)
    return jax.tree.map(lambda column: jnp.asarray(column)[first], copies.rows)


def slowest_rows(
    moments: Float[np.ndarray, "C 3 N Q"], sweeps: int, copies: Copies, number: int
) -> Int[np.ndarray, "slow"]:
    """Rows of one copy of the greatest autocorrelation, by sums of f, f^2 and f times f before."""
    first, second, lagged = np.moveaxis(moments / sweeps, 1, 0)
    centre = first.mean(axis=0)
    spread = (second - 2 * centre * first).mean(axis=0) + centre**2
    along = (lagged - 2 * centre * first).mean(axis=0) + centre**2
    correlation = np.max(along / np.maximum(spread, np.finfo(float).tiny), axis=-1)
    single = np.bincount(np.asarray(copies.origin), minlength=len(correlation)) == 1
    return np.sort(np.argsort(np.where(single, -correlation, np.inf), kind="stable")[:number])
