"""Whether stochastic gradient Langevin dynamics were in their Langevin phase."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

from latentgp.diagnostics import Finding
from latentgp.modules import stored

_OFTEN = 0.01  # share of draws


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
        noise = "the monitor has not looked at the noise of gradients yet"
        if np.isfinite(self.ratio):
            noise = (
                f"noise of gradients adds {self.ratio:.2g} of a variance (at most "
                f"{self.redraw * self.ratio:.2g}, as {self.redraw} iterations share probes)"
            )
        return (
            f"Langevin steps of {low:.2g} to {high:.2g}, frozen in {self.frozen} of {self.chains} "
            f"chains before the first draw; {noise}; {self.solver_steps:.1f} products an iteration."
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
