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
from latentgp.posteriors.components import Components, Law, Spread, over_draws, taken
from latentgp.representations.layers import LastLayer, LayerDraw, Layout
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
        last: its weights, arrays with #S first.
        number: of draws S.
    """

    own_model: DeepGP
    layout: Layout
    hidden: tuple[LayerDraw, ...]
    features: FeatureWeights
    last: LastLayer
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
        return max(self.size * self.last.mean.shape[1], 2 * self.last.mean.shape[2])

    def marginals(self, X: Float[Array, "N D"]) -> tuple[Float[Array, "N K Q"], Spread]:
        found = self._of_draws(lambda last, blocks, _: last.marginals(blocks), X)
        mean, variance = (jnp.moveaxis(part, 0, 1) for part in found)
        return mean + self.own_model.mean(X)[:, None], variance

    def means(self, X: Float[Array, "N D"]) -> Float[Array, "N K Q"]:
        means = self._of_draws(lambda last, blocks, _: last.means(blocks), X)
        return jnp.moveaxis(means, 0, 1) + self.own_model.mean(X)[:, None]

    def joint(
        self, X: Float[np.ndarray, "N D"], key: Key[Array, ""], number: int
    ) -> tuple[Float[np.ndarray, "S N Q"], np.ndarray]:
        key_pick, key_f = jax.random.split(key)
        picked = self.pick(key_pick, number)
        hidden, features, last = taken((self.hidden, self.features, self.last), picked)
        drawn = DeepComponents(self.own_model, self.layout, hidden, features, last, number)
        return np.asarray(_joint(drawn, X, jax.random.split(key_f, number))), picked

    def functions(self, X: Float[Array, "N D"], keys: Key[Array, "S"]) -> Float[Array, "S N Q"]:
        """A joint draw of f at X given each of the draws."""
        drawn = self._of_draws(lambda last, blocks, key: last.draw(key, blocks), X, keys)
        return drawn + self.own_model.mean(X)

    def shifted(self, centre: float) -> "DeepComponents":
        mean = constant_first(centre, self.own_model.likelihood.latent_size)
        return eqx.tree_at(lambda d: d.own_model.mean, self, mean)

    def _of_draws(
        self, function: Callable[..., Any], X: Float[Array, "N D"], own: Any = None
    ) -> Any:
        """A function of each draw's last layer, its features at X, and something own."""
        model = self.own_model

        def one(draw: Any) -> Any:
            hidden, features, last, own = draw
            seen = self.layout.under_last(model, hidden, X)
            return function(last, features.cross_covariance(model.kernel, seen), own)

        own = jnp.zeros(self.number) if own is None else own
        return over_draws(one, (self.hidden, self.features, self.last, own))


@jax.jit
def _joint(
    drawn: DeepComponents, X: Float[Array, "N D"], keys: Key[Array, "S"]
) -> Float[Array, "S N Q"]:
    return drawn.functions(X, keys)
