"""Stochastic gradient Langevin dynamics of hyper-parameters: metric, steps and their record."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, Key, Shaped

from latentgp.diagnostics import Finding
from latentgp.extensions.chains.loop import Draw, Transition
from latentgp.extensions.chains.target import Coefficients
from latentgp.extensions.iterative.gradients.gradient import Probes, SolvedEvidence
from latentgp.modules import stored
from latentgp.numerics.eigen import eigenvectors
from latentgp.typing import Array, HyperVector, RandomKey, Scalar, Vectors

_FARTHEST = 1.0  # deviations of the metric that the drift of one step may go
_OFTEN = 0.01  # share of draws
_STEP = 1e-3
_FLATTEST = 0.25  # a deviation of two on the unconstrained scale


class Metric(NamedTuple):
    """M = L L', the inverse of minus the Hessian at a mode."""

    root: Float[np.ndarray, "H H"]  # L
    flat: int  # directions of hardly any curvature, in which a deviation of two was taken


def metric_at(gradient: Callable[[HyperVector], HyperVector], mode: HyperVector) -> Metric:
    """Metric by differences of the gradient of a log posterior around its mode.

    Example:
        >>> metric_at(lambda x: -x / np.array([1.0, 4.0]), np.zeros(2)).root.round(6).tolist()
        [[1.0, 0.0], [0.0, 2.0]]
    """
    moves = _STEP * np.eye(mode.size)
    rows = [(gradient(mode - m) - gradient(mode + m)) / (2 * _STEP) for m in moves]
    curvature = 0.5 * (np.array(rows) + np.array(rows).T)
    values, vectors = np.linalg.eigh(curvature)
    covariance = (vectors / np.maximum(values, _FLATTEST)) @ vectors.T
    return Metric(np.linalg.cholesky(covariance), int(np.sum(values < _FLATTEST)))


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
        probes = self.evidence.probes(jax.random.fold_in(key, 1))
        solves = probes, self.evidence.no_solution(), jnp.asarray(0), jnp.zeros_like(self.root)
        ratio, step_size = jnp.full((), jnp.inf, vector.dtype), jnp.zeros((), vector.dtype)
        return LangevinState(vector, *solves, ratio, step_size, jnp.asarray(False))

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


@stored
@dataclasses.dataclass(frozen=True)
class LangevinPhase(Finding):
    """Record of the steps of stochastic gradient Langevin dynamics."""

    name: ClassVar[str] = "langevin"

    # (e / 4) lambda_max(M^1/2 V M^1/2), mean over draws of the chain with the largest: the share by
    # which the noise of a gradient, drawn anew at every step, adds to variances
    ratio: float
    threshold: float  # below which step sizes are frozen
    redraw: int  # iterations that share their probes: they add up to so many times the ratio
    step_size: tuple[float, float]  # at the end, of each chain the smallest and the largest
    frozen: int  # how many chains had their step size frozen before the draws that are kept
    chains: int  # how many there are
    solver_steps: float  # products with the covariance an iteration, on average
    unsolved: float  # share of draws on the way to which a solve ended short of its tolerance
    held: float  # share of draws on the way to which a drift was cut

    @classmethod
    def of(
        cls, statistics: dict[str, Any], *, thin: int, threshold: float, redraw: int
    ) -> "LangevinPhase":
        """From the statistics of the draws that are kept, shape (C, S) each."""
        last = statistics["step_size"][:, -1]
        return cls(
            ratio=float(np.max(np.mean(statistics["monitor_ratio"], axis=1))),
            threshold=threshold,
            redraw=redraw,
            step_size=(float(np.min(last)), float(np.max(last))),
            frozen=int(np.sum(statistics["frozen"][:, 0])),
            chains=len(last),
            solver_steps=float(np.mean(statistics["solver_steps"])) / thin,
            unsolved=float(np.mean(~statistics["solved"].astype(bool))),
            held=float(np.mean(statistics["held"])),
        )

    @property
    def verdict(self) -> str:
        """Summary of the steps in a sentence."""
        low, high = self.step_size
        added = high / (4 - high) if high < 4 else np.inf
        noise = "the monitor has not looked at the noise of gradients yet"
        if np.isfinite(self.ratio):
            noise = (
                f"noise of gradients adds {self.ratio:.2g} of a variance (at most "
                f"{self.redraw * self.ratio:.2g}, as {self.redraw} iterations share probes)"
            )
        return (
            f"Langevin steps of {low:.2g} to {high:.2g}, which add {added:.2g} of a "
            "variance where the metric is the posterior's, frozen in "
            f"{self.frozen} of {self.chains} chains before the first draw; {noise}; "
            f"{self.solver_steps:.1f} products an iteration."
        )

    @property
    def warnings(self) -> list[str]:
        """One sentence each: what looks wrong and what to do."""
        sentences = []
        if self.frozen < self.chains:
            sentences.append(
                f"{self.chains - self.frozen} of {self.chains} chains were not in the Langevin "
                f"phase when the warm-up ended (ratio {self.ratio:.2g}, threshold "
                f"{self.threshold:g}): the noise of the gradients widens the posterior; raise "
                "warmup, or give Solves more probes or a larger rank."
            )
        if self.unsolved:
            sentences.append(
                f"On the way to {self.unsolved:.1%} of the draws a solve ended short of its "
                "tolerance, so that gradients are biased; raise Solves.max_steps or Solves.rank."
            )
        if self.held > _OFTEN:
            sentences.append(
                f"On the way to {self.held:.1%} of the draws a drift was cut to one deviation; "
                "lower the scale of the step sizes."
            )
        return sentences

    @property
    def is_trusted(self) -> bool:
        return not self.warnings
