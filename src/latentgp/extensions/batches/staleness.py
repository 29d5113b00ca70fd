"""Summary of an asynchronous search: lost workers, and staleness of what batches said."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from latentgp.diagnostics import Finding
from latentgp.modules import stored


@stored
@dataclasses.dataclass(frozen=True)
class Asynchrony(Finding):
    """Record of an asynchronous search.

    Attributes:
        workers: number of them.
        lost: how often one died.
        steps: made by what they answered.
        mean_staleness: steps between a worker's reading of the parameters and the step along what
            it answered, on average.
        largest_staleness: the most of these.
    """

    name: ClassVar[str] = "asynchrony"

    workers: int
    lost: int = 0
    steps: int = 0
    mean_staleness: float = 0.0
    largest_staleness: int = 0

    def stepped(self, stale: int) -> "Asynchrony":
        """With one more step, along an answer that was so many steps old."""
        steps = self.steps + 1
        mean = self.mean_staleness + (stale - self.mean_staleness) / steps
        return dataclasses.replace(
            self,
            steps=steps,
            mean_staleness=mean,
            largest_staleness=max(stale, self.largest_staleness),
        )

    @property
    def verdict(self) -> str:
        """Summary in a sentence."""
        return (
            f"{self.workers} workers made {self.steps} steps, along gradients that were "
            f"{self.mean_staleness:.1f} steps old on average and {self.largest_staleness} at most."
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Problem and remedy in a sentence, if any."""
        if not self.lost:
            return ()
        return (
            f"Workers died {self.lost} times, and others took over their batches; look for what "
            "ended them (too little memory, perhaps).",
        )
