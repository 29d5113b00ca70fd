"""Elliptical slice moves, and chains of them at fixed hyper-parameters."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.extensions.chains.latents.base import (
    Info,
    LatentMove,
    Residual,
    ResidualValue,
)
from latentgp.extensions.chains.loop import Sampler
from latentgp.extensions.chains.target import Position
from latentgp.typing import Array, RandomKey, Scalar

_MOST_SHRINKS = 100  # of a bracket that halves on average: below rounding long before


class EllipticalSlice(LatentMove):
    """A point above a random level on an ellipse through eps and a draw of N(0, I).

    Murray, Adams & MacKay (2010, Fig. 2). Nothing is tuned, and nothing is rejected.
    """

    def step(
        self, residual: Residual, state: ResidualValue, scale: Scalar, key: RandomKey
    ) -> tuple[ResidualValue, Info]:
        key_prior, key_level, key_angle, key_shrink = jax.random.split(key, 4)
        eps, dtype = state.eps, state.eps.dtype
        other = jax.random.normal(key_prior, eps.shape, dtype)
        level = state.value + jnp.log(jax.random.uniform(key_level, dtype=dtype))
        first = jax.random.uniform(key_angle, dtype=dtype, maxval=2 * jnp.pi)

        def at(angle: Array) -> ResidualValue:
            return ResidualValue.at(residual, eps * jnp.cos(angle) + other * jnp.sin(angle))

        def is_below(carry: tuple[Any, ...]) -> Array:
            there, *_, shrinks = carry
            return ~(there.value > level) & (shrinks < _MOST_SHRINKS)

        def shrink(carry: tuple[Any, ...]) -> tuple[Any, ...]:
            _, angle, low, high, shrinks = carry
            low, high = jnp.where(angle < 0, angle, low), jnp.where(angle < 0, high, angle)
            own = jax.random.fold_in(key_shrink, shrinks)
            angle = jax.random.uniform(own, dtype=dtype, minval=low, maxval=high)
            return at(angle), angle, low, high, shrinks + 1

        bracket = (at(first), first, first - 2 * jnp.pi, first, 0)
        there, *_, shrinks = jax.lax.while_loop(is_below, shrink, bracket)
        moved = there.value > level
        state = jax.tree.map(lambda new, old: jnp.where(moved, new, old), there, state)
        return state, Info(jnp.ones((), dtype), shrinks + 1.0)


class EllipticalSampler(Sampler):
    """Chains of white coefficients at fixed hyper-parameters."""

    @abstractmethod
    def start(self, key: RandomKey) -> Float[Array, "functions M"]:
        """White coefficients where a chain starts."""

    @abstractmethod
    def log_likelihood(self, white: Float[Array, "functions M"]) -> Scalar:
        """Log likelihood of white coefficients, in nats."""

    def init(self, key: RandomKey) -> ResidualValue:
        return ResidualValue.at(self.log_likelihood, self.start(key))

    def step(self, state: ResidualValue, key: RandomKey) -> tuple[ResidualValue, dict[str, Array]]:
        one = jnp.ones((), state.eps.dtype)
        after, info = EllipticalSlice().step(self.log_likelihood, state, one, key)
        statistics = {
            "acceptance_rate": info.acceptance,
            "diverging": jnp.zeros((), bool),
            "n_steps": info.evaluations.astype(int),
            "lp": after.value - 0.5 * jnp.sum(after.eps**2),
        }
        return after, statistics

    def position(self, state: ResidualValue) -> Position:
        return Position(jnp.zeros(0, state.eps.dtype), state.eps)

    def moved(self, state: ResidualValue, position: Position) -> ResidualValue:
        return ResidualValue.at(self.log_likelihood, position.white)
