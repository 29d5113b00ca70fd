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
from jaxtyping import Float, Key

from latentgp.kernels import LatentKernel
from latentgp.kernels.directions import DirectionKind
from latentgp.models import DeepGP
from latentgp.representations.layers import (
    LayerDraw,
    Layout,
    drawn_features,
    features_at,
    through_layers,
)
from latentgp.representations.random_features import FeatureWeights, RandomFeatures
from latentgp.typing import Array

Frequencies = Literal["fixed", "variational", "resampled"]

_HIDDEN_DEVIATION = 0.01  # of weights at the start


class Factors(NamedTuple):
    """Independent Gaussians.

    Attributes:
        mean: a tree of arrays.
        log_deviation: the same of logarithms of standard deviations.
    """

    mean: Any
    log_deviation: Any

    def kl(self) -> Float[Array, ""]:
        """KL divergence from standard normal laws, in nats."""

        def of(mean: Array, log: Array) -> Array:
            return 0.5 * jnp.sum(jnp.exp(2 * log) + mean**2 - 1 - 2 * log)

        terms = jax.tree.leaves(jax.tree.map(of, self.mean, self.log_deviation))
        return sum(terms, jnp.zeros(()))

    def draw(self, key: Key[Array, ""]) -> Any:
        """One draw of each."""
        noise = standard_noise(key, self.mean)
        return jax.tree.map(
            lambda m, log, e: m + jnp.exp(log) * e, self.mean, self.log_deviation, noise
        )


def standard_noise(key: Key[Array, ""], like: Any) -> Any:
    """Standard normal noise in the shape of a tree."""
    leaves, structure = jax.tree.flatten(like)
    keys = jax.random.split(key, max(len(leaves), 1))
    noise = [
        jax.random.normal(own, leaf.shape, leaf.dtype)
        for own, leaf in zip(keys, leaves, strict=False)
    ]
    return jax.tree.unflatten(structure, noise)


class Learned(NamedTuple):
    """All that gradients move.

    Attributes:
        vector: hyper-parameters, unconstrained.
        hidden: of the weights of each hidden layer, shapes (R, W).
        directions: of the directions of each layer; None where they are fixed.
        last: of the weights of the last layer, shape (Q, R); None where natural parameters are.
    """

    vector: Float[Array, "P"]
    hidden: tuple[Factors, ...]
    directions: tuple[Factors, ...] | None
    last: Factors | None

    def kl(self) -> Float[Array, ""]:
        """KL divergence of all of it from the prior, in nats."""
        parts = (*self.hidden, *(self.directions or ()))
        if self.last is not None:
            parts = (*parts, self.last)
        return sum((part.kl() for part in parts), jnp.zeros(()))


class Architecture(eqx.Module):
    """What is fixed of a deep model's features.

    Attributes:
        layout: between the layers.
        features: of each layer, with the directions that were drawn.
        frequencies: "fixed" at what was drawn, "variational" with the draw's noise, or
            "resampled" at every step.
    """

    layout: Layout
    features: tuple[FeatureWeights, ...]
    frequencies: Frequencies = eqx.field(static=True)

    @classmethod
    def of(
        cls,
        model: DeepGP,
        X: Float[np.ndarray, "N D"],
        number: int,
        kind: DirectionKind | None,
        frequencies: Frequencies,
        key: Key[Array, ""],
    ) -> "Architecture":
        """With directions drawn for a model of some rows' inputs."""
        layout = Layout.of(model, X)
        kernels: list[LatentKernel] = [layer.kernel for layer in model.layers]
        features = []
        for place, (kernel, columns) in enumerate(
            zip([*kernels, model.kernel], model.columns(X.shape[1]), strict=True)
        ):
            origin = np.zeros((1, columns), X.dtype)
            kernel.check_inputs(columns)
            own = RandomFeatures(number, kind=kind)
            drawn = own.initialise(origin, None, kernel, jax.random.fold_in(key, place))
            features.append(drawn.centres)
        if len(features) > 2:  # layers with the same seeds are one program
            seeds = features[1].seeds
            alike = [dataclasses.replace(own, seeds=seeds) for own in features[1:-1]]
            features = [features[0], *alike, features[-1]]
        return cls(layout, tuple(features), frequencies)

    def start(self, model: DeepGP, vector: Any, key: Key[Array, ""], *, natural: bool) -> Learned:
        """Means of hidden functions at their prior means; without any, at draws of the prior."""
        hidden = []
        for place, layer in enumerate(model.layers):
            shape = (len(self.features[place]), layer.width)
            noise = jax.random.normal(jax.random.fold_in(key, place), shape)
            mean = jnp.zeros(shape) if model.skip else noise
            hidden.append(Factors(mean, jnp.full(shape, np.log(_HIDDEN_DEVIATION))))
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
        return Learned(jnp.asarray(vector), tuple(hidden), directions, last)

    def drawn(self, learned: Learned, key: Key[Array, ""]) -> tuple[FeatureWeights, ...]:
        """Features of every layer: directions by the fixed noise, or by fresh noise."""
        if learned.directions is None:
            return self.features
        drawn = []
        for place, (features, own) in enumerate(
            zip(self.features, learned.directions, strict=True)
        ):
            noise = features.directions
            if self.frequencies == "resampled":
                noise = standard_noise(jax.random.fold_in(key, place), noise)
            drawn.append(drawn_features(features, own.mean, own.log_deviation, noise))
        return tuple(drawn)

    def under_last(
        self,
        model: DeepGP,
        learned: Learned,
        features: tuple[FeatureWeights, ...],
        X: Float[Array, "B D"],
        key: Key[Array, ""],
    ) -> Float[Array, "B E"]:
        """A draw of what the last layer sees at each row, each row's by noise of its own.

        The functions of a layer at a row are Gaussian given the layer below (Kingma, Salimans &
        Welling 2015, local reparameterisation): the bound is a sum over rows, and has less noise.
        """
        layout = self.layout
        inputs = layout.standardised(X)

        def step(state: tuple[Array, Array], layer: Any) -> tuple[Array, Array]:
            below, seen = state
            kernel, features, own, skip, place = layer
            phi = features_at(kernel, features, seen)
            mean = phi @ own.mean + below @ skip
            variance = phi**2 @ jnp.exp(2 * own.log_deviation)
            noise = jax.random.normal(jax.random.fold_in(key, place), mean.shape, mean.dtype)
            below = mean + jnp.sqrt(variance) * noise
            return below, layout.seen(below, inputs)

        kernels = [layer.kernel for layer in model.layers]
        places = jnp.arange(len(kernels))
        parts = zip(kernels, features[:-1], learned.hidden, layout.skips, places, strict=True)
        return through_layers(step, (inputs, inputs), tuple(parts))[1]

    def layers_drawn(
        self, learned: Learned, key: Key[Array, ""]
    ) -> tuple[tuple[LayerDraw, ...], FeatureWeights]:
        """A draw of the hidden functions as functions, and the features of the last layer."""
        key_features, key_weights = jax.random.split(key)
        features = self.drawn(learned, key_features)
        draws = tuple(
            LayerDraw(features[place], own.draw(jax.random.fold_in(key_weights, place)))
            for place, own in enumerate(learned.hidden)
        )
        return draws, features[-1]
