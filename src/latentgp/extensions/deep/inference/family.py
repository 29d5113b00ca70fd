"""The variational family of a deep model: Gaussian weights and directions of every layer.

Weights have the prior N(0, I), and so have directions in units of their layer's length-scales, so
that the family is one whatever the hyper-parameters are (Cutajar et al. 2017, 3.2 and 3.3).
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.extensions.deep.inference.weights import (
    Factors,
    MatrixNormal,
    of_weights,
    standard_noise,
    total,
)
from latentgp.extensions.deep.models import DeepGP, LayerDraw, Layout, features_at, through_layers
from latentgp.extensions.deep.random_features import FeatureWeights, RandomFeatures
from latentgp.kernels import LatentKernel
from latentgp.kernels.directions import DirectionKind
from latentgp.typing import Array, HyperVector, RandomKey, Scalar

Frequencies = Literal["fixed", "variational", "resampled"]
Hidden = Literal["factorised", "matrix-normal"]

_HIDDEN_DEVIATION, _OF_HYPERPARAMETERS = 0.01, 0.05  # standard deviations at the start


class DeepParameters(NamedTuple):
    """All that gradients move."""

    vector: HyperVector  # hyper-parameters, unconstrained, or their posterior mean
    # logarithms of their standard deviations; None where they have one value
    spread: HyperVector | None
    # of the weights of each hidden layer, shapes (R, width)
    hidden: tuple[Factors | MatrixNormal, ...]
    # of the directions of each layer; None where they are fixed
    directions: tuple[Factors, ...] | None
    # of the weights of the last layer, shape (Q, R); None where natural parameters are
    last: Factors | None

    def kl(self) -> Scalar:
        """KL divergence of weights and directions from their prior, in nats."""
        parts = (*self.hidden, *(self.directions or ()), self.last)
        return total([part.kl() for part in parts if part is not None])


class Architecture(eqx.Module):
    """Fixed parts of a deep model's features."""

    layout: Layout  # between the layers
    features: tuple[FeatureWeights, ...]  # of each layer, with the directions that were drawn
    # "fixed" at what was drawn, "variational" with the draw's noise, or "resampled" at every step
    frequencies: Frequencies = eqx.field(static=True)

    @classmethod
    def of(
        cls,
        model: DeepGP,
        X: Float[np.ndarray, "N D"],
        number: int,
        kind: DirectionKind | None,
        frequencies: Frequencies,
        key: RandomKey,
    ) -> Architecture:
        """With directions drawn for a model of some rows' inputs."""
        layout = Layout.of(model, X)
        kernels: list[LatentKernel] = [layer.kernel for layer in model.layers]
        features, seen = [], zip([*kernels, model.kernel], model.columns(X.shape[1]), strict=True)
        for place, (kernel, columns) in enumerate(seen):
            origin = layout.middle(columns, place)
            kernel.check_inputs(columns)
            own = RandomFeatures(number, kind=kind)
            drawn = own.initialise(origin, None, kernel, jax.random.fold_in(key, place))
            features.append(drawn.centres)
        if len(features) > 2:  # layers with the same seeds are one program
            seeds = features[1].seeds
            alike = [dataclasses.replace(own, seeds=seeds) for own in features[1:-1]]
            features = [features[0], *alike, features[-1]]
        return cls(layout, tuple(features), frequencies)

    def start(
        self,
        model: DeepGP,
        vector: Any,
        key: RandomKey,
        *,
        natural: bool,
        factorised: bool = True,
        spread: bool = False,
    ) -> DeepParameters:
        """Means of hidden functions at their prior means; without any, at draws of the prior.

        The last layer may have natural parameters; hyper-parameters may have a posterior, a spread.
        """
        vector, hidden = jnp.asarray(vector), []
        for place, layer in enumerate(model.layers):
            shape = (len(self.features[place]), layer.width)
            mean = jnp.zeros(shape)
            if not model.skip:
                mean = jax.random.normal(jax.random.fold_in(key, place), shape)
            hidden.append(of_weights(mean, _HIDDEN_DEVIATION, factorised=factorised))
        directions = None
        if self.frequencies != "fixed":
            directions = tuple(
                Factors(*(jax.tree.map(jnp.zeros_like, f.directions) for _ in range(2)))
                for f in self.features
            )
        last = None
        if not natural:
            shape = (model.likelihood.latent_size, len(self.features[-1]))
            last = Factors(jnp.zeros(shape), jnp.zeros(shape))
        log = jnp.full_like(vector, np.log(_OF_HYPERPARAMETERS)) if spread else None
        return DeepParameters(vector, log, tuple(hidden), directions, last)

    def drawn(self, learned: DeepParameters, key: RandomKey) -> tuple[FeatureWeights, ...]:
        """Features of every layer: directions by the fixed noise, or by fresh noise."""
        if learned.directions is None:
            return self.features
        drawn, pairs = [], zip(self.features, learned.directions, strict=True)
        for place, (features, own) in enumerate(pairs):
            noise = features.directions
            if self.frequencies == "resampled":
                noise = standard_noise(jax.random.fold_in(key, place), noise)
            drawn.append(eqx.tree_at(lambda f: f.directions, features, own.drawn(noise)))
        return tuple(drawn)

    def under_last(
        self,
        model: DeepGP,
        learned: DeepParameters,
        features: tuple[FeatureWeights, ...],
        X: Float[Array, "B D"],
        key: RandomKey,
    ) -> Float[Array, "B E"]:
        """A draw of what the last layer sees at each row, each row's by noise of its own.

        The functions of a layer at a row are Gaussian given the layer below (Kingma, Salimans &
        Welling 2015, local reparameterisation): the bound is a sum over rows, and has less noise.
        """
        layout = self.layout

        def step(state: tuple[Array, Array], layer: Any) -> tuple[Array, Array]:
            below, seen = state
            kernel, features, own, skip, place = layer
            phi = features_at(kernel, features, seen)
            below = own.functions(phi, jax.random.fold_in(key, place)) + below @ skip
            return below, layout.seen(below, X)

        kernels = [layer.kernel for layer in model.layers]
        places = jnp.arange(len(kernels))
        parts = zip(kernels, features[:-1], learned.hidden, layout.skips, places, strict=True)
        return through_layers(step, (layout.standardised(X), X), tuple(parts))[1]

    def layers_drawn(
        self, learned: DeepParameters, key: RandomKey
    ) -> tuple[tuple[LayerDraw, ...], FeatureWeights]:
        """A draw of the hidden functions as functions, and the features of the last layer."""
        key_features, key_weights = jax.random.split(key)
        features = self.drawn(learned, key_features)
        return self.hidden_drawn(learned, features, key_weights), features[-1]

    def hidden_drawn(
        self, learned: DeepParameters, features: tuple[FeatureWeights, ...], key: RandomKey
    ) -> tuple[LayerDraw, ...]:
        """The hidden functions given features."""
        return tuple(
            LayerDraw(features[place], own.draw(jax.random.fold_in(key, place)))
            for place, own in enumerate(learned.hidden)
        )
