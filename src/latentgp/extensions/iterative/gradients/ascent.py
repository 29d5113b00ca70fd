"""Stochastic gradient ascent of hyper-parameters: Adam and AdaGrad."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from latentgp.extensions.iterative.gradients.gradient import Probes, SolvedEvidence
from latentgp.modules import Module
from latentgp.runtime.programs import Program
from latentgp.typing import Array, HyperVector, RandomKey, Scalar, Vectors

Optimiser = Literal["adagrad", "adam"]
_FIRST, _SECOND, _TINY = 0.9, 0.999, 1e-8  # Kingma & Ba 2015


class AscentState(NamedTuple):
    """A search."""

    vector: HyperVector  # unconstrained hyper-parameters
    mean: HyperVector  # of gradients; of Adam
    square: HyperVector  # of gradients, their sum or their mean
    solution: Vectors  # where the next solve for the targets starts
    probes: Probes  # that are held, where they are pathwise
    iteration: Int[Array, ""]  # how many were made


class AscentTold(NamedTuple):
    """Report of iterations: positions, products with the covariance, success of solves."""

    vector: Float[Array, "T H"]
    steps: Int[Array, "T"]
    solved: Bool[Array, "T"]


class Ascent(Module):
    """Steps along stochastic gradients, probes and preconditioner drawn anew at each or held.

    AdaGrad divides a gradient by the root of the sum of its squares so far (Duchi, Hazan & Singer
    2011), Adam a running mean by the root of that of the squares (Kingma & Ba 2015).
    """

    evidence: SolvedEvidence  # gives the gradients
    optimiser: Optimiser = eqx.field(static=True)  # "adagrad" or "adam"
    step_size: Scalar  # of a hyper-parameter on the unconstrained scale
    lower: HyperVector  # bounds of the search
    upper: HyperVector  # the same

    def init(self, vector: HyperVector, key: RandomKey) -> AscentState:
        """A search that starts at a vector."""
        nothing = jnp.zeros_like(vector)
        solution, probes = self.evidence.no_solution(), self.evidence.probes(key)
        return AscentState(vector, nothing, nothing, solution, probes, jnp.asarray(0))

    def step(self, state: AscentState, key: RandomKey) -> tuple[AscentState, Any]:
        """The next state, and where it is."""
        key_probes, key_solves = jax.random.split(key)
        probes, start = state.probes, state.solution
        if not self.evidence.solves.pathwise:
            probes, start = self.evidence.probes(key_probes), start.at[:, 1:].set(0.0)
        slope = self.evidence.slope(state.vector, probes, start, key_solves)
        g = jnp.where(jnp.isfinite(slope.gradient), slope.gradient, 0.0)
        made = state.iteration + 1
        if self.optimiser == "adagrad":
            mean, square = g, state.square + g**2
            move = g / (jnp.sqrt(square) + _TINY)
        else:
            mean = _FIRST * state.mean + (1 - _FIRST) * g
            square = _SECOND * state.square + (1 - _SECOND) * g**2
            size = jnp.sqrt(square / (1 - _SECOND**made)) + _TINY
            move = mean / (1 - _FIRST**made) / size
        vector = jnp.clip(state.vector + self.step_size * move, self.lower, self.upper)
        sound = jnp.all(jnp.isfinite(slope.solution)) & jnp.all(jnp.isfinite(slope.gradient))
        solution = jnp.where(sound, slope.solution, 0.0)
        after = AscentState(vector, mean, square, solution, probes, made)
        return after, AscentTold(vector, slope.steps, slope.solved & sound)


@partial(Program, static_argnums=(3,))
def ascent_piece(
    search: Ascent, state: AscentState, key: RandomKey, number: int
) -> tuple[AscentState, AscentTold]:
    """So many steps."""
    keys = jax.random.split(key, number)
    return jax.lax.scan(lambda s, k: search.step(s, k), state, keys)
