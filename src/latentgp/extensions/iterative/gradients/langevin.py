"""Stochastic gradient Langevin dynamics of hyper-parameters."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int, Key, Shaped

from latentgp.extensions.chains.loop import Draw, Transition
from latentgp.extensions.chains.target import Coefficients
from latentgp.extensions.iterative.gradients.gradient import Probes, SolvedEvidence
from latentgp.numerics.cholesky import eigenvectors
from latentgp.typing import Array, HyperVector, RandomKey, Scalar, Vectors

_FARTHEST = 1.0  # deviations of the metric that the drift of one step may go


class LangevinState(NamedTuple):
    """A chain."""

    vector: HyperVector  # unconstrained hyper-parameters
    probes: Probes  # of the present iterations
    solution: Vectors  # where the next solves start
    iteration: Int[Array, ""]  # how many were made
    # covariances of the gradients, summed since the monitor last looked
    spread: Float[Array, "H H"]
    ratio: Scalar  # what the monitor last found; infinite before
    step_size: Scalar  # from which on it no longer falls; of no meaning until it is frozen
    frozen: Bool[Array, ""]  # whether it is


class LangevinSampler(Transition):
    """theta += (e / 2) M g + N(0, e M), with no refusals (Filippone & Engler 2015, eq. 5-7).

    The step size e = scale (delay + t)^-power falls until the variance that the noise of the
    gradients adds is small beside that of the dynamics: until (e / 4) lambda_max(M^1/2 V M^1/2),
    V the covariance of a gradient, is below a threshold. From there on it stays.
    """

    draws_a_piece: ClassVar[int] = 20
    one_by_one: ClassVar[bool] = True

    evidence: SolvedEvidence  # gives the gradients
    mode: HyperVector  # where chains start around
    root: Float[Array, "H H"]  # L with M = L L'
    scale: Scalar  # of the step sizes
    delay: Scalar  # iterations
    power: Scalar  # in (0.5, 1]
    redraw: Int[Array, ""]  # iterations after which the probes are drawn anew
    batch: Int[Array, ""]  # iterations after which the monitor looks
    threshold: Scalar  # of the monitor

    def init(self, key: RandomKey) -> LangevinState:
        vector = self.mode + self.root @ jax.random.normal(key, self.mode.shape)
        nothing = jnp.zeros_like(self.root)
        return LangevinState(
            vector,
            self.evidence.probes(jax.random.fold_in(key, 1)),
            self.evidence.no_solution(),
            jnp.asarray(0),
            nothing,
            jnp.full((), jnp.inf, vector.dtype),
            jnp.zeros((), vector.dtype),
            jnp.asarray(False),
        )

    def step(
        self, state: LangevinState, key: RandomKey
    ) -> tuple[LangevinState, dict[str, Shaped[Array, ""]]]:
        """The next state, and statistics of the step."""
        key_probes, key_solves, key_noise = jax.random.split(key, 3)
        anew = state.iteration % self.redraw == 0
        probes, solution = jax.lax.cond(
            anew,
            lambda: (self.evidence.probes(key_probes), state.solution.at[:, 1:].set(0.0)),
            lambda: (state.probes, state.solution),
        )
        slope = self.evidence.slope(state.vector, probes, solution, key_solves)
        time = self.delay + state.iteration.astype(state.vector.dtype)
        size = jnp.where(state.frozen, state.step_size, self.scale * time**-self.power)
        white = self.root.T @ slope.gradient
        drift = 0.5 * size * white
        length = jnp.sqrt(jnp.sum(drift**2))
        held = length > _FARTHEST
        drift = jnp.where(held, _FARTHEST / length, 1.0) * drift
        noise = jax.random.normal(key_noise, white.shape, white.dtype)
        vector = state.vector + self.root @ (drift + jnp.sqrt(size) * noise)
        sound = jnp.all(jnp.isfinite(vector)) & jnp.all(jnp.isfinite(slope.solution))
        looks, spread, ratio = self._looked(state, slope.covariance, size)
        freezes = looks & ~state.frozen & (ratio < self.threshold)
        after = LangevinState(
            jnp.where(sound, vector, state.vector),
            probes,
            jnp.where(sound, slope.solution, 0.0),
            state.iteration + 1,
            jnp.where(looks | ~jnp.all(jnp.isfinite(spread)), 0.0, spread),
            jnp.where(looks, ratio, state.ratio),
            jnp.where(freezes, size, state.step_size),
            state.frozen | freezes,
        )
        return after, {
            "acceptance_rate": jnp.ones((), white.dtype),
            "diverging": ~sound,
            "held": held,
            "step_size": size,
            "monitor_ratio": after.ratio,
            "frozen": after.frozen,
            "solver_steps": slope.steps,
            "solved": slope.solved,
        }

    def record(self, state: LangevinState, key: RandomKey, watched: Int[Array, "W"]) -> Draw:
        """A draw of hyper-parameters alone."""
        vector = state.vector
        return Draw(vector, jnp.zeros((1, 0), vector.dtype), jnp.zeros((0, 1), vector.dtype))

    def keys(self, key: RandomKey, thin: int) -> tuple[Key[Array, "T"], RandomKey]:
        return jax.random.split(key, thin), key  # nothing is random in a draw

    def told(self, steps: dict[str, Shaped[Array, "T"]]) -> dict[str, Shaped[Array, ""]]:
        return {name: _over(name, values) for name, values in steps.items()}

    def coefficients(self, state: LangevinState) -> Coefficients:
        return Coefficients(jnp.zeros((0, self.evidence.data.X.shape[1])), jnp.zeros(()))

    def _looked(self, state: LangevinState, covariance: Any, size: Any) -> tuple[Any, Any, Any]:
        """Whether the monitor looks now, the covariances summed, and the ratio that they give."""
        spread = state.spread + covariance
        inner = self.root.T @ spread @ self.root / self.batch
        values, _ = eigenvectors(jnp.where(jnp.isfinite(inner), inner, 0.0))
        looks = (state.iteration + 1) % self.batch == 0
        return looks, spread, 0.25 * size * values[-1]


def _over(name: str, values: Any) -> Any:
    """Reduction over the steps between two draws: any, all, the sum or the last."""
    ways = {"diverging": jnp.any, "held": jnp.any, "solved": jnp.all, "solver_steps": jnp.sum}
    return ways.get(name, lambda told: told[-1])(values)
