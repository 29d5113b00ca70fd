"""Layers of functions through random features: what a deep model's last layer sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.models import DeepGP
from latentgp.representations.random_features import FeatureWeights
from latentgp.typing import Array


class LayerDraw(eqx.Module):
    """A draw of the functions of a hidden layer, phi(h)' w.

    Attributes:
        features: of the layer's kernel.
        weights: shape (R, W).
    """

    features: FeatureWeights
    weights: Float[Array, "R W"]


class Layout(eqx.Module):
    """What is fixed between the layers of a deep model.

    Attributes:
        centre: of the inputs, shape (D,).
        spread: standard deviations of the inputs, shape (D,).
        skips: maps from the functions of the layer below to the mean of each hidden layer, shape
            (V, W); zero without skips.
        feed_inputs: whether every layer sees the inputs.
    """

    centre: Float[Array, "D"]
    spread: Float[Array, "D"]
    skips: tuple[Float[Array, "_ _"], ...]
    feed_inputs: bool = eqx.field(static=True)

    @classmethod
    def of(cls, model: DeepGP, X: Float[np.ndarray, "N D"]) -> "Layout":
        """For the rows' inputs, or some of them."""
        centre, spread = np.mean(X, axis=0), np.std(X, axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        below, skips = X.shape[1], []
        for place, layer in enumerate(model.layers):
            skip = np.eye(below, layer.width)
            if place == 0 and below > layer.width:
                skip = np.linalg.svd((X - centre) / spread, full_matrices=False)[2].T
                skip = skip[:, : layer.width]
            skips.append(np.asarray(skip * model.skip, X.dtype))
            below = layer.width
        return cls(centre, spread, tuple(skips), model.feed_inputs)

    def standardised(self, X: Float[Array, "N D"]) -> Float[Array, "N D"]:
        """Inputs in standard deviations, about their mean."""
        return (X - self.centre) / self.spread

    def seen(self, functions: Float[Array, "N W"], inputs: Float[Array, "N D"]) -> Array:
        """What the layer above sees of a layer's functions and the standardised inputs."""
        return jnp.concatenate([functions, inputs], axis=1) if self.feed_inputs else functions

    def under_last(
        self, model: DeepGP, draws: Sequence[LayerDraw], X: Float[Array, "N D"]
    ) -> Float[Array, "N E"]:
        """What the last layer sees, given draws of the hidden ones."""
        inputs = self.standardised(X)
        below = seen = inputs
        for layer, draw, skip in zip(model.layers, draws, self.skips, strict=True):
            features = features_at(layer.kernel, draw.features, seen)
            below = features @ draw.weights + below @ skip
            seen = self.seen(below, inputs)
        return seen


def features_at(kernel: Any, features: FeatureWeights, seen: Float[Array, "N E"]) -> Array:
    """Features that all functions of a layer share, shape (N, R)."""
    return features.cross_covariance(kernel, seen)[0].T


def drawn_features(
    features: FeatureWeights, mean: Any, log_spread: Any, noise: Any
) -> FeatureWeights:
    """Features whose directions are Gaussian, given standard normal noise in their places."""
    directions = jax.tree.map(lambda m, s, e: m + jnp.exp(s) * e, mean, log_spread, noise)
    return eqx.tree_at(lambda f: f.directions, features, directions)
