"""Mean functions of the latent Gaussian process."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Float

from latentgp.errors import InputError
from latentgp.parameters.base import OwnParts, Parametrised, parameter
from latentgp.typing import Array


class Mean(Parametrised):
    """Prior mean of every latent function at given inputs."""

    @abstractmethod
    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N #Q"]:
        """Prior mean at every row, one column, or one a latent."""


class ZeroMean(Mean):
    """A prior mean of zero."""

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N #Q"]:
        return jnp.zeros((X.shape[0], 1), X.dtype)


class ConstantMean(Mean):
    """A prior mean that is the same everywhere; units of the latent function."""

    value: Float[Array, ""] = parameter(default=0.0)

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N #Q"]:
        return jnp.broadcast_to(self.value.astype(X.dtype), (X.shape[0], 1))


class LinearMean(Mean):
    """A prior mean that is linear in the inputs: intercept + X slope."""

    slope: Float[Array, "D"] = parameter()
    intercept: Float[Array, ""] = parameter(default=0.0)

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N #Q"]:
        if self.slope.shape != X.shape[1:]:
            raise InputError(
                f"LinearMean.slope has shape {self.slope.shape} but the inputs have {X.shape[1]} "
                "columns; give one slope a column."
            )
        return (self.intercept + X @ self.slope)[:, None]


class PerLatentMean(OwnParts, Mean):
    """A prior mean of its own for every latent function.

    Args:
        parts: as many prior means as the likelihood has latent functions, in their order.

    Raises:
        InputError: none is given, or something that is not a prior mean.

    Example:
        >>> import numpy as np
        >>> PerLatentMean(ConstantMean(3.0), ZeroMean())(np.zeros((1, 2))).tolist()
        [[3.0, 0.0]]
    """

    part_type: ClassVar[type] = Mean
    parts: tuple[Mean, ...]

    def __init__(self, *parts: Mean):
        self.parts = parts

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N #Q"]:
        return jnp.concatenate([part(X) for part in self.parts], axis=1)


def constant_first(value: Float[Array, "*S"] | float, latents: int) -> Mean:
    """A constant prior mean of the first latent function, zero for the others."""
    others = [ZeroMean() for _ in range(latents - 1)]
    return PerLatentMean(ConstantMean(value), *others) if others else ConstantMean(value)
