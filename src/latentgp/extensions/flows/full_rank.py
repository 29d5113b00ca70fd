"""The Gaussian with any covariance, by stochastic gradients."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.extensions.flows.base import Gaussian, Start
from latentgp.extensions.flows.covariance import Covariance
from latentgp.extensions.flows.optimisers import Adam, Optimiser
from latentgp.extensions.flows.reparameterised import Reparameterised
from latentgp.typing import Array, RandomKey, Scalar


class FullRank(Reparameterised):
    """Doubly stochastic variational inference (Titsias & Lázaro-Gredilla 2014, algorithm 1).

    x = m + L e with a lower triangular L, whose diagonal is learned by its logarithm.

    Args:
        samples: drawn a step.
        optimiser: step sizes of the mean and of L.
        steps: how many.

    Raises:
        InputError: settings outside their range.
    """

    samples: int = eqx.field(static=True, default=10)
    optimiser: Optimiser = Adam()
    steps: int = eqx.field(static=True, default=5000)

    def parameters(self, start: Start, key: RandomKey) -> Any:
        size = len(start.mean)
        return start.mean, jnp.log(start.scale), jnp.zeros((size, size), start.mean.dtype)

    def draws(self, parameters: Any, key: RandomKey) -> Float[Array, "S D"]:
        mean, *_ = parameters
        normal = jax.random.normal(key, (self.samples, len(mean)), mean.dtype)
        return mean + normal @ _lower(parameters).T

    def half_log_determinant(self, parameters: Any) -> Scalar:
        return jnp.sum(parameters[1])

    def of_parameters(self, parameters: Any) -> Gaussian:
        return Gaussian(parameters[0], Covariance.of(_lower(parameters)))


def _lower(parameters: Any) -> Float[Array, "D D"]:
    _, log_diagonal, below = parameters
    return jnp.diag(jnp.exp(log_diagonal)) + jnp.tril(below, -1)
