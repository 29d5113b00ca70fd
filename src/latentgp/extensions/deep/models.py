"""Deep models: hidden layers of latent functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError
from latentgp.kernels import Kernel, LatentKernel
from latentgp.models import LatentGP
from latentgp.modules import Module


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
        if not isinstance(self.kernel, Kernel):
            raise InputError(
                f"Layer.kernel must be a kernel such as RBF(), shared by the layer's functions, "
                f"got {self.kernel!r}."
            )
        if not isinstance(self.width, int) or self.width < 1:
            raise InputError(
                f"Layer.width must be a positive number of functions, got {self.width!r}."
            )


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
        if wrong:
            raise InputError(
                f"DeepGP.layers must be layers such as Layer(RBF(), width=3), got {wrong[0]!r}."
            )

    @property
    def depth(self) -> int:
        return len(self.layers) + 1

    @property
    def of_inputs(self) -> LatentKernel:
        return self.layers[0].kernel if self.layers else self.kernel

    def layout(self, X: Float[np.ndarray, "N D"]) -> Any:
        from latentgp.extensions.deep.layers import Layout  # it is of models

        return Layout.of(self, X)

    def columns(self, inputs: int) -> tuple[int, ...]:
        """Number of columns that each layer's kernel sees, for so many inputs."""
        fed = inputs if self.feed_inputs else 0
        return (inputs, *(layer.width + fed for layer in self.layers))

    def spreads_at(
        self, path: str, inputs: Float[np.ndarray, "D"], latent: Float[np.ndarray, "Q"]
    ) -> tuple[Float[np.ndarray, "E"], Float[np.ndarray, "P"]]:
        hidden = path.startswith("layers[")
        place = int(path[len("layers[") :].partition("]")[0]) if hidden else len(self.layers)
        fed = inputs if self.feed_inputs or not place else inputs[:0]
        functions = self.columns(len(inputs))[place] - len(fed)
        seen = np.concatenate([np.ones(functions), fed])
        return seen, np.ones(1) if hidden else latent
