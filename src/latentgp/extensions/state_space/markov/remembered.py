"""Rows of a series so far, with their sites, or states: what an update goes on from."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float

from latentgp.errors import InputError
from latentgp.extensions import answer
from latentgp.extensions.state_space.kernels import Columns, Truncation
from latentgp.extensions.state_space.markov.beliefs import Starts
from latentgp.representations.summary import DataSummary
from latentgp.typing import Array, Inputs, Scalar


class RememberedRows(DataSummary):
    """Rows seen so far, exactly; those before a window by the states that they lead to."""

    centres: Float[Array, "earlier D"]  # their inputs
    linear: Float[Array, "earlier Q"]  # of their sites, as functions of g
    precision: Float[Array, "earlier Q"]  # likewise
    constant: Scalar
    signed: bool = eqx.field(static=True, default=False)
    # of what was approximated
    truncation: Truncation = eqx.field(static=True, default=Truncation())
    # states at the first rows, for each process; empty where all rows are remembered
    starts: tuple[Starts, ...] = ()

    @property
    def usual_representation(self) -> Any:
        return answer("representation of a series")()

    @property
    def latents(self) -> int:
        return self.linear.shape[1]

    @property
    def known(self) -> int:
        """Number of series that go on from a state."""
        return known_in(self.starts)

    def check(self, X: Inputs, columns: Columns) -> None:
        """Raise InputError if there are further rows from before the states."""
        early = before_states(np.asarray(self.centres)[: self.known], X, columns)
        if np.any(early):
            since = np.asarray(self.centres)[: self.known, columns.time]
            raise InputError(
                f"There are further rows at time {X[early, columns.time].min():g}, but an update "
                f"with a lag has left only what comes from {since.max():g} on; leave them out, "
                "add them to an earlier posterior, or update with a greater lag."
            )


def before_states(
    first: Float[np.ndarray, "series D"], X: Inputs, columns: Columns
) -> Bool[np.ndarray, "N"]:
    """Mask of rows before the state that their series continues from, at its first row."""
    early = np.zeros(len(X), bool)
    for row in first:
        before = X[:, columns.time] < row[columns.time]
        if columns.series is not None:
            before &= X[:, columns.series] == row[columns.series]
        early |= before
    return early


def known_in(starts: tuple[Starts, ...]) -> int:
    """Number of series with a state."""
    return starts[0].mean.shape[1] if starts else 0
