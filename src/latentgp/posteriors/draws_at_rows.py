# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)
"""Draws of latents at the rows, whichever of them a new input sees."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Key

from latentgp.models import LatentGP
from latentgp.posteriors.components import DrawnComponents, Draws, JointDraws, over_draws, taken
from latentgp.representations import Representation
from latentgp.representations.protocols import coefficients_of
from latentgp.typing import Array, Inputs, RandomKey, RowLatents

_TOGETHER = 16  # draws whose sweeps run side by side


class DrawsAtRows(DrawnComponents):
    """Draws of g at the rows, in O(S N) memory.

    Attributes:
        g: f at the rows less the prior mean, shape (S, N, Q).
    """

    g: eqx.AbstractVar[Float[Array, "S N Q"]]

    @property
    def size(self) -> int:
        return len(self.g)

    def joint(self, X: Inputs, key: RandomKey, number: int) -> JointDraws:
        key_pick, key_f = jax.random.split(key)
        picked = self.pick(key_pick, number)
        chosen = self.of_draws(picked, taken(self.models, picked) if self.own else self.models)
        return np.asarray(_joint(chosen, X, jax.random.split(key_f, number))), picked

    @abstractmethod
    def of_draws(self, kept: Int[np.ndarray, "kept"], models: LatentGP) -> "DrawsAtRows":
        """Some of the draws, whose models are given."""

    @abstractmethod
    def drawn(self, X: Inputs, keys: Key[Array, "S"]) -> Float[Array, "S N Q"]:
        """A joint draw at X for each of the draws."""


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


@jax.jit
def _joint(draws: Any, X: Inputs, keys: Key[Array, "S"]) -> Float[Array, "S N Q"]:
    return draws.drawn(X, keys)
