"""Stochastic gradient Langevin dynamics of hyper-parameters."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int, Key, Shaped

from latentgp.extensions.iterative.gradients.gradient import Probes, SolvedEvidence
from latentgp.modules import Module
from latentgp.numerics.eigen import eigenvectors
from latentgp.runtime.programs import Program
from latentgp.typing import Array

_FARTHEST = 1.0  # deviations of the metric that the drift of one step may go


class LangevinState(NamedTuple):
    """A chain.

    Attributes:
        vector: unconstrained hyper-parameters, shape (P,).
        probes: of the present iterations.
        solution: where the next solves start, shape (N, S).
        iteration: how many were made.
        spread: covariances of the gradients, summed since the monitor last looked, shape (P, P).
        ratio: what the monitor last found; infinite before.
        step_size: from which on it no longer falls; of no meaning until it is frozen.
        frozen: whether it is.
    """

    vector: Float[Array, "P"]
    probes: Probes
    solution: Float[Array, "N S"]
    iteration: Int[Array, ""]
    spread: Float[Array, "P P"]
    ratio: Float[Array, ""]
    step_size: Float[Array, ""]
    frozen: Bool[Array, ""]


class Langevin(Module):
    """theta += (e / 2) M g + N(0, e M), with no refusals (Filippone & Engler 2015, eq. 5-7).

    The step size e = scale (delay + t)^-power falls until the variance that the noise of the
    gradients adds is small beside that of the dynamics: until (e / 4) lambda_max(M^1/2 V M^1/2),
    V the covariance of a gradient, is below a threshold. From there on it stays.

    Args:
        evidence: gives the gradients.
        root: L with M = L L', shape (P, P).
        scale: of the step sizes.
        delay: iterations.
        power: in (0.5, 1].
        redraw: iterations after which the probes are drawn anew.
        batch: iterations after which the monitor looks.
        threshold: of the monitor.
    """

    evidence: SolvedEvidence
    root: Float[Array, "P P"]
    scale: Float[Array, ""]
    delay: Float[Array, ""]
    power: Float[Array, ""]
    redraw: Int[Array, ""]
    batch: Int[Array, ""]
    threshold: Float[Array, ""]

    def init(self, vector: Float[Array, "P"], key: Key[Array, ""]) -> LangevinState:
        """A chain that starts at a vector."""
        nothing = jnp.zeros_like(self.root)
        return LangevinState(
            vector,
            self.evidence.probes(key),
            self.evidence.no_solution(),
            jnp.asarray(0),
            nothing,
            jnp.full((), jnp.inf, vector.dtype),
            jnp.zeros((), vector.dtype),
            jnp.asarray(False),
        )

    def step(
        self, state: LangevinState, key: Key[Array, ""]
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

    def _looked(self, state: LangevinState, covariance: Any, size: Any) -> tuple[Any, Any, Any]:
        """Whether the monitor looks now, the covariances summed, and the ratio that they give."""
        spread = state.spread + covariance
        inner = self.root.T @ spread @ self.root / self.batch
        values, _ = eigenvectors(jnp.where(jnp.isfinite(inner), inner, 0.0))
        looks = (state.iteration + 1) % self.batch == 0
        return looks, spread, 0.25 * size * values[-1]


@partial(Program, static_argnums=(3,))
def langevin_piece(
    sampler: Langevin, state: LangevinState, key: Key[Array, ""], counts: tuple[int, int]
) -> tuple[LangevinState, Float[Array, "S P"], dict[str, Shaped[Array, "S"]]]:
    """Draws of one chain and what was told on the way, one for every `thin` steps."""
    number, thin = counts

    def keep(state: Any, key: Any) -> Any:
        keys = jax.random.split(key, thin)
        state, told = jax.lax.scan(lambda s, k: sampler.step(s, k), state, keys)
        return state, (state.vector, {name: _over(name, told[name]) for name in told})

    state, (vectors, told) = jax.lax.scan(keep, state, jax.random.split(key, number))
    return state, vectors, told


def _over(name: str, values: Any) -> Any:
    """Reduction over the steps between two draws: any, all, the sum or the last."""
    ways = {"diverging": jnp.any, "held": jnp.any, "solved": jnp.all, "solver_steps": jnp.sum}
    return ways.get(name, lambda told: told[-1])(values)
