"""Diagnostics of the integration over hyper-parameters."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from latentgp.diagnostics import Finding
from latentgp.modules import stored

_MOVED, _HIGHER, _EFFECTIVE_DRAWS = 0.1, 1.0, 500  # deviations, nats, a number
_LEFT_OUT = 0.05  # of the evaluations


@stored
@dataclasses.dataclass(frozen=True)
class Integration(Finding):
    """Record of the integration over hyper-parameters.

    Attributes:
        points: that the posterior is a mixture of.
        effective_points: one over the sum of their squared weights.
        evaluations: of the bound around the mode.
        left_out: of these, those whose site updates did not converge.
        drop: nats from the mode down to the lowest point of the mixture.
        rise: nats by which the highest place that was seen is above the mode.
        flat: number of directions in which the bound has no curvature at the mode.
        moved: by how much the last further places, twice, moved the log evidence (nats), a
            mean (deviations) or the logarithm of a deviation, whichever most.
        effective_draws: of the weighted draws that marginals and evidence are made of.
        without_prior: paths of hyper-parameters that have no prior.
    """

    name: ClassVar[str] = "integration"

    points: int
    effective_points: float
    evaluations: int
    left_out: int
    drop: float
    rise: float
    flat: int
    moved: float
    effective_draws: float
    without_prior: tuple[str, ...]

    @property
    def is_trusted(self) -> bool:
        """Whether the density is known well enough all over."""
        known = self.moved <= _MOVED and self.effective_draws >= _EFFECTIVE_DRAWS
        return known and self.rise <= _HIGHER and not self.lacks_many

    @property
    def lacks_many(self) -> bool:
        """Whether more than one in twenty evaluations were left out."""
        return self.left_out > _LEFT_OUT * self.evaluations

    @property
    def verdict(self) -> str:
        """Summary in a sentence."""
        return (
            f"Hyper-parameters were integrated over {self.points} points "
            f"({self.effective_points:.1f} effective, the lowest {self.drop:.1f} nats below the "
            f"mode) of {self.evaluations} evaluations ({self.left_out} left out); the last "
            f"moved means and log deviations by at most {self.moved:.2g} deviations."
        )

    @property
    def warnings(self) -> list[str]:
        """One sentence each: what looks wrong and what to do."""
        sentences = []
        if self.lacks_many:
            sentences.append(
                f"{self.left_out} of {self.evaluations} evaluations around the mode were left out, "
                "as their site updates did not converge or the run was ended; give narrower "
                'priors, or use hyperparameters="sample".'
            )
        if not self.moved <= _MOVED:
            sentences.append(
                "Means and deviations of the hyper-parameters still moved, by up to "
                f"{self.moved:.2g} deviations, when the exploration ended; allow more time, give "
                'narrower priors, or use hyperparameters="sample".'
            )
        elif self.effective_draws < _EFFECTIVE_DRAWS:
            sentences.append(
                f"Marginals of the hyper-parameters rest on {self.effective_draws:.0f} effective "
                "draws only, as their density is far from normal; give narrower priors, or use "
                'hyperparameters="sample".'
            )
        if self.rise > _HIGHER:
            sentences.append(
                f"The density of the hyper-parameters is {self.rise:.1f} nats higher than at the "
                "mode that the search found; add restarts or raise max_evaluations."
            )
        if self.flat:
            sentences.append(
                f"In {self.flat} direction(s) the bound is flat at the mode, and the width of the "
                "prior was guessed there; give priors to what the data do not determine."
            )
        if self.without_prior:
            sentences.append(
                f"{', '.join(self.without_prior)} had no prior, so that the unconstrained value "
                "was taken as uniform and the log evidence has an arbitrary constant; give priors."
            )
        return sentences
