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

_EVERY = 4  # sweeps of the warm-up have one proposal
_MEMORY = 50  # sweeps that the acceptance of the usual moves is averaged over
_LEAST = 0.02  # rate of acceptance of a block that is kept, however seldom usual moves are accepted


class Tally(NamedTuple):
    """Proposals of each block, beside the usual moves of all hyper-parameters."""

    proposed: Float[Array, "blocks"]  # numbers
    accepted: Float[Array, "blocks"]  # sums of probabilities
    kept: Bool[Array, "blocks"]  # blocks that are still proposed
    number: Int[Array, ""]  # proposals in a sweep; negative until that is decided
    usual: Scalar  # acceptance of the usual moves lately

    @classmethod
    def none(cls, blocks: int) -> Tally:
        """Before the first proposal."""
        zeros = jnp.zeros(blocks)
        undecided = jnp.full((), -1, jnp.int32)
        return cls(zeros, zeros, jnp.ones(blocks, bool), undecided, jnp.ones(()))

    def due(self, sweep: Array) -> Array:
        """Proposals in a sweep of some number."""
        return jnp.where(self.number < 0, (sweep % _EVERY == 0).astype(jnp.int32), self.number)

    def drawn(self, key: RandomKey) -> Array:
        """One of the blocks that are kept."""
        return jax.random.categorical(key, jnp.where(self.kept, 0.0, -jnp.inf))

    def with_usual(self, acceptance: Scalar) -> Tally:
        """With one more usual move."""
        return self._replace(usual=self.usual + (acceptance - self.usual) / _MEMORY)

    def with_proposal(self, block: Array, acceptance: Scalar) -> Tally:
        """With one more proposal of a block."""
        proposed = self.proposed.at[block].add(1.0)
        accepted = self.accepted.at[block].add(acceptance)
        return self._replace(proposed=proposed, accepted=accepted)

    def decided(self, most: int) -> Tally:
        """Those of all chains, with the blocks that are accepted more often than usual moves."""
        proposed, accepted = jnp.sum(self.proposed, axis=0), jnp.sum(self.accepted, axis=0)
        wanted = jnp.maximum(jnp.mean(self.usual), _LEAST)
        kept = jnp.broadcast_to(accepted >= wanted * proposed, self.kept.shape)
        number = jnp.minimum(most, jnp.sum(kept, axis=1, dtype=jnp.int32))
        return self._replace(kept=kept, number=number)


class PriorLaw(NamedTuple):
    """Prior of the vectors that moves of hyper-parameters are made in."""

    log_density: Callable[[HyperVector], Scalar]  # in nats
    anew: Callable[[HyperVector, RandomKey], HyperVector]  # each block drawn given the others


class PriorBlocks(eqx.Module):
    """Proposals of one block at a time from its prior given the other blocks.

    A proposal is accepted by the ratio of the likelihoods, as the prior cancels (independence
    sampler, Tierney 1994, 2.3.3). Where data say little of a block it is nearly always accepted,
    and no tail holds a chain. The warm-up makes one proposal in some sweeps. Blocks that it accepts
    less often than the usual moves are dropped, for which these do. Proposals that are not made
    cost nothing.
    """

    blocks: Bool[np.ndarray, "blocks H"]  # entries of each
    most: int = eqx.field(static=True)  # proposals a sweep

    @classmethod
    def of(cls, space: ParameterSpace, most: int) -> PriorBlocks | None:
        """All blocks of a space; None without any, or without proposals."""
        blocks = space.blocks()
        return cls(blocks, most) if most and len(blocks) else None

    def tally(self, warmup: Int[Array, ""]) -> Tally:
        """Before the first proposal; all blocks are kept where no warm-up decides it."""
        none = Tally.none(len(self.blocks))
        every = min(self.most, len(self.blocks))
        return none._replace(number=jnp.where(warmup > 0, none.number, every))

    def step(
        self, law: HyperLaw, here: Theta, prior: PriorLaw, block: Array, key: RandomKey
    ) -> HyperMoved:
        """One proposal of a block."""
        key_draw, key_accept = jax.random.split(key)
        held = ~jnp.asarray(self.blocks)[block]
        there = law.at(jnp.where(held, here.vector, prior.anew(here.vector, key_draw)))
        gain = prior.log_density(there.vector) - prior.log_density(here.vector)
        return metropolis(here, there, there.value - here.value - gain, key_accept)
