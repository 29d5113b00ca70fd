"""Draws of latents at the rows, on all of which a representation conditions those elsewhere."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Key

from latentgp.models import LatentGP
from latentgp.posteriors.components import DrawnComponents, Draws, Spread, over_draws, taken
from latentgp.posteriors.near_draws import at_rows
from latentgp.representations import LatentPosterior, Representation
from latentgp.representations.latent_axis import latent_diagonals
from latentgp.sites.gaussian import GaussianSites
from latentgp.typing import Array

_CLOSE = 1e-10  # variance, over the prior's, that latents at the rows are known to


class ConditionedDraws(DrawnComponents):
    """Draws of g at the rows; a latent elsewhere is conditioned on all of them in O(N).

    Attributes:
        representation: conditions them, as on sites of great precision.
        X: inputs of the rows, shape (N, D).
        g: f at the rows less the prior mean, shape (S, N, Q).
    """

    representation: Representation
    X: Float[Array, "N D"]
    g: Float[Array, "S N Q"]

    @property
    def size(self) -> int:
        return len(self.g)

    @property
    def inputs(self) -> int:
        return self.X.shape[1]

    @property
    def columns(self) -> int:
        return max(self.size * self.g.shape[2], len(self.X))

    def marginals(self, X: Float[Array, "N D"]) -> tuple[Float[Array, "N K Q"], Spread]:
        def one(draw: tuple[LatentGP, Array]) -> tuple[Array, Array]:
            mean, variance = self._posterior(*draw).marginals(X)
            return mean + draw[0].mean(X), variance

        means, variances = over_draws(one, self._each)
        return jnp.moveaxis(means, 0, 1), jnp.moveaxis(variances, 0, 1)

    def joint(
        self, X: Float[np.ndarray, "N D"], key: Key[Array, ""], number: int
    ) -> tuple[Float[np.ndarray, "S N Q"], np.ndarray]:
        key_pick, key_f = jax.random.split(key)
        picked = self.pick(key_pick, number)
        chosen = self.of_draws(picked, taken(self.models, picked) if self.own else self.models)
        return np.asarray(_joint(chosen, X, jax.random.split(key_f, number))), picked

    def of_draws(self, kept: Int[np.ndarray, "K"], models: LatentGP) -> "ConditionedDraws":
        known = self.representation, self.X, self.g[kept]
        return ConditionedDraws(self.mean_model, models, self.own, *known)

    def drawn(self, X: Float[Array, "N D"], keys: Key[Array, "S"]) -> Float[Array, "S N Q"]:
        """A joint draw at X for each of the draws."""

        def one(draw: tuple[LatentGP, Array, Key[Array, ""]]) -> Float[Array, "N Q"]:
            model, g, key = draw
            return self._posterior(model, g).draws(key, X, 1)[0] + model.mean(X)

        return over_draws(one, (*self._each, keys))

    @property
    def _each(self) -> tuple[LatentGP, Array]:
        models = self.models if self.own else jax.tree.map(lambda a: a[None], self.models)
        return models, self.g

    def _posterior(self, model: LatentGP, g: Float[Array, "N Q"]) -> LatentPosterior:
        prior = jnp.broadcast_to(latent_diagonals(model.kernel, self.X).T, g.shape)
        precision = 1 / (_CLOSE * jnp.maximum(prior, jnp.mean(prior)))
        sites = GaussianSites(precision * g, precision, jnp.zeros(len(g), g.dtype))
        return self.representation.condition(model.kernel, self.X, sites)


def conditioned_draws(draws: Draws, representation: Representation) -> ConditionedDraws:
    """Draws of white coefficients of the rows as draws of g there.

    Args:
        draws: of white coefficients of the rows.
        representation: gives g by the coefficients, and conditions on it.
    """
    g = np.asarray(at_rows(draws, representation))
    centres = np.asarray(draws.centres)
    return ConditionedDraws(draws.mean_model, draws.models, draws.own, representation, centres, g)


@jax.jit
def _joint(
    draws: ConditionedDraws, X: Float[Array, "N D"], keys: Key[Array, "S"]
) -> Float[Array, "S N Q"]:
    return draws.drawn(X, keys)
