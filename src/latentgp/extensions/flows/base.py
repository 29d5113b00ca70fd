# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)
"""Approximation of a log density: target, start, and the loop of steps."""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from latentgp.errors import InputError, refuse
from latentgp.extensions import answer
from latentgp.extensions.flows.covariance import Covariance
from latentgp.modules import Module
from latentgp.numerics.finite import all_finite
from latentgp.rows.arrays import check_shape
from latentgp.runtime.checkpoint import state_in, tensors_of
from latentgp.runtime.loop import Algorithm, Steps, run_loop
from latentgp.runtime.progress import Run, RunControl, RunProgress
from latentgp.typing import Array, Point, RandomKey, Samples, Scalar
from latentgp.validation import key_of_draws

_PIECE = 20  # steps in a compiled call


class LogDensity(Module):
    """A log density, up to a constant, and its gradients; energies are phi = -log p."""

    function: Callable[..., Any]  # of x of shape (D,), and of a key if it is stochastic
    # it estimates the log density, from a batch of rows that the key chooses, say
    stochastic: bool = eqx.field(static=True, default=False)

    def energy(self, x: Point, key: RandomKey) -> Scalar:
        """Phi(x) in nats."""
        value = self.function(x, key) if self.stochastic else self.function(x)
        return -jnp.asarray(value, x.dtype)

    def energies(self, points: Samples, key: RandomKey) -> Float[Array, "S"]:
        """Phi at several points, which see the same batch."""
        return jax.vmap(lambda x: self.energy(x, key))(points)

    def gradients(self, points: Samples, key: RandomKey) -> tuple[Float[Array, "S"], Samples]:
        """Phi and its gradients at several points, which see the same batch."""
        return jax.vmap(jax.value_and_grad(lambda x: self.energy(x, key)))(points)


class Start(NamedTuple):
    """The Gaussian that an approximation starts from."""

    mean: Point
    scale: Point  # standard deviations


class Gaussian(NamedTuple):
    """A mean and a covariance, and the particles that they are moments of, if there are any."""

    mean: Point
    covariance: Covariance
    particles: Samples | None = None


class StepReport(NamedTuple):
    """Report of a step."""

    free_energy: Scalar  # F = -log|C| / 2 + E phi before the step, exact or estimated, in nats
    change: Scalar  # distance from standing still, without units; NaN where that is noise


class Outcome(NamedTuple):
    """Result of an approximation."""

    gaussian: Gaussian  # the approximation
    free_energy: Float[Array, "T"]  # of every step, NaN after the last one, in nats
    change: Float[Array, "T"]  # of every step, likewise
    steps: Int[Array, ""]  # that were made
    evaluations: Int[Array, ""]  # of the gradient; a Hessian counts as D of them
    settled: Bool[Array, ""]  # ended by itself
    finite: Bool[Array, ""]  # no step gave NaN or infinity, before which the loop stops


class Loop(NamedTuple):
    """Where the steps of an approximation are."""

    state: Any  # the method's own
    traces: Float[Array, "2 T"]  # free energy and change of every step, NaN after the last one
    steps: Int[Array, ""]  # that were made
    settled: Bool[Array, ""]  # ended by itself
    finite: Bool[Array, ""]  # no step gave NaN or infinity


class Approximation(Module):
    """A method that approximates a log density by a Gaussian: settings as a value.

    Attributes:
        needs_exact: the log density may not be stochastic.
        has_entropy: the free energies are those of Gaussians; else they are energies alone.
    """

    needs_exact: ClassVar[bool] = False
    has_entropy: ClassVar[bool] = True

    @abstractmethod
    def run(self, target: LogDensity, start: Start, key: RandomKey) -> Outcome:
        """Approximate; a pure function."""

    def check(self, dimension: int, stochastic: bool) -> None:
        """Raise InputError if settings do not fit a log density."""
        sentence = (
            f"{type(self).__name__} needs the log density itself, not an estimate; use MeanField, "
            "GaussianFlow or GaussianParticleFlow for one with a key."
        )
        refuse({sentence: self.needs_exact and stochastic})

    def as_method(self) -> Any:
        """The method that `fit` takes it for."""
        return answer("approximation")(approximation=self)


class Stepwise(Approximation):
    """An approximation by steps, in a compiled loop.

    Attributes:
        steps: at most.
    """

    steps: eqx.AbstractVar[int]

    @abstractmethod
    def init(self, target: LogDensity, start: Start, key: RandomKey) -> Any:
        """The first state."""

    @abstractmethod
    def step(self, target: LogDensity, state: Any, key: RandomKey) -> tuple[Any, StepReport]:
        """The next state, and what the step says."""

    def has_settled(self, change: Scalar) -> Any:
        """Whether the loop ends after a step of this change; never, unless overridden."""
        return jnp.zeros((), bool)

    @abstractmethod
    def gaussian(self, state: Any) -> Gaussian:
        """The approximation that a state stands for."""

    @abstractmethod
    def gradients_a_step(self, dimension: int) -> int:
        """Evaluations of the gradient that a step makes."""

    def run(self, target: LogDensity, start: Start, key: RandomKey) -> Outcome:
        begun = self.begun(target, start, key)
        return self.outcome(self.advanced(target, begun, key, self.steps))

    def begun(self, target: LogDensity, start: Start, key: RandomKey) -> Loop:
        """The loop before its first step."""
        return Loop(
            self.init(target, start, jax.random.split(key)[0]),
            jnp.full((2, self.steps), jnp.nan, start.mean.dtype),
            steps=jnp.zeros((), int),
            settled=jnp.zeros((), bool),
            finite=jnp.ones((), bool),
        )

    def advanced(self, target: LogDensity, loop: Loop, key: RandomKey, until: Any) -> Loop:
        """The loop after so many steps in all, or where it ends before.

        Where it is cut makes no difference to its bits.
        """
        key_steps = jax.random.split(key)[1]

        def goes_on(loop: Loop) -> Any:
            return (loop.steps < until) & ~loop.settled & loop.finite

        def step(loop: Loop) -> Loop:
            number = loop.steps
            after, told = self.step(target, loop.state, jax.random.fold_in(key_steps, number))
            finite = all_finite(after) & jnp.isfinite(told.free_energy)
            kept = jax.tree.map(lambda new, old: jnp.where(finite, new, old), after, loop.state)
            seen = loop.traces.at[:, number].set(jnp.stack(told).astype(loop.traces.dtype))
            traces = jnp.where(finite, seen, loop.traces)
            settled = finite & self.has_settled(told.change)
            return Loop(kept, traces, number + finite, settled, finite)

        return jax.lax.while_loop(goes_on, step, loop)

    def outcome(self, loop: Loop) -> Outcome:
        """Result of the loop if it ends here."""
        gaussian = self.gaussian(loop.state)
        return Outcome(
            gaussian,
            *loop.traces,
            steps=loop.steps,
            evaluations=loop.steps * self.gradients_a_step(len(gaussian.mean)),
            settled=loop.settled,
            finite=loop.finite,
        )


@eqx.filter_jit
def approximate(method: Approximation, target: LogDensity, start: Start, key: RandomKey) -> Outcome:
    """The method's run, compiled."""
    return method.run(target, start, key)


class GaussianApproximation(Module):
    """A Gaussian that approximates a log density, with its diagnostics; arrays are NumPy's.

    Attributes:
        mean: shape (D,).
        covariance: a low rank, in blocks, plus a diagonal; `covariance @ vector`,
            `covariance.variances`, `covariance.dense()`.
        particles: whose moments these are, shape (N, D); None of methods without particles.
        free_energy: F = -log|C| / 2 + E phi before each step, exact for the particles or estimated,
            in nats, shape (T,). Up to the constant of log p, less D (1 + log 2 pi) / 2 where the
            covariance has full rank, it is the negative lower bound on the log evidence. Of
            `LaplaceApproximation`, `SteinVariational` and `SWAG` it is phi or E phi alone.
        change: how far each step was from standing still, shape (T,); NaN where that is noise.
        gradient_evaluations: of log p, the gradients at several points of a step one each, a
            Hessian D of them.
        converged: the method settled, or its free energy no longer fell by more than noise.
        verdict: what happened, in a sentence or two.
        method: the method.
    """

    mean: Float[np.ndarray, "D"]
    covariance: Covariance
    particles: Float[np.ndarray, "S D"] | None
    free_energy: Float[np.ndarray, "T"]
    change: Float[np.ndarray, "T"]
    gradient_evaluations: int = eqx.field(static=True)
    converged: bool = eqx.field(static=True)
    verdict: str = eqx.field(static=True)
    method: Approximation

    @property
    def steps(self) -> int:
        """Steps that were made."""
        return len(self.free_energy)

    @property
    def std(self) -> Float[np.ndarray, "D"]:
        """Standard deviations of each dimension."""
        return np.sqrt(np.asarray(self.covariance.variances))

    def sample(self, key: RandomKey, number: int) -> Float[np.ndarray, "S D"]:
        """Draws, without a factorisation of the covariance.

        Args:
            key: random key.
            number: of draws.
        """
        return self.mean + np.asarray(self.covariance.draw(key_of_draws(key, number), number))

    def log_prob(self, x: Any) -> Any:
        """Log density of the Gaussian at x, in nats: one number, or shape (S,).

        Args:
            x: one point of shape (D,), or several of shape (S, D).

        Raises:
            InputError: the covariance is singular, so that there is no density.
        """
        points = np.asarray(x, self.mean.dtype)
        size, several = len(self.mean), points.ndim > 1
        check_shape("x", points, ("S", size) if several else (size,), "a point or several")
        values = np.asarray(self.covariance.log_density(np.atleast_2d(points - self.mean)))
        if not np.isfinite(values).all():
            raise InputError(
                f"The covariance has a rank below {size}, so there is no density; use "
                "more particles, or a method with a diagonal such as FactorCovariance."
            )
        return values if several else values[0]


def approximate_in_pieces(
    method: Approximation, target: LogDensity, start: Start, key: RandomKey, control: RunControl
) -> tuple[Outcome, str | None]:
    """The outcome of `approximate`, and why a callback or a limit ended it, if one did.

    What has no steps of its own is told once, at its end.
    """
    if not isinstance(method, Stepwise):
        outcome, run = approximate(method, target, start, key), Run(control)
        with closing(run):
            made = int(outcome.steps)
            run.made(RunProgress(_ApproximationLoop.phase, made, made, details={"steps": made}))
        return outcome, None
    loop, reason = run_loop(_ApproximationLoop(method, target, start, key), control)
    return _outcome(method, loop), None if int(loop.steps) == method.steps else reason


@dataclasses.dataclass
class _ApproximationLoop(Algorithm[Loop]):
    """Pieces of 20 steps, from a start."""

    phase: ClassVar[str] = "approximating"

    method: Stepwise
    target: LogDensity
    start: Start
    key: RandomKey

    def init(self) -> Loop:
        return _begun(self.method, self.target, self.start, self.key)

    def steps(self, state: Loop, run: Run) -> Steps[Loop]:
        loop, total = state, self.method.steps
        while (made := int(loop.steps)) < total and bool(loop.finite & ~loop.settled):
            until = jnp.asarray(min(made + _PIECE, total))
            loop = jax.block_until_ready(_advanced(self.method, self.target, loop, self.key, until))
            made = int(loop.steps)
            energy, change = np.asarray(loop.traces)[:, made - 1].tolist()
            values = partial(dict, {"free energy": energy, "change": change})
            known: Any = {"at_most": True, "values": values, "details": {"steps": made}}
            yield loop, RunProgress(self.phase, made, total, **known)

    def to_tensors(self, state: Loop) -> dict[str, np.ndarray]:
        return tensors_of(state)

    def from_tensors(self, stored: dict[str, np.ndarray]) -> Loop:
        like = eqx.filter_eval_shape(_begun, self.method, self.target, self.start, self.key)
        return state_in(stored, like)


_begun, _advanced = eqx.filter_jit(Stepwise.begun), eqx.filter_jit(Stepwise.advanced)
_outcome = eqx.filter_jit(Stepwise.outcome)
