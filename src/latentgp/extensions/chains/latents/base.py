"""The contract of a move of standard normal coordinates."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Bool

from latentgp.extensions.chains.coordinates import Coordinates
from latentgp.extensions.chains.target import WhiteTarget
from latentgp.models import LatentGP
from latentgp.typing import Array, Coefs, RandomKey, Scalar

Residual = Callable[[Array], Array]


class Info(NamedTuple):
    """Information about a move."""

    acceptance: Scalar  # probability that the proposal was accepted, in [0, 1]
    evaluations: Scalar  # of the residual
    failed: Bool[Array, ""] | bool = False  # a trajectory that diverged or was not solved


class LatentMove(eqx.Module):
    """Markov transition of states with `eps` and `value` that keeps N(eps | 0, I) exp(residual)."""

    # of the warm-up, unless `wanted_acceptance` says otherwise; None where nothing is tuned
    target_acceptance: ClassVar[float | None] = None
    first_scale: ClassVar[float] = 1.0  # where the adaptation starts
    largest_scale: ClassVar[float] = math.inf  # beyond which a greater one changes little

    def within(self, target: WhiteTarget, model: LatentGP, coordinates: Coordinates) -> LatentMove:
        """The move as it is made within some coordinates; the same in all unless overridden."""
        return self

    def wanted_acceptance(self, scale: Scalar) -> Scalar | float | None:
        """Acceptance rate that the warm-up aims at; None if nothing is tuned."""
        return self.target_acceptance

    def init(self, residual: Residual, eps: Coefs) -> Any:
        """State at some coordinates: a `ResidualValue` unless overridden."""
        return ResidualValue.at(residual, eps)

    @abstractmethod
    def step(
        self, residual: Residual, state: Any, scale: Scalar, key: RandomKey
    ) -> tuple[Any, Info]:
        """One move."""


class ResidualValue(NamedTuple):
    """Coordinates and the residual there."""

    eps: Coefs
    value: Scalar

    @classmethod
    def at(cls, residual: Residual, eps: Coefs) -> ResidualValue:
        """With the residual evaluated."""
        return cls(eps, residual(eps))


def accepted(
    state: Any, there: Any, log_ratio: Scalar, key: RandomKey, *about: Any
) -> tuple[Any, Info]:
    """The proposal or the present state by a log ratio; `about` is what else `Info` has."""
    chance = jnp.where(jnp.isfinite(log_ratio), jnp.minimum(1.0, jnp.exp(log_ratio)), 0.0)
    taken = jax.random.uniform(key, dtype=chance.dtype) < chance
    after = jax.tree.map(lambda new, old: jnp.where(taken, new, old), there, state)
    return after, Info(chance, *(about or (jnp.ones_like(chance),)))
