"""A kernel for unordered categories."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Float
from numpyro.distributions import constraints

from latentgp.kernels.base import Kernel
from latentgp.parameters.base import parameter
from latentgp.typing import Array


class Categorical(Kernel):
    """Hamming kernel, variance * exp(-sum over columns that differ of 1 / l_d).

    Inputs are category codes; only equality counts. Use it on chosen columns:
    `Categorical().on(3) * RBF().on(0, 1, 2)`. (Ru et al. 2020, eq. 3, unnormalised.)

    Args:
        lengthscale: scalar or shape (D,), without units: a large one makes categories alike.
        variance: units of the latent function squared.
    """

    lengthscale: Float[Array, "#D"] | Float[Array, ""] = parameter(
        constraints.positive, default=1.0
    )
    variance: Float[Array, ""] = parameter(constraints.positive, role="variance", default=1.0)

    def __call__(self, x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        return self.variance * jnp.exp(-jnp.sum((x != z) / self.per_column("lengthscale", x)))

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, "N"]:
        return jnp.broadcast_to(self.variance.astype(X.dtype), X.shape[:1])
