"""The contract of a move of hyper-parameters."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
from jaxtyping import Float, Key

from latentgp.typing import Array

# Log density of unconstrained hyper-parameters, and what was worked out for it.
Density = Callable[[Array], tuple[Array, Any]]


class Seen(NamedTuple):
    """What the warm-up saw of the hyper-parameters.

    Attributes:
        mean: shape (P,).
        root: lower factor of their covariance, shape (P, P).
    """

    mean: Float[Array, "P"]
    root: Float[Array, "P P"]


class HyperMoved(NamedTuple):
    """Hyper-parameters after a move.

    Attributes:
        vector: unconstrained, shape (P,).
        worked_out: what the density gives beside its value there.
        acceptance: probability that the proposal was accepted, in [0, 1].
        evaluations: of the density.
    """

    vector: Float[Array, "P"]
    worked_out: Any
    acceptance: Float[Array, ""]
    evaluations: Float[Array, ""]


class HyperMove(eqx.Module):
    """Markov transition that leaves a density of hyper-parameters as it is.

    Attributes:
        target_acceptance: that the scale is adapted to in the warm-up; None where nothing is tuned.
        differentiates: whether the density's gradient is taken.
    """

    target_acceptance: ClassVar[float | None] = None
    differentiates: ClassVar[bool] = False

    @abstractmethod
    def step(
        self,
        density: Density,
        vector: Float[Array, "P"],
        here: tuple[Any, Any],
        seen: Seen,
        scale: Float[Array, ""],
        key: Key[Array, ""],
    ) -> HyperMoved:
        """One move.

        Args:
            density: of the hyper-parameters.
            vector: the present ones.
            here: what the density gives for them.
            seen: in the warm-up.
            scale: adapted in the warm-up.
            key: random key.
        """
