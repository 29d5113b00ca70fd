# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)
"""Draws of latents at the rows, whichever of them a new input sees."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentgp.models import LatentGP
from latentgp.posteriors.components import DrawnComponents, Draws, over_draws
from latentgp.representations import Representation
from latentgp.representations.protocols import coefficients_of
from latentgp.typing import Array, RowLatents

_TOGETHER = 16  # draws whose sweeps run side by side


class DrawsAtRows(DrawnComponents):
    """Draws of g at the rows, in O(S N) memory."""

    g: eqx.AbstractVar[Float[Array, "S N Q"]]  # f at the rows less the prior mean

    @property
    def size(self) -> int:
        return len(self.g)

    def of_draws(self, kept: Int[np.ndarray, "kept"], models: LatentGP) -> "DrawsAtRows":
        """Some of the draws, whose models are given."""
        return dataclasses.replace(self, models=models, g=self.g[kept])


@eqx.filter_jit
def at_rows(draws: Draws, representation: Representation) -> Float[Array, "S N Q"]:
    """Draws of g at the rows, of white coefficients."""
    own = coefficients_of(representation)
    if draws.own:

        def one(draw: tuple[LatentGP, Array]) -> RowLatents:
            kernel, white = draw[0].kernel, draw[1]
            return own.whitening(kernel, draws.centres).conditional(white).mean

        return over_draws(one, (draws.models, draws.white))
    whitening = own.whitening(draws.models.kernel, draws.centres)
    white = jnp.asarray(draws.white)
    return jax.lax.map(lambda white: whitening.conditional(white).mean, white, batch_size=_TOGETHER)
