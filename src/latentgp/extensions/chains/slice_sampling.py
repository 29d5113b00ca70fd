"""Updates of a vector that leave a density unchanged: slice sampling and random-walk Metropolis."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from latentgp.typing import Array, RandomKey, Scalar

_SHRINKS = 50

Vector = Float[Array, "size"]
LogDensity = Callable[[Vector], Scalar]


class Update(NamedTuple):
    """A new vector, and whether it differs from the old one."""

    vector: Vector
    accepted: Bool[Array, ""]


class _Slice(NamedTuple):
    low: Scalar
    high: Scalar
    place: Scalar
    level: Scalar
    found: Bool[Array, ""]
    count: Int[Array, ""]
    key: RandomKey


def slice_update(
    log_density: LogDensity, vector: Vector, scale: Vector | float, key: RandomKey
) -> Update:
    """Slice sampling along a random direction, by shrinking alone (Neal 2003, 4 and 5.1).

    A bracket of random place and of the length of the direction holds the present point; points
    drawn in it are tried, each that is outside the slice cutting the bracket, until one is
    inside. The density is known up to a constant; not finite counts as zero. The scale has lengths
    of a typical step; zero holds an entry fixed.
    """
    key_direction, key_place, key_level, key_loop = jax.random.split(key, 4)
    direction = scale * jax.random.normal(key_direction, vector.shape, vector.dtype)
    low = -jax.random.uniform(key_place, (), vector.dtype)
    drop = -jax.random.exponential(key_level, (), vector.dtype)

    def value(place: Scalar) -> Scalar:
        density = log_density(vector + place * direction)
        return jnp.where(jnp.isfinite(density), density, -jnp.inf)

    # The first evaluation, at the present point, sets the level: one call site, compiled once.
    def attempt(state: _Slice) -> _Slice:
        density = value(state.place)
        first = state.count == 0
        level = jnp.where(first, density + drop, state.level)
        found = ~first & (density >= level)
        outside = ~first & ~found
        low = jnp.where(outside & (state.place < 0), state.place, state.low)
        high = jnp.where(outside & (state.place >= 0), state.place, state.high)
        key, key_next = jax.random.split(state.key)
        tried = jax.random.uniform(key, (), vector.dtype, minval=low, maxval=high)
        place = jnp.where(found, state.place, tried)
        return _Slice(low, high, place, level, found, state.count + 1, key_next)

    zero, count = jnp.zeros((), vector.dtype), jnp.zeros((), jnp.int32)
    start = _Slice(low, low + 1, zero, zero, jnp.array(False), count, key_loop)
    end = jax.lax.while_loop(lambda s: ~s.found & (s.count < _SHRINKS), attempt, start)
    # Rounding can leave the bracket empty; then the point stays.
    return Update(vector + jnp.where(end.found, end.place, 0.0) * direction, end.found)


def metropolis_update(
    log_density: LogDensity, vector: Vector, scale: Vector | float, key: RandomKey
) -> Update:
    """A Gaussian random-walk step of some standard deviations (Metropolis et al. 1953)."""
    key_step, key_accept = jax.random.split(key)
    proposal = vector + scale * jax.random.normal(key_step, vector.shape, vector.dtype)
    before, after = jax.lax.map(log_density, jnp.stack([vector, proposal]))
    threshold = jnp.log(jax.random.uniform(key_accept, (), vector.dtype))
    accepted = jnp.isfinite(after) & (threshold < after - before)
    return Update(jnp.where(accepted, proposal, vector), accepted)
