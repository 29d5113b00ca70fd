"""Draws of latents at the rows, on all of which a representation conditions those elsewhere."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Key

from latentgp.models import LatentGP
from latentgp.modules import stored
from latentgp.posteriors.components import Draws, Spread, over_draws
from latentgp.posteriors.draws_at_rows import DrawsAtRows, at_rows
from latentgp.representations import LatentPosterior, Representation
from latentgp.representations.latent_axis import latent_diagonals
from latentgp.sites.gaussian import GaussianSites
from latentgp.typing import Array, Inputs, RandomKey, RowLatents

_CLOSE = 1e-10  # variance, over the prior's, that latents at the rows are known to


@stored
class ConditionedDraws(DrawsAtRows):
    """Draws of g at the rows; a latent elsewhere is conditioned on all of them in O(N)."""

    representation: Representation  # conditions them, as on sites of great precision
    X: Inputs  # inputs of the rows
    g: Float[Array, "S N Q"]  # f at the rows less the prior mean

    @classmethod
    def of(cls, draws: Draws, representation: Representation) -> "ConditionedDraws":
        """Draws of white coefficients of the rows, which the representation makes g of there."""
        X, g = np.asarray(draws.centres), np.asarray(at_rows(draws, representation))
        shared = draws.mean_model, draws.models, draws.own
        return cls(*shared, representation=representation, X=X, g=g)

    @property
    def inputs(self) -> int:
        return self.X.shape[1]

    @property
    def columns(self) -> int:
        return max(self.size * self.g.shape[2], len(self.X))

    def marginals(self, X: Inputs) -> tuple[Float[Array, "N K Q"], Spread]:
        def one(draw: tuple[LatentGP, Array]) -> tuple[Array, Array]:
            mean, variance = self._posterior(*draw).marginals(X)
            return mean + draw[0].mean(X), variance

        means, variances = over_draws(one, self._each)
        return jnp.moveaxis(means, 0, 1), jnp.moveaxis(variances, 0, 1)

    def drawn(self, X: Inputs, keys: Key[Array, "S"]) -> Float[Array, "S N Q"]:
        """A joint draw at X for each of the draws."""

        def one(draw: tuple[LatentGP, Array, RandomKey]) -> RowLatents:
            model, g, key = draw
            return self._posterior(model, g).draws(key, X, 1)[0] + model.mean(X)

        return over_draws(one, (*self._each, keys))

    @property
    def _each(self) -> tuple[LatentGP, Array]:
        models = self.models if self.own else jax.tree.map(lambda a: a[None], self.models)
        return models, self.g

    def _posterior(self, model: LatentGP, g: RowLatents) -> LatentPosterior:
        prior = jnp.broadcast_to(latent_diagonals(model.kernel, self.X).T, g.shape)
        precision = 1 / (_CLOSE * jnp.maximum(prior, jnp.mean(prior)))
        sites = GaussianSites(precision * g, precision, jnp.zeros(len(g), g.dtype))
        return self.representation.condition(model.kernel, self.X, sites)
