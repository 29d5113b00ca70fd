"""Blocks of a parameter, each drawn from its law under the prior given the others."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import jax.numpy as jnp
from jaxtyping import Float, Key
from numpyro.distributions import Distribution

from latentgp.typing import Array


@singledispatch
def blocks_given(
    prior: Distribution, value: Float[Any, "..."], key: Key[Array, ""]
) -> Float[Array, "..."]:
    """Values whose blocks are each a draw from the prior given the other blocks of a value.

    Blocks are the events of the law, which are independent. A joint law of several blocks registers
    its own: for each block a draw that leaves the law as it is while the others are kept.
    """
    shape = jnp.shape(value)
    return prior.sample(key, shape[: len(shape) - len(prior.shape())])


@singledispatch
def block_axes(prior: Distribution) -> int:
    """Last axes of a value that one block of `blocks_given` has."""
    return len(prior.event_shape)
