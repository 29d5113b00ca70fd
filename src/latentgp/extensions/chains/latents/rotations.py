"""Hamiltonian moves whose steps rotate."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.extensions.chains.latents.base import Info, Residual, accepted
from latentgp.extensions.chains.latents.langevin import GradientMove, ResidualGradient
from latentgp.typing import Array, RandomKey, Scalar

ANTITHETIC = 2 * math.pi / 3
SHORTEST = 0.8  # share of an angle that the steps of a trajectory of several have at least


class Rotations(GradientMove):
    """Hamiltonian trajectories of a quarter of a turn, or more, on N(eps | 0, I) exp(residual).

    The Gaussian part is followed exactly, by a rotation of coordinates and momenta; the residual's
    gradient g kicks the momenta by tan(h / 2) g before and after each rotation by h (Hilbert-space
    Hamiltonian Monte Carlo, Beskos, Pinski, Sanz-Serna & Stuart 2011). Where the residual is flat
    one step is a draw with correlation cos h, independent after a quarter of a turn, and one step
    is always that of `Langevin` with beta = cos h. Where it is not, a turn takes more steps.

    After more than a quarter draws that follow each other lie on opposite sides of the mean: a mean
    is then worth (1 - cos h) / (1 + cos h) independent draws a move, a variance, whose draws have
    correlation cos(h)^2, only (1 - cos(h)^2) / (1 + cos(h)^2). `ANTITHETIC`, a third of a turn, has
    3 and 0.6.

    The errors of a trajectory's energy have a standard deviation that goes with h^2, and are normal
    in many dimensions, so that acceptance with one number of steps tells that with any other. The
    warm-up fits the scale, the h at which the deviation is one nat, to the acceptance it sees; the
    number of steps is the best by that. Where the most steps are too few for a turn, as in prior
    white coordinates of precise targets, h is the scale and a trajectory is shorter.
    """

    first_scale: ClassVar[float] = 0.5
    largest_scale: ClassVar[float] = 20.0

    turn: float = eqx.field(static=True, default=math.pi / 2)  # of a trajectory, in radians
    steps: int = eqx.field(static=True, default=32)  # at most so many
    overhead: float = eqx.field(static=True, default=0.0)  # cost of a move beside steps, in steps

    def wanted_acceptance(self, scale: Scalar) -> Scalar:
        return _acceptance(self._step(self._number(scale), scale), scale)

    def _number(self, scale: Scalar) -> Scalar:
        """Steps of the trajectory that gives most by its cost, refusals counted twice."""
        numbers = jnp.arange(1, self.steps + 1).astype(scale.dtype)
        chance = _acceptance(self.turn / numbers, scale)
        return numbers[jnp.argmax(chance**2 / ((2 - chance) * (numbers + self.overhead)))]

    def _step(self, number: Scalar, scale: Scalar) -> Scalar:
        """The angle of a step: its share of the turn, if the energy's error is a nat at most."""
        return jnp.minimum(self.turn / number, scale)

    def step(
        self, residual: Residual, state: ResidualGradient, scale: Scalar, key: RandomKey
    ) -> tuple[ResidualGradient, Info]:
        key_momentum, key_angle, key_accept = jax.random.split(key, 3)
        momentum = jax.random.normal(key_momentum, state.eps.shape, state.eps.dtype)
        number = self._number(scale)
        share = jax.random.uniform(key_angle, dtype=scale.dtype, minval=SHORTEST)
        angle = jnp.where(number > 1, share, 1.0) * self._step(number, scale)
        kick, cosine, sine = jnp.tan(angle / 2), jnp.cos(angle), jnp.sin(angle)

        def rotated(
            _: Any, carry: tuple[ResidualGradient, Array]
        ) -> tuple[ResidualGradient, Array]:
            at, p = carry
            p = p + kick * at.slope
            there = self.init(residual, cosine * at.eps + sine * p)
            return there, cosine * p - sine * at.eps + kick * there.slope

        there, p = jax.lax.fori_loop(0, number.astype(int), rotated, (state, momentum))
        log_ratio = there.value - state.value + 0.5 * jnp.sum(state.eps**2 - there.eps**2)
        log_ratio = log_ratio + 0.5 * jnp.sum(momentum**2 - p**2)
        return accepted(state, there, log_ratio, key_accept, number)


def _acceptance(angle: Float[Array, "*S"], scale: Scalar) -> Float[Array, "*S"]:
    """Mean acceptance, 2 Phi(-deviation / 2), of normal errors (Roberts, Gelman & Gilks 1997)."""
    deviation = (angle / scale) ** 2
    return 2 * jax.scipy.stats.norm.cdf(-deviation / 2)
