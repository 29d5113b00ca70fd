"""Rows of a series so far, with their sites, or states: what an update goes on from."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Float

from latentgp.kernels.state_space import Truncation
from latentgp.representations.markov.beliefs import Starts
from latentgp.representations.summary import DataSummary
from latentgp.typing import Array


class RememberedRows(DataSummary):
    """Rows seen so far, exactly; those before a window by the states that they lead to.

    Attributes:
        centres: their inputs, shape (O, D).
        linear: of their sites, as functions of g, shape (O, Q).
        precision: likewise.
        truncation: of what was approximated.
        starts: states at the first rows, for each process; empty where all rows are remembered.
    """

    centres: Float[Array, "O D"]
    linear: Float[Array, "O Q"]
    precision: Float[Array, "O Q"]
    constant: Float[Array, ""]
    signed: bool = eqx.field(static=True, default=False)
    truncation: Truncation = eqx.field(static=True, default=Truncation())
    starts: tuple[Starts, ...] = ()

    @property
    def latents(self) -> int:
        return self.linear.shape[1]

    @property
    def known(self) -> int:
        """Number of series that go on from a state."""
        return known_in(self.starts)


def known_in(starts: tuple[Starts, ...]) -> int:
    """Number of series with a state."""
    return starts[0].mean.shape[1] if starts else 0
