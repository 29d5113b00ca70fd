"""Rows of places and times so far: what an update goes on from."""

from __future__ import annotations

from typing import Any

import equinox as eqx

from latentgp.extension import at
from latentgp.extensions.state_space.markov.remembered import RememberedRows
from latentgp.typing import PerRow, Points


class RememberedReports(RememberedRows):
    """Rows so far with their sites, of which the variance that points leave open is part."""

    powers: PerRow | None = None  # how that variance counts, of each
    points: Points | None = None  # inducing points in space, without a column of time
    time: int = eqx.field(static=True, default=0)

    @property
    def usual_representation(self) -> Any:
        own = at(f"{__package__}.representation:SpaceTime")
        return own(points=self.points)
