"""Independence proposals of blocks of hyper-parameters from their prior."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from latentgp.extensions.chains.hyperparameters.base import HyperLaw, HyperMoved, Theta
from latentgp.extensions.chains.hyperparameters.random_walk import metropolis
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.typing import Array, HyperVector, RandomKey, Scalar

_LEAST = 0.1  # rate of acceptance of a block that is proposed after the warm-up
_TRIALS = 30  # of a block by all chains, before it can be dropped


class Tally(NamedTuple):
    """Proposals of each block."""

    proposed: Float[Array, "B"]  # numbers
    accepted: Float[Array, "B"]  # sums of probabilities
    kept: Bool[Array, "B"]  # blocks that are still proposed
    number: Int[Array, ""]  # proposals in a sweep

    @classmethod
    def none(cls, blocks: int) -> Tally:
        """Before the first proposal."""
        zeros = jnp.zeros(blocks)
        return cls(zeros, zeros, jnp.ones(blocks, bool), jnp.ones((), jnp.int32))

    def drawn(self, key: RandomKey) -> Array:
        """One of the blocks that are kept."""
        return jax.random.categorical(key, jnp.where(self.kept, 0.0, -jnp.inf))

    def with_proposal(self, block: Array, acceptance: Scalar) -> Tally:
        """With one more proposal of a block."""
        proposed = self.proposed.at[block].add(1.0)
        accepted = self.accepted.at[block].add(acceptance)
        return self._replace(proposed=proposed, accepted=accepted)

    def pooled(self, most: int) -> Tally:
        """Those of all chains, with what is kept by what all have seen."""
        proposed, accepted = jnp.sum(self.proposed, axis=0), jnp.sum(self.accepted, axis=0)
        tried = proposed >= _TRIALS
        kept = self.kept & (~tried | (accepted >= _LEAST * proposed))
        number = jnp.sum(kept, axis=1, dtype=jnp.int32)
        return self._replace(kept=kept, number=jnp.minimum(number, jnp.where(tried.all(), most, 1)))


class PriorLaw(NamedTuple):
    """Prior of the vectors that moves of hyper-parameters are made in."""

    log_density: Callable[[HyperVector], Scalar]  # in nats
    anew: Callable[[HyperVector, RandomKey], HyperVector]  # each block drawn given the others


class PriorBlocks(eqx.Module):
    """Proposals of one block at a time from its prior given the other blocks.

    A proposal is accepted by the ratio of the likelihoods, as the prior cancels (independence
    sampler, Tierney 1994, 2.3.3). Where data say little of a block it is nearly always accepted,
    and no tail holds a chain. Blocks that are hardly accepted in the warm-up are dropped. Then
    there are fewer proposals, down to none, which cost nothing.
    """

    blocks: Bool[np.ndarray, "B H"]  # entries of each
    most: int = eqx.field(static=True)  # proposals a sweep

    @classmethod
    def of(cls, space: ParameterSpace, most: int) -> PriorBlocks | None:
        """All blocks of a space; None without any, or without proposals."""
        blocks = space.blocks()
        return cls(blocks, most) if most and len(blocks) else None

    def step(
        self, law: HyperLaw, here: Theta, prior: PriorLaw, block: Array, key: RandomKey
    ) -> HyperMoved:
        """One proposal of a block."""
        key_draw, key_accept = jax.random.split(key)
        held = ~jnp.asarray(self.blocks)[block]
        there = law.at(jnp.where(held, here.vector, prior.anew(here.vector, key_draw)))
        gain = prior.log_density(there.vector) - prior.log_density(here.vector)
        return metropolis(here, there, there.value - here.value - gain, key_accept)
