"""Deep models: hidden layers of latent functions, through random features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.errors import check_kinds, check_whole, refuse
from latentgp.extensions.deep.random_features import FeatureWeights
from latentgp.kernels import Kernel, LatentKernel
from latentgp.likelihoods.base import Marginals
from latentgp.models import LatentGP
from latentgp.modules import Module, stored
from latentgp.numerics.cholesky import jittered_lower
from latentgp.numerics.sums import sum_over_first
from latentgp.representations.latent_axis import latent_grams, vmap_latents
from latentgp.typing import Array, Inputs, RandomKey, RowLatents


class Layer(Module):
    """A hidden layer of a deep Gaussian process: latent functions that feed the next layer.

    Args:
        kernel: shared by the functions of the layer; its inputs are those of the layer below, in
            units of these, of the first layer those of the model. With `feed_inputs` the inputs of
            the model come after them.
        width: number of functions.

    Raises:
        InputError: no kernel, or a width below one.

    Example:
        >>> from latentgp import RBF
        >>> Layer(RBF(), width=3).width
        3
    """

    kernel: Kernel
    width: int = eqx.field(static=True, default=3)

    def __check_init__(self) -> None:
        words = "a kernel such as RBF(), shared by the layer's functions"
        check_kinds(self, kernel=(Kernel, words))
        check_whole(self, width=1)


def _as_layers(layers: Any) -> tuple[Any, ...]:
    return tuple(layers) if isinstance(layers, Sequence) else (layers,)


class DeepGP(LatentGP):
    """Gaussian processes of Gaussian processes (Damianou & Lawrence 2013): y given f(h(x)).

    The functions of every hidden layer are independent draws of its kernel's process, at what the
    layer below gives; those of the last one, of `kernel`, are the latent functions of the
    likelihood. Length-scales of inputs are in the units of the inputs, wherever a layer sees them.
    Hidden functions are in standard deviations of the inputs, which a fit finds.

    Args:
        kernel: of the last layer.
        likelihood: sets the number of latent functions.
        mean: prior mean of these, a function of the inputs.
        layers: the hidden layers, that of the inputs first.
        feed_inputs: whether every layer sees the inputs of the model too (Duvenaud et al. 2014).
        skip: whether hidden functions have the mean of the layer below, or of the inputs' first
            principal components (Salimbeni & Deisenroth 2017, 3.1), instead of zero.

    Raises:
        InputError: what is no `Layer`.

    Example:
        >>> from latentgp import RBF, Gaussian
        >>> model = DeepGP(RBF(), Gaussian(), layers=[Layer(RBF(), width=2)])
        >>> model.depth
        2
    """

    layers: tuple[Layer, ...] = eqx.field(converter=_as_layers, default=(), kw_only=True)
    feed_inputs: bool = eqx.field(static=True, default=True, kw_only=True)
    skip: bool = eqx.field(static=True, default=True, kw_only=True)

    def __check_init__(self) -> None:
        wrong = [layer for layer in self.layers if not isinstance(layer, Layer)]
        words = "DeepGP.layers must be layers such as Layer(RBF(), width=3), got "
        refuse({f"{words}{wrong}.": wrong})

    @property
    def depth(self) -> int:
        return len(self.layers) + 1

    @property
    def of_inputs(self) -> LatentKernel:
        return self.layers[0].kernel if self.layers else self.kernel

    def layout(self, X: Float[np.ndarray, "N D"]) -> Layout:
        return Layout.of(self, X)

    def columns(self, inputs: int) -> tuple[int, ...]:
        """Number of columns that each layer's kernel sees, for so many inputs."""
        fed = inputs if self.feed_inputs else 0
        return (inputs, *(layer.width + fed for layer in self.layers))

    def spreads_at(
        self, path: str, inputs: Float[np.ndarray, "D"], latent: Float[np.ndarray, "Q"]
    ) -> tuple[Float[np.ndarray, "E"], Float[np.ndarray, "H"]]:
        hidden = path.startswith("layers[")
        place = int(path[len("layers[") :].partition("]")[0]) if hidden else len(self.layers)
        fed = inputs if self.feed_inputs or not place else inputs[:0]
        functions = self.columns(len(inputs))[place] - len(fed)
        seen = np.concatenate([np.ones(functions), fed])
        return seen, np.ones(1) if hidden else latent


_COMPILED_EACH = 3  # layers of one structure


@stored
class LayerDraw(eqx.Module):
    """A draw of the functions of a hidden layer, phi(h)' w."""

    features: FeatureWeights  # of the layer's kernel
    weights: Float[Array, "*S R width"]  # of several draws with S first


@stored
class LastLayer(NamedTuple):
    """Posterior of the last layer's weights."""

    mean: Float[Array, "*S Q R"]
    # R with covariance R' R, shape (Q, R, R), or deviations, shape (Q, R)
    root: Float[Array, "*S Q R *R"]


class WeightsAt(NamedTuple):
    """The last layer of random features at some inputs."""

    last: LastLayer
    blocks: Float[Array, "#Q R N"]

    def means(self) -> RowLatents:
        """Means of the latent functions."""
        return vmap_latents(lambda block, mean: mean @ block, self.blocks, self.last.mean).T

    def marginals(self) -> Marginals:
        """Means and variances."""

        def variance(block: Array, root: Array) -> Array:
            half = root[:, None] * block if root.ndim == 1 else root @ block
            return sum_over_first(half**2)

        return Marginals(self.means(), vmap_latents(variance, self.blocks, self.last.root).T)

    def draw(self, key: RandomKey) -> RowLatents:
        """A joint draw, by a draw of the weights."""
        noise = jax.random.normal(key, self.last.mean.shape, self.last.mean.dtype)

        def weights(mean: Array, root: Array, noise: Array) -> Array:
            return mean + (noise * root if root.ndim == 1 else noise @ root)

        drawn = vmap_latents(weights, *self.last, noise)
        return vmap_latents(lambda block, w: w @ block, self.blocks, drawn).T


@stored
class Layout(eqx.Module):
    """Fixed parts between the layers of a deep model."""

    centre: Float[Array, "D"]  # of the inputs
    spread: Float[Array, "D"]  # standard deviations of the inputs
    # maps from the functions of the layer below to the mean of each hidden layer; zero without
    # skips
    skips: tuple[Float[Array, "_ _"], ...]
    feed_inputs: bool = eqx.field(static=True)  # whether every layer sees the inputs

    @classmethod
    def of(cls, model: DeepGP, X: Float[np.ndarray, "N D"]) -> Layout:
        """For the rows' inputs, or some of them."""
        centre, spread = np.mean(X, axis=0), np.std(X, axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        below, skips = X.shape[1], []
        for place, layer in enumerate(model.layers):
            skip = np.eye(below, layer.width)
            if place == 0 and below > layer.width:
                found = np.linalg.svd((X - centre) / spread, full_matrices=False)[2].T
                skip = np.zeros((below, layer.width))  # rows may be fewer than functions
                skip[:, : found.shape[1]] = found[:, : layer.width]
            skips.append(np.asarray(skip * model.skip, X.dtype))
            below = layer.width
        return cls(centre, spread, tuple(skips), model.feed_inputs)

    def middle(self, columns: int, place: int) -> Float[np.ndarray, "1 E"]:
        """The middle of so many columns that the kernel of a layer sees."""
        fed = self.centre if self.feed_inputs or not place else self.centre[:0]
        return np.concatenate([np.zeros(columns - len(fed)), fed])[None].astype(self.centre.dtype)

    def standardised(self, X: Inputs) -> Inputs:
        """Inputs in standard deviations, about their mean: prior means of hidden functions."""
        return (X - self.centre) / self.spread

    def seen(self, functions: Float[Array, "N width"], inputs: Inputs) -> Array:
        """Inputs of the layer above, from a layer's functions and the inputs."""
        return jnp.concatenate([functions, inputs], axis=1) if self.feed_inputs else functions

    def at_prior_mean(self, X: Inputs) -> Float[Array, "N E"]:
        """Inputs of the last layer if all hidden functions are their prior means."""
        if not self.skips:
            return X
        return self.seen(reduce(jnp.matmul, self.skips, self.standardised(X)), X)

    def from_prior(self, model: DeepGP, X: Inputs, key: RandomKey) -> Float[Array, "N E"]:
        """Inputs of the last layer for a joint draw of the hidden processes at the rows."""
        below, seen = self.standardised(X), X
        for place, (layer, skip) in enumerate(zip(model.layers, self.skips, strict=True)):
            lower = jittered_lower(latent_grams(layer.kernel, seen)[0])
            shape = len(X), layer.width
            noise = jax.random.normal(jax.random.fold_in(key, place), shape, lower.dtype)
            below = lower @ noise + below @ skip
            seen = self.seen(below, X)
        return seen

    def under_last(
        self, model: DeepGP, draws: Sequence[LayerDraw], X: Inputs
    ) -> Float[Array, "N E"]:
        """Inputs of the last layer, given draws of the hidden ones."""

        def step(state: tuple[Array, Array], layer: Any) -> tuple[Array, Array]:
            below, seen = state
            kernel, draw, skip = layer
            below = features_at(kernel, draw.features, seen) @ draw.weights + below @ skip
            return below, self.seen(below, X)

        kernels = [layer.kernel for layer in model.layers]
        parts = tuple(zip(kernels, draws, self.skips, strict=True))
        return through_layers(step, (self.standardised(X), X), parts)[1]


def through_layers(step: Callable[[Any, Any], Any], start: Any, layers: Sequence[Any]) -> Any:
    """A state taken through layers by a step; those of one structure are compiled once.

    The step gives the state above a layer from that below and the layer, a tree of arrays.
    """
    if len(layers) < _COMPILED_EACH + 1 or not _are_alike(layers[1:]):
        return reduce(step, layers, start)
    state = step(start, layers[0])
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers[1:])
    return jax.lax.scan(lambda state, layer: (step(state, layer), None), state, stacked)[0]


def _are_alike(layers: Sequence[Any]) -> bool:
    kinds = {
        (jax.tree.structure(layer), tuple(jnp.shape(leaf) for leaf in jax.tree.leaves(layer)))
        for layer in layers
    }
    return len(kinds) == 1


def features_at(kernel: Any, features: FeatureWeights, seen: Float[Array, "N E"]) -> Array:
    """Features that all functions of a layer share, shape (N, R)."""
    return features.cross_covariance(kernel, seen)[0].T
