"""Components of deep models: draws of the hidden functions, the last layer Gaussian given each."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Key, UInt32

from latentgp.extensions.deep.models import DeepGP, LastLayer, LayerDraw, Layout, WeightsAt
from latentgp.extensions.deep.random_features import FeatureWeights
from latentgp.likelihoods.base import Marginals
from latentgp.models import LatentGP
from latentgp.modules import stored
from latentgp.numerics.cholesky import jittered_cholesky
from latentgp.posteriors.components import DrawnComponents, Spread, over_draws, taken
from latentgp.representations.base import LatentPosterior
from latentgp.representations.dense import Dense, DensePosterior
from latentgp.representations.latent_axis import block_means, latent_grams
from latentgp.representations.prior_paths import prior_paths
from latentgp.sites.gaussian import GaussianSites
from latentgp.typing import Array, Inputs, RandomKey, RowLatents

PATH_FEATURES = 1024


class LayeredComponents(DrawnComponents):
    """Draws of the hidden functions of equal weight; f is Gaussian given each of them.

    Leaves of draws have S first, or 1 where all draws share them.
    """

    layout: Layout  # between the layers

    @property
    @abstractmethod
    def parts(self) -> tuple[Any, ...]:
        """Arrays of a draw."""

    @abstractmethod
    def with_parts(self, parts: tuple[Any, ...], models: LatentGP, number: int) -> Any:
        """The components of so many other draws."""

    @abstractmethod
    def last_at(self, model: Any, parts: Any, X: Inputs) -> Any:
        """The last layer at X given a draw, less its prior mean: `means`, `marginals`, `draw`."""

    @property
    def inputs(self) -> int:
        return self.layout.centre.shape[0]

    @property
    def units(self) -> Float[Array, "D"]:
        return self.layout.spread

    def marginals(self, X: Inputs) -> tuple[Float[Array, "N K Q"], Spread]:
        found = self._of_draws(X, lambda last, _: tuple(last.marginals()))
        mean, variance = (jnp.moveaxis(part, 0, 1) for part in found)
        return mean + self._prior_means(X), variance

    def means(self, X: Inputs) -> Float[Array, "N K Q"]:
        means = self._of_draws(X, lambda last, _: last.means())
        return jnp.moveaxis(means, 0, 1) + self._prior_means(X)

    def drawn(self, X: Inputs, keys: Key[Array, "S"]) -> Float[Array, "S N Q"]:
        drawn = self._of_draws(X, lambda last, key: last.draw(key), keys)
        return drawn + jnp.moveaxis(self._prior_means(X), 1, 0)

    def of_draws(self, kept: Int[np.ndarray, "kept"], models: LatentGP) -> Any:
        return self.with_parts(taken(self.parts, kept), models, len(kept))

    def _prior_means(self, X: Inputs) -> Float[Array, "N #K #Q"]:
        if not self.own:
            return self.models.mean(X)[:, None]
        return jnp.moveaxis(jax.vmap(lambda model: model.mean(X))(self.models), 0, 1)

    def _of_draws(self, X: Inputs, function: Any, keys: Any = None) -> Any:
        """A function of each draw's last layer at X, and of its key."""

        def one(draw: Any) -> Any:
            own, parts, key = draw
            return function(self.last_at(own if self.own else self.models, parts, X), key)

        keys = jnp.zeros(self.size) if keys is None else keys
        return over_draws(one, (self.models if self.own else None, self.parts, keys))


@stored
class DeepComponents(LayeredComponents):
    """Draws of the weights of hidden layers of random features."""

    hidden: tuple[LayerDraw, ...]  # draws of each hidden layer
    features: FeatureWeights  # of the last layer
    last: LastLayer  # its weights, arrays with #S first
    number: int = eqx.field(static=True)  # of draws S

    @property
    def size(self) -> int:
        return self.number

    @property
    def columns(self) -> int:
        return max(self.size * self.last.mean.shape[1], 2 * self.last.mean.shape[2])

    @property
    def parts(self) -> tuple[Any, ...]:
        return self.hidden, self.features, self.last

    def with_parts(self, parts: tuple[Any, ...], models: LatentGP, number: int) -> DeepComponents:
        hidden, features, last = parts
        return dataclasses.replace(
            self, models=models, hidden=hidden, features=features, last=last, number=number
        )

    def last_at(self, model: Any, parts: Any, X: Inputs) -> WeightsAt:
        hidden, features, last = parts
        seen = self.layout.under_last(model, hidden, X)
        return WeightsAt(last, features.cross_covariance(model.kernel, seen))


class ProcessLayers(eqx.Module):
    """Both layers of a deep model at its rows, Gaussian noise on top."""

    layout: Layout  # between the layers
    X: Inputs  # inputs of the rows
    sites: GaussianSites  # of the rows, as functions of g = f - prior mean

    def hidden_mean(self, X: Float[Array, "B D"]) -> Float[Array, "B width"]:
        """Prior mean of the hidden functions."""
        return self.layout.standardised(X) @ self.layout.skips[0]

    def last_given(self, model: DeepGP, hidden: Float[Array, "N width"]) -> DensePosterior:
        """Posterior of g in what the last layer sees, given the hidden functions at the rows."""
        seen = self.layout.seen(hidden, self.X)
        return cast(DensePosterior, Dense().condition(model.kernel, seen, self.sites))

    def hidden_elsewhere(
        self, model: DeepGP, hidden: Float[Array, "N width"], key: RandomKey, X: Float[Array, "B D"]
    ) -> Float[Array, "B width"]:
        """A draw of the hidden functions given those at the rows, the same function for one key.

        A draw of the prior plus an update by what it misses at the rows (Matheron's rule; Wilson
        et al. 2020, eq. 13).
        """
        kernel = model.layers[0].kernel
        sizes = {"inputs": self.X.shape[1], "latents": hidden.shape[1]}
        path = prior_paths(kernel, key, **sizes, features=PATH_FEATURES, number=1)
        inverse = jittered_cholesky(latent_grams(kernel, self.X)[0]).factor.inverse
        missed = hidden - self.hidden_mean(self.X) - path(self.X)[0]
        update = inverse.T @ (inverse @ missed)
        of_rows = block_means(latent_grams(kernel, self.X, X), update.T)
        return self.hidden_mean(X) + path(X)[0] + of_rows


@stored
class ProcessComponents(LayeredComponents):
    """Draws of the hidden functions of two layers of processes at the rows."""

    X: Inputs  # inputs of the rows
    sites: GaussianSites  # of the rows, as functions of g = f - prior mean
    hidden: Float[Array, "S N width"]  # functions at the rows
    keys: UInt32[Array, "S words"]  # data of the random keys by which they go on elsewhere

    @property
    def size(self) -> int:
        return len(self.hidden)

    @property
    def columns(self) -> int:
        return max(self.size, self.hidden.shape[1])

    @property
    def parts(self) -> tuple[Any, ...]:
        return self.hidden, self.keys

    def with_parts(
        self, parts: tuple[Any, ...], models: LatentGP, number: int
    ) -> ProcessComponents:
        return dataclasses.replace(self, models=models, hidden=parts[0], keys=parts[1])

    def last_at(self, model: DeepGP, parts: Any, X: Inputs) -> ProcessAt:
        hidden, data = parts
        layers = ProcessLayers(self.layout, self.X, self.sites)
        elsewhere = layers.hidden_elsewhere(model, hidden, jax.random.wrap_key_data(data), X)
        return ProcessAt(layers.last_given(model, hidden), self.layout.seen(elsewhere, X))


class ProcessAt(NamedTuple):
    """The last process at what it sees of some inputs."""

    posterior: LatentPosterior
    seen: Float[Array, "N E"]

    def means(self) -> RowLatents:
        """Means of the latent functions."""
        return self.posterior.mean(self.seen)

    def marginals(self) -> Marginals:
        """Means and variances."""
        return Marginals(*self.posterior.marginals(self.seen))

    def draw(self, key: RandomKey) -> RowLatents:
        """A joint draw."""
        return self.posterior.draws(key, self.seen, 1)[0]
