"""Steps of an approximation in pieces: progress, callbacks, limits, checkpoints, resumption."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from latentgp.extensions.flows.base import Approximation, LogDensity, Loop, Outcome, Start, Stepwise
from latentgp.extensions.flows.front import approximate
from latentgp.runtime.checkpoint import state_in, tensors_of
from latentgp.runtime.progress import Algorithm, Run, RunControl, RunProgress, Steps, run_loop
from latentgp.typing import RandomKey

_PIECE = 20  # steps in a compiled call


def approximate_in_pieces(
    method: Approximation, target: LogDensity, start: Start, key: RandomKey, control: RunControl
) -> tuple[Outcome, str | None]:
    """The outcome of `approximate`, and why it ended if a callback or a limit ended it.

    What is no sequence of steps, as the search for a mode, is one call that nothing ends.
    """
    if not isinstance(method, Stepwise):
        return approximate(method, target, start, key), None
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
        while (made := int(loop.steps)) < total and not loop.has_ended:
            until = jnp.asarray(min(made + _PIECE, total))
            loop = jax.block_until_ready(_advanced(self.method, self.target, loop, self.key, until))
            made = int(loop.steps)
            energy, change = np.asarray(loop.traces)[:2, made - 1].tolist()
            values = partial(dict, {"free energy": energy, "change": change})
            details = {"steps": made}
            step = RunProgress(
                self.phase, made, total, at_most=True, values=values, details=details
            )
            yield loop, step

    def to_tensors(self, state: Loop) -> dict[str, np.ndarray]:
        return tensors_of(state)

    def from_tensors(self, stored: dict[str, np.ndarray], run: Run) -> Loop:
        like = eqx.filter_eval_shape(_begun, self.method, self.target, self.start, self.key)
        run.went_on_after(float(stored["seconds"][0]))
        return state_in(stored, like)


_begun, _advanced = eqx.filter_jit(Stepwise.begun), eqx.filter_jit(Stepwise.advanced)
_outcome = eqx.filter_jit(Stepwise.outcome)
