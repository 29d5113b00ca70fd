"""Sites of rows whose latents are partly left open by the inducing variables."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Float

from latentgp.likelihoods.base import Marginals
from latentgp.typing import Array


class ProjectedSites(NamedTuple):
    """Sites for g = k' K_mm^-1 u that are left of sites for f = g + e, e ~ N(0, residual).

    Bui, Yan & Turner (2017, 4): with power a they are [E_e site(g + e)^a]^(1 / a).
    """

    linear: Float[Array, "Q B"]
    precision: Float[Array, "Q B"]
    loss: Float[Array, "Q B"]  # minus twice the log of the factor that does not depend on g

    @classmethod
    def of(
        cls,
        linear: Float[Array, "Q B"],
        precision: Float[Array, "Q B"],
        residual: Float[Array, "#Q B"],
        power: float,
    ) -> "ProjectedSites":
        """For a power from zero, which is the variational bound."""
        if not power:
            return cls(linear, precision, precision * residual)
        shrunk = power * precision * residual
        loss = jnp.log1p(shrunk) / power - power * linear**2 * residual / (1 + shrunk)
        return cls(linear / (1 + shrunk), precision / (1 + shrunk), loss)


def row_marginals(
    residual: Float[Array, "#Q B"],
    marginals: Marginals,
    linear: Float[Array, "B Q"],
    precision: Float[Array, "B Q"],
    power: float,
) -> Marginals:
    """Marginals of rows' f whose own sites^power tell about its variance given u, too."""
    mean, variance = marginals
    residual = residual.T
    shrunk = 1 + power * precision * residual
    shift = power * residual * (linear - precision * mean) / shrunk
    given = jnp.maximum(variance - residual, 0.0) / shrunk**2
    return Marginals(mean + shift, given + residual / shrunk)
