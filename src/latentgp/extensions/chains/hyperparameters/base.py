"""The contract of a move of hyper-parameters."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
from jaxtyping import Bool, Float

from latentgp.extensions.chains.information import Information
from latentgp.numerics.triangular import solve_lower
from latentgp.typing import Array, HyperVector, RandomKey, Scalar


class HyperLaw(NamedTuple):
    """Law of unconstrained hyper-parameters given what a coupling holds.

    Attributes:
        density: log density at some, in nats, and what was worked out for it.
        information: that the held tells about them, given them and what was worked out.
    """

    density: Callable[[Array], tuple[Array, Any]]
    information: Callable[[Array, Any], Information]


class WarmupHistory(NamedTuple):
    """Hyper-parameters visited in the warm-up.

    Attributes:
        mean: shape (H,).
        root: lower factor of their covariance, shape (H, H).
        emulator: of their approximate log density; None unless the move asks for it.
    """

    mean: HyperVector
    root: Float[Array, "H H"]
    emulator: Any = None

    def standardised(self, vector: HyperVector) -> HyperVector:
        """Distance from the mean in standard deviations."""
        return solve_lower(self.root, vector - self.mean)


class HyperMoved(NamedTuple):
    """Hyper-parameters after a move.

    Attributes:
        vector: unconstrained, shape (H,).
        worked_out: what the density gives beside its value there.
        acceptance: probability that the proposal was accepted, in [0, 1].
        evaluations: of the density.
        proposed: hyper-parameters that were proposed last, and what was worked out there.
        failed: whether a trajectory diverged, or its implicit steps could not be solved.
    """

    vector: HyperVector
    worked_out: Any
    acceptance: Scalar
    evaluations: Scalar
    proposed: tuple[HyperVector, Any]
    failed: Bool[Array, ""] | bool = False


class HyperMove(eqx.Module):
    """Markov transition that leaves a density of hyper-parameters as it is.

    Attributes:
        target_acceptance: that the scale is adapted to in the warm-up; None where nothing is tuned.
        largest_scale: where the adaptation ends, beyond which a greater one would change little.
        differentiates: whether the density's gradient is taken.
        emulates: whether it uses an emulator of the approximate log density.
        proposes_once: whether a move is one proposal, so that draws can be proposed with it.
    """

    target_acceptance: ClassVar[float | None] = None
    largest_scale: ClassVar[float] = math.inf
    differentiates: ClassVar[bool] = False
    emulates: ClassVar[bool] = False

    @property
    def proposes_once(self) -> bool:
        return self.target_acceptance is not None and not self.differentiates

    @abstractmethod
    def step(
        self,
        law: HyperLaw,
        vector: HyperVector,
        here: tuple[Any, Any],
        seen: WarmupHistory,
        scale: Scalar,
        key: RandomKey,
    ) -> HyperMoved:
        """One move.

        Args:
            law: of the hyper-parameters.
            vector: the present ones.
            here: what its density gives for them.
            seen: in the warm-up.
            scale: adapted in the warm-up.
            key: random key.
        """
