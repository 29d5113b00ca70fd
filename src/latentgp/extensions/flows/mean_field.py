"""The Gaussian with a diagonal covariance, by stochastic gradients."""

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


class MeanField(Reparameterised):
    """Doubly stochastic variational inference with a diagonal (Titsias & Lázaro-Gredilla 2014).

    The best one has the inverses of the diagonal of the precision as variances, if the target is
    Gaussian.

    Args:
        samples: drawn a step.
        optimiser: step sizes of the mean and of the logarithms of deviations.
        steps: how many.

    Raises:
        InputError: settings outside their range.
    """

    samples: int = eqx.field(static=True, default=10)
    optimiser: Optimiser = Adam()
    steps: int = eqx.field(static=True, default=5000)

    def parameters(self, start: Start, key: RandomKey) -> Any:
        return start.mean, jnp.log(start.scale)

    def draws(self, parameters: Any, key: RandomKey) -> Float[Array, "S D"]:
        mean, log_std = parameters
        normal = jax.random.normal(key, (self.samples, len(mean)), mean.dtype)
        return mean + normal * jnp.exp(log_std)

    def half_log_determinant(self, parameters: Any) -> Scalar:
        return jnp.sum(parameters[1])

    def of_parameters(self, parameters: Any) -> Gaussian:
        mean, log_std = parameters
        return Gaussian(mean, Covariance.of_variances(jnp.exp(2 * log_std)))
