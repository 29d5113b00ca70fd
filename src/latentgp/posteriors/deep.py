"""Components of deep models: draws of the hidden functions, the last layer Gaussian given each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Key

from latentgp.means import constant_first
from latentgp.models import DeepGP, LatentGP
from latentgp.numerics.sums import sum_over_first
from latentgp.posteriors.components import Components, Law, Spread, over_draws, taken
from latentgp.representations.latent_axis import vmap_latents
from latentgp.representations.layers import LayerDraw, Layout
from latentgp.representations.random_features import FeatureWeights
from latentgp.typing import Array


class DeepComponents(Components):
    """Draws of the hidden functions of equal weight; f is Gaussian given each of them.

    Leaves of draws have S first, or 1 where all draws share them.

    Attributes:
        own_model: the model.
        layout: between its layers.
        hidden: draws of each hidden layer.
        features: of the last layer.
        mean: of its weights, shape (#S, Q, R).
        root: R with their covariance R' R, shape (#S, Q, R, R); their deviations, shape
            (#S, Q, R).
        number: of draws S.
    """

    own_model: DeepGP
    layout: Layout
    hidden: tuple[LayerDraw, ...]
    features: FeatureWeights
    mean: Float[Array, "#S Q R"]
    root: Float[Array, "#S Q R *R"]
    number: int = eqx.field(static=True)

    @property
    def size(self) -> int:
        return self.number

    @property
    def model(self) -> LatentGP:
        return self.own_model

    @property
    def law(self) -> Law:
        log_weights = np.full(self.size, -np.log(self.size))
        return Law(self.own_model.likelihood, log_weights, own=False, by_quadrature=False)

    @property
    def inputs(self) -> int:
        return self.layout.centre.shape[0]

    @property
    def units(self) -> Float[Array, "D"]:
        return self.layout.spread

    @property
    def columns(self) -> int:
        return max(self.size * self.mean.shape[1], 2 * self.mean.shape[2])

    def marginals(self, X: Float[Array, "N D"]) -> tuple[Float[Array, "N K Q"], Spread]:
        def of(block: Array, mean: Array, root: Array) -> tuple[Array, Array]:
            half = root[:, None] * block if root.ndim == 1 else root @ block
            return mean @ block, sum_over_first(half**2)

        def one(draw: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            blocks, mean, root = draw
            means, variances = vmap_latents(of, blocks, mean, root)
            return means.T + self.own_model.mean(X), variances.T

        return self._of_draws(one, X)

    def means(self, X: Float[Array, "N D"]) -> Float[Array, "N K Q"]:
        def one(draw: tuple[Array, Array, Array]) -> Array:
            blocks, mean, _ = draw
            means = vmap_latents(lambda block, mean: mean @ block, blocks, mean)
            return means.T + self.own_model.mean(X)

        return self._of_draws(one, X)

    def joint(
        self, X: Float[np.ndarray, "N D"], key: Key[Array, ""], number: int
    ) -> tuple[Float[np.ndarray, "S N Q"], np.ndarray]:
        key_pick, key_f = jax.random.split(key)
        picked = self.pick(key_pick, number)
        parts = self.hidden, self.features, self.mean, self.root
        hidden, features, mean, root = taken(parts, picked)
        drawn = DeepComponents(self.own_model, self.layout, hidden, features, mean, root, number)
        return np.asarray(_joint(drawn, X, jax.random.split(key_f, number))), picked

    def functions(self, X: Float[Array, "N D"], keys: Key[Array, "S"]) -> Float[Array, "S N Q"]:
        """A joint draw of f at X given each of the draws."""
        shape = self.mean.shape[1:]

        def of(block: Array, mean: Array, root: Array, noise: Array) -> Array:
            return (mean + (noise * root if root.ndim == 1 else noise @ root)) @ block

        def one(draw: tuple[tuple[Array, Array, Array], Key[Array, ""]]) -> Array:
            (blocks, mean, root), key = draw
            noise = jax.random.normal(key, shape, mean.dtype)
            values = vmap_latents(of, blocks, mean, root, noise)
            return values.T + self.own_model.mean(X)

        return self._mapped(one, X, keys)

    def shifted(self, centre: float) -> "DeepComponents":
        mean = constant_first(centre, self.own_model.likelihood.latent_size)
        return eqx.tree_at(lambda d: d.own_model.mean, self, mean)

    def _of_draws(self, function: Callable[[Any], Any], X: Float[Array, "N D"]) -> Any:
        found = self._mapped(lambda draw: function(draw[0]), X, jnp.zeros(self.number))
        return jax.tree.map(lambda a: jnp.moveaxis(a, 0, 1), found)

    def _mapped(self, function: Callable[[Any], Any], X: Float[Array, "N D"], own: Array) -> Any:
        """A function of each draw's features of the last layer at X, and of something own."""
        model = self.own_model

        def one(draw: Any) -> Any:
            hidden, features, mean, root, own = draw
            seen = self.layout.under_last(model, hidden, X)
            blocks = features.cross_covariance(model.kernel, seen)
            return function(((blocks, mean, root), own))

        parts = (self.hidden, self.features, self.mean, self.root, own)
        return over_draws(one, parts)


@jax.jit
def _joint(
    drawn: DeepComponents, X: Float[Array, "N D"], keys: Key[Array, "S"]
) -> Float[Array, "S N Q"]:
    return drawn.functions(X, keys)
