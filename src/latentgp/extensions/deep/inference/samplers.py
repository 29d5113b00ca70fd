"""Chains of deep models: NUTS and SGHMC on weights, elliptical slices on hidden functions."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from latentgp.extensions.chains.hmc import no_u_turn, warmed_up
from latentgp.extensions.chains.joint import JointState
from latentgp.extensions.chains.latents.elliptical_slice import EllipticalSampler
from latentgp.extensions.chains.loop import Draw, Sampler
from latentgp.extensions.chains.target import Position, around
from latentgp.extensions.deep.inference.targets import ProcessTarget, WeightTarget
from latentgp.modules import forwarded
from latentgp.typing import Array, RandomKey, Scalar

_LEAST = 1e-16  # average squared gradient
_FROM_BATCHES = 0.5  # of the noise, at most


class WeightSampler(Sampler):
    """Chains of weights and hyper-parameters."""

    target: WeightTarget

    def start(self, key: RandomKey) -> Position:
        """Hyper-parameters around those of the space's model, weights from the prior."""
        key_vector, key_white = jax.random.split(key)
        shape, dtype = (1, self.target.size), self.target.data.X.dtype
        vector = around(self.target.centre, key_vector)
        return Position(vector, jax.random.normal(key_white, shape, dtype))

    def record(self, state: Any, key: RandomKey, watched: Int[Array, "W"]) -> Draw:
        return self.target.draw(self.position(state), key, watched)


class WeightNUTS(WeightSampler):
    """Trajectories that end where they would turn back, on all rows."""

    adapts_in_init: ClassVar[bool] = True

    target: WeightTarget
    warmup: int = eqx.field(static=True)  # steps that adapt
    target_acceptance: float = eqx.field(static=True)  # that the step size is adapted to

    def init(self, key: RandomKey) -> JointState:
        key_start, key_run = jax.random.split(key)
        steps, acceptance = self.warmup, self.target_acceptance
        return warmed_up(
            lambda at: self.target(at), self.start(key_start), key_run, steps, acceptance
        )

    def step(self, state: JointState, key: RandomKey) -> tuple[JointState, dict[str, Array]]:
        return no_u_turn(lambda at: self.target(at), state, key)

    def position(self, state: JointState) -> Position:
        return state.hmc.position

    def moved(self, state: JointState, position: Position) -> JointState:
        import blackjax

        hmc = blackjax.nuts.init(position, lambda at: self.target(at))
        return JointState(hmc, state.settings)


class ScaledState(NamedTuple):
    """A chain of stochastic gradients."""

    place: Float[Array, "D"]  # hyper-parameters and weights
    momentum: Float[Array, "D"]  # of each, the step of last time
    memory: Float[Array, "D"]  # steps that the averages look back, tau
    mean: Float[Array, "D"]  # average gradient of the energy, g
    square: Float[Array, "D"]  # average squared gradient, V
    steps: Int[Array, ""]  # so far


class ScaledSGHMC(WeightSampler):
    """Stochastic gradient Hamiltonian Monte Carlo (Chen, Fox & Guestrin 2014), scales adapted.

    In the warm-up each entry's mass follows the root of its average squared gradient, over a window
    that adapts too (Springenberg et al. 2016, eq. 8-10; Havasi et al. 2018). No step is refused.
    Hyper-parameters are held for its first half: far from likely weights they would explain noise.
    Steps are shorter where a batch's gradient would bring more than half of the noise that friction
    takes: what it brings beyond all of it would heat the chain.
    """

    target: WeightTarget
    # rows of a gradient, drawn with replacement; all of them if there are no more
    batch_size: int = eqx.field(static=True)
    warmup: int  # steps that adapt
    step_size: Scalar  # epsilon
    friction: Scalar  # alpha, the share of the momentum that a step loses

    def init(self, key: RandomKey) -> ScaledState:
        start = self.start(key)
        place = jnp.concatenate([start.vector, start.white[0]])
        zero = jnp.zeros_like(place)
        return ScaledState(place, zero, jnp.ones_like(place), zero, zero, jnp.zeros((), jnp.int32))

    def step(self, state: ScaledState, key: RandomKey) -> tuple[ScaledState, dict[str, Array]]:
        key_rows, key_noise = jax.random.split(key)
        slope = jax.grad(self.energy)(state.place, key_rows)
        share = 1 / (state.memory + 1)
        mean = state.mean + share * (slope - state.mean)
        square = state.square + share * (slope**2 - state.square)
        memory = 1 + state.memory * (1 - mean**2 / jnp.maximum(square, _LEAST))
        learned = state.memory, state.mean, state.square
        adapts = state.steps < self.warmup
        memory, mean, square = (
            jnp.where(adapts, new, old)
            for new, old in zip((memory, mean, square), learned, strict=True)
        )
        of_batches = jnp.maximum(square - mean**2, _LEAST)  # variance of a batch's gradient
        rate = self.step_size**2 / jnp.sqrt(jnp.maximum(square, _LEAST))
        lost_noise = self.friction * (2 - self.friction)  # what friction takes, a unit of the rate
        if not self.sees_all_rows:
            rate = jnp.minimum(rate, _FROM_BATCHES * lost_noise / of_batches)
        held = jnp.arange(len(rate)) < len(rate) - self.target.size
        rate = jnp.where(held & (2 * state.steps < self.warmup), 0.0, rate)
        variance = lost_noise * rate
        if not self.sees_all_rows:  # less the noise of the step along a batch's gradient
            variance = variance - rate**2 * of_batches
        noise = jax.random.normal(key_noise, state.place.shape, state.place.dtype)
        kept = (1 - self.friction) * state.momentum
        momentum = kept - rate * slope + jnp.sqrt(variance) * noise
        place = state.place + momentum
        lost = ~jnp.all(jnp.isfinite(place))
        after = ScaledState(place, momentum, memory, mean, square, state.steps + 1)
        return after, {"acceptance_rate": jnp.ones((), place.dtype), "diverging": lost}

    @property
    def sees_all_rows(self) -> bool:
        """Whether gradients have no noise."""
        return self.batch_size >= self.target.data.size

    def energy(self, place: Float[Array, "D"], key: RandomKey) -> Scalar:
        """Minus the log density, its likelihood estimated from a batch."""
        at, data, scale = self._at(place), self.target.data, 1.0
        if not self.sees_all_rows:
            rows = jax.random.randint(key, (self.batch_size,), 0, data.size)
            data = jax.tree.map(lambda leaf: leaf[rows], data)
            scale = self.target.data.size / self.batch_size
        return -self.target.log_prior(at) - scale * self.target.log_likelihood(at, data)

    def position(self, state: ScaledState) -> Position:
        return self._at(state.place)

    def moved(self, state: ScaledState, position: Position) -> ScaledState:
        return state._replace(place=jnp.concatenate([position.vector, position.white[0]]))

    def _at(self, place: Float[Array, "D"]) -> Position:
        weights = self.target.size
        return Position(place[: len(place) - weights], place[None, len(place) - weights :])


class HiddenSlices(EllipticalSampler):
    """Elliptical slices of hidden functions at the rows (Murray, Adams & MacKay 2010)."""

    target: ProcessTarget

    def start(self, key: RandomKey) -> Float[Array, "functions N"]:
        target = self.target
        shape = (target.space.model.layers[0].width, target.data.size)
        return jax.random.normal(key, shape, target.data.X.dtype)

    log_likelihood = forwarded("target.log_likelihood")
