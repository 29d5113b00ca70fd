"""Mean functions of the latent Gaussian process."""

from abc import abstractmethod

import jax.numpy as jnp
from jaxtyping import Float

from latentgp.arrays import Array
from latentgp.errors import InputError
from latentgp.parameters import Parametrised, parameter


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
