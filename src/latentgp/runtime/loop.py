"""The loop that iterative methods share: shown, logged, ended early, saved and resumed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator
from contextlib import closing
from typing import ClassVar

from latentgp.runtime.progress import Resumable, Run, RunControl, StateT
from latentgp.runtime.switch import RunProgress

Steps = Generator[tuple[StateT, RunProgress], None, None]


class Algorithm(Resumable[StateT]):
    """Steps of a method, from one state to the next."""

    phase: ClassVar[str]

    @abstractmethod
    def init(self) -> StateT:
        """The first state; not made where a checkpoint has a later one."""

    @abstractmethod
    def steps(self, state: StateT, run: Run) -> Steps[StateT]:
        """State after each of the steps that are left, and what is reported of the step."""


def run_loop(algorithm: Algorithm[StateT], control: RunControl) -> tuple[StateT, str | None]:
    """Make the steps of an algorithm until none is left or the run is to end.

    The checkpoint is written when it is due and at the end, whatever ends the loop. Gives the last
    state, and why the loop ended early, in words; None if it did not.
    """
    run, state = Run(control, algorithm), None
    try:
        run.begins(algorithm.phase)
        state = run.resumed()
        if state is None:
            state = algorithm.init()
        with closing(algorithm.steps(state, run)) as steps:
            for state, step in steps:
                reason = run.made(step, state)
                if reason is not None and step.has_result:
                    return state, reason
        return state, None
    finally:
        run.close()
        run.save(state)
