"""The contract of a move of standard normal coordinates."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import equinox as eqx
from jaxtyping import Float, Key

from latentgp.typing import Array

Residual = Callable[[Array], Array]


class Moved(NamedTuple):
    """Coordinates after a move.

    Attributes:
        eps: the coordinates, shape (Q, M).
        acceptance: probability that the proposal was accepted, in [0, 1].
        evaluations: of the residual.
    """

    eps: Float[Array, "Q M"]
    acceptance: Float[Array, ""]
    evaluations: Float[Array, ""]


class LatentMove(eqx.Module):
    """Markov transition that leaves N(eps | 0, I) exp(residual(eps)) as it is.

    Attributes:
        target_acceptance: that the scale is adapted to in the warm-up; None where nothing is tuned.
        first_scale: where the adaptation starts.
    """

    target_acceptance: ClassVar[float | None] = None
    first_scale: ClassVar[float] = 1.0

    @abstractmethod
    def step(
        self,
        residual: Residual,
        eps: Float[Array, "Q M"],
        scale: Float[Array, ""],
        key: Key[Array, ""],
    ) -> Moved:
        """One move."""
