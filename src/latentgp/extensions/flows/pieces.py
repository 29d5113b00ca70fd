"""Steps of an approximation in pieces: progress, callbacks, limits, checkpoints, resumption."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, Key

from latentgp.extensions.flows.base import Approximation, LogDensity, Loop, Outcome, Start, Stepwise
from latentgp.extensions.flows.front import approximate
from latentgp.runtime.checkpoint import state_in, tensors_of
from latentgp.runtime.progress import Run, RunControl, Step
from latentgp.typing import Array

_PIECE = 20  # steps in a compiled call


class ApproximationProgress(NamedTuple):
    """Progress of an approximation, passed to the callback after every 20 steps.

    Attributes:
        steps: that were made.
        total: that will be made at most.
        free_energy: before the last step, in nats.
        change: how far that was from standing still, without units; NaN where it is noise.
        seconds: since the start of the fit.
    """

    steps: int
    total: int
    free_energy: float
    change: float
    seconds: float


def approximate_in_pieces(
    method: Approximation,
    target: LogDensity,
    start: Start,
    key: Key[Array, ""],
    control: RunControl,
) -> tuple[Outcome, str | None]:
    """The outcome of `approximate`, and why it ended if a callback or a limit ended it.

    What is no sequence of steps, as the search for a mode, is one call that nothing ends.
    """
    if not isinstance(method, Stepwise):
        return approximate(method, target, start, key), None
    run, reason = Run(control), None
    run.begins("approximating")
    loop = _recalled(method, target, start, key, run) or _begun(method, target, start, key)

    def save() -> None:
        if control.checkpoint.path is not None:
            seconds = np.array([run.seconds])
            control.checkpoint.write({**tensors_of(loop), "seconds": seconds})

    try:
        while (made := int(loop.steps)) < method.steps and not loop.has_ended and reason is None:
            until = jnp.asarray(min(made + _PIECE, method.steps))
            loop = jax.block_until_ready(_advanced(method, target, loop, key, until))
            progress = _progress(method, loop, run.seconds)
            reason = run.made(_step(progress), progress, save)
    finally:
        run.close()
        save()
    complete = int(loop.steps) == method.steps
    return _outcome(method, loop), None if complete else reason


def _step(progress: ApproximationProgress) -> Step:
    return Step(
        "approximating",
        "step",
        progress.steps,
        progress.total,
        lambda: {"free energy": progress.free_energy, "change": progress.change},
        at_most=True,
    )


def _progress(method: Stepwise, loop: Loop, seconds: float) -> ApproximationProgress:
    steps = int(loop.steps)
    last = np.asarray(loop.traces)[:, steps - 1]
    return ApproximationProgress(steps, method.steps, float(last[0]), float(last[1]), seconds)


def _recalled(
    method: Stepwise, target: LogDensity, start: Start, key: Key[Array, ""], run: Run
) -> Loop | None:
    """The loop of the checkpoint; None without one."""

    def understand(stored: dict[str, np.ndarray]) -> tuple[Loop, float]:
        like = eqx.filter_eval_shape(_begun, method, target, start, key)
        return state_in(stored, like), float(stored["seconds"][0])

    found = run.control.checkpoint.read(understand)
    if found is None:
        return None
    run.went_on_after(found[1])
    return found[0]


@eqx.filter_jit
def _begun(method: Stepwise, target: LogDensity, start: Start, key: Key[Array, ""]) -> Loop:
    return method.begun(target, start, key)


@eqx.filter_jit
def _advanced(
    method: Stepwise, target: LogDensity, loop: Loop, key: Key[Array, ""], until: Int[Array, ""]
) -> Loop:
    return method.advanced(target, loop, key, until)


@eqx.filter_jit
def _outcome(method: Stepwise, loop: Loop) -> Outcome:
    return method.outcome(loop)
