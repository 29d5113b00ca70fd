"""Step sizes of natural-gradient steps on batches."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Int, PyTree

from latentgp.errors import check_ranges
from latentgp.modules import Module
from latentgp.typing import Array, Scalar


class Schedule(Module):
    """Shares in (0, 1]: the weight of the present batch in a convex combination."""

    @abstractmethod
    def init(self, like: PyTree) -> Any:
        """Initial state of the schedule, given natural parameters of the right shapes."""

    @abstractmethod
    def share(self, state: Any, difference: PyTree) -> tuple[Scalar, Any]:
        """The share of a batch, whose natural parameters differ so, and the state after it."""


class RobbinsMonro(Schedule):
    """(t + delay)^-power for step t = 0, 1, ... (Robbins & Monro 1951).

    Args:
        power: in (0.5, 1], for convergence.
        delay: at least 1; 1 makes the first step a full one.

    Raises:
        InputError: settings outside their range.
    """

    power: float = eqx.field(static=True, default=0.7)
    delay: float = eqx.field(static=True, default=50.0)

    def __check_init__(self) -> None:
        check_ranges(self, power="(0.5, 1]", delay="at least 1")

    def init(self, like: PyTree) -> Int[Array, ""]:
        return jnp.zeros((), jnp.int32)

    def share(self, state: Int[Array, ""], difference: PyTree) -> tuple[Scalar, Int[Array, ""]]:
        dtype = jax.tree.leaves(difference)[0].dtype
        return (state.astype(dtype) + self.delay) ** -self.power, state + 1


class AdaptiveState(NamedTuple):
    """Running means of differences and of their squared lengths, over a window of steps."""

    difference: PyTree
    square: Scalar
    window: Scalar


class Adaptive(Schedule):
    """The squared length of the mean difference over the mean squared length.

    Long steps while differences agree, short ones when they are noise (Ranganath et al. 2013,
    eqs. 16 to 19).

    Args:
        window: of the running means at the start, in steps; at least 1.

    Raises:
        InputError: a window that is shorter.
    """

    window: float = eqx.field(static=True, default=10.0)

    def __check_init__(self) -> None:
        check_ranges(self, window="at least 1")

    def init(self, like: PyTree) -> AdaptiveState:
        zero = jax.tree.map(jnp.zeros_like, like)
        dtype = jax.tree.leaves(like)[0].dtype
        return AdaptiveState(zero, jnp.zeros((), dtype), jnp.ones((), dtype))

    def share(self, state: AdaptiveState, difference: PyTree) -> tuple[Scalar, AdaptiveState]:
        part = 1 / state.window
        mean = jax.tree.map(lambda a, b: a + part * (b - a), state.difference, difference)
        square = state.square + part * (_dot(difference, difference) - state.square)
        ratio = _dot(mean, mean) / jnp.maximum(square, jnp.finfo(square.dtype).tiny)
        # While the window opens the mean is of few differences, and too long.
        opening = state.window < self.window
        share = jnp.clip(jnp.where(opening, 1 / self.window, ratio), 0.0, 1.0)
        window = jnp.where(opening, state.window + 1, state.window * (1 - share) + 1)
        return share, AdaptiveState(mean, square, window)


def _dot(one: PyTree, other: PyTree) -> Scalar:
    products = jax.tree.map(lambda a, b: jnp.sum(a * b), one, other)
    return sum(jax.tree.leaves(products), start=jnp.zeros(()))
