"""Draws of latents at the rows, of which a new input sees those at the nearest."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Float, Key

from latentgp.extensions.neighbours.conditionals import errors_by
from latentgp.extensions.neighbours.near import NearRows, weighted_rows
from latentgp.extensions.neighbours.posterior import with_diagonals
from latentgp.models import LatentGP
from latentgp.modules import stored
from latentgp.numerics.cholesky import jittered_lower
from latentgp.posteriors.components import Spread, over_draws
from latentgp.posteriors.draws_at_rows import DrawsAtRows
from latentgp.representations.latent_axis import latent_diagonals, vmap_latents
from latentgp.typing import Array, Inputs, RandomKey, RowLatents


@stored
class NearDraws(DrawsAtRows):
    """Draws of g at the rows, in O(S N) memory.

    A latent elsewhere is conditioned on those at the nearest rows, the nearest by the mean model.
    """

    rows: NearRows  # that there are
    g: Float[Array, "S N Q"]  # f at the rows less the prior mean

    @property
    def inputs(self) -> int:
        return self.rows.X.shape[1]

    @property
    def columns(self) -> int:
        return max(self.size * self.g.shape[2], (self.rows.number + 1) ** 2, len(self.rows.X))

    def marginals(self, X: Inputs) -> tuple[Float[Array, "N K Q"], Spread]:
        near = self.rows.near(self.mean_model.kernel, X)
        latents = self.g.shape[2]

        def given(model: LatentGP, g: Float[Array, "S N Q"]) -> tuple[Array, Array]:
            weights, left = self.rows.latents_given(model.kernel, near, X)
            means = weighted_rows(weights, near, jnp.moveaxis(jnp.asarray(g), 0, 2))
            offset = jnp.broadcast_to(model.mean(X), (X.shape[0], latents))
            variance = jnp.broadcast_to(left, (latents, X.shape[0])).T
            return jnp.moveaxis(means, 0, 2) + offset[:, None], variance[:, None]

        if not self.own:
            return given(self.models, self.g)

        def one(draw: tuple[LatentGP, Array]) -> tuple[Array, Array]:
            means, variance = given(draw[0], draw[1][None])
            return means[:, 0], variance[:, 0]

        means, variances = over_draws(one, (self.models, self.g))
        return jnp.moveaxis(means, 0, 1), jnp.moveaxis(variances, 0, 1)

    def drawn(self, X: Inputs, keys: Key[Array, "S"]) -> Float[Array, "S N Q"]:
        """A joint draw at X for each of the draws."""
        near = self.rows.near(self.mean_model.kernel, X)

        def law(model: LatentGP) -> tuple[Array, Array]:
            """Weights, and the root of what these leave."""
            weights, left = self.rows.latents_given(model.kernel, near, X)
            errors = self.rows.errors_together(model.kernel, near, errors_by(weights), X)
            scales = jnp.mean(latent_diagonals(model.kernel, X), axis=1)
            return weights, vmap_latents(jittered_lower, with_diagonals(errors, left), scales)

        def one(
            model: LatentGP, known: tuple[Array, Array], g: Array, key: RandomKey
        ) -> RowLatents:
            weights, root = known
            mean = weighted_rows(weights, near, g[..., None])[..., 0].T + model.mean(X)
            noise = jax.random.normal(key, mean.T.shape, mean.dtype)
            return mean + vmap_latents(jnp.matmul, root, noise).T

        if not self.own:
            known = law(self.models)
            return jax.lax.map(lambda draw: one(self.models, known, *draw), (self.g, keys))
        each = self.models, self.g, keys
        return over_draws(lambda draw: one(draw[0], law(draw[0]), *draw[1:]), each)
