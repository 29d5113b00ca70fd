"""The contract of a move of hyper-parameters."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
from jaxtyping import Bool

from latentgp.extensions.chains.information import Information
from latentgp.numerics.triangular import solve_lower
from latentgp.typing import Array, HyperMatrix, HyperVector, RandomKey, Scalar


class WarmupHistory(NamedTuple):
    """Hyper-parameters visited in the warm-up."""

    mean: HyperVector
    root: HyperMatrix  # lower factor of their covariance
    emulator: Any = None  # of their approximate log density; None unless the move asks for it

    def standardised(self, vector: HyperVector) -> HyperVector:
        """Distance from the mean in standard deviations."""
        return solve_lower(self.root, vector - self.mean)


class Theta(NamedTuple):
    """Hyper-parameters theta, with what a law gives for them."""

    vector: HyperVector  # unconstrained
    value: Scalar  # their log density, in nats
    worked_out: Any  # for it


class HyperLaw(NamedTuple):
    """Law of unconstrained hyper-parameters given what a coupling holds."""

    density: Callable[[Array], tuple[Array, Any]]  # log density in nats, and what was worked out
    information: Callable[[Array, Any], Information]  # from some, and what was worked out
    seen: WarmupHistory  # those visited in the warm-up

    def at(self, vector: HyperVector) -> Theta:
        """The law at some."""
        return Theta(vector, *self.density(vector))


class HyperMoved(NamedTuple):
    """Hyper-parameters after a move."""

    at: Theta  # the hyper-parameters
    acceptance: Scalar  # probability that the proposal was accepted, in [0, 1]
    evaluations: Scalar  # of the density
    proposed: Theta  # hyper-parameters that were proposed last
    failed: Bool[Array, ""] | bool = False  # a trajectory that diverged or was not solved


class HyperMove(eqx.Module):
    """Markov transition that leaves a density of hyper-parameters as it is."""

    target_acceptance: ClassVar[float | None] = None  # of the warm-up; None where nothing is tuned
    largest_scale: ClassVar[float] = math.inf  # beyond which a greater one changes little
    differentiates: ClassVar[bool] = False  # the density's gradient is taken
    emulates: ClassVar[bool] = False  # it uses an emulator of the approximate log density
    straightens: ClassVar[bool] = False  # it moves in coordinates in which priors are normal

    @property
    def proposes_once(self) -> bool:
        """Whether a move is one proposal, so that draws can be proposed with it."""
        return self.target_acceptance is not None and not self.differentiates

    @abstractmethod
    def step(self, law: HyperLaw, here: Theta, scale: Scalar, key: RandomKey) -> HyperMoved:
        """One move, from present hyper-parameters, at a scale that was adapted in the warm-up."""
