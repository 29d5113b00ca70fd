"""What some representations can do besides: protocols, asked for by `isinstance`."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from latentgp.representations.inducing.selection import Selection
from latentgp.representations.summary import DataSummary


@runtime_checkable
class HoldsRows(Protocol):
    """New inputs are conditioned on the latents at rows, not on coefficients."""

    def draws_at_rows(self, draws: Any) -> Any:
        """Draws of white coefficients as draws of g at the rows, which predictions need.

        Args:
            draws: components of the posterior, by white coefficients.
        """
        ...


@runtime_checkable
class Streams(Protocol):
    """Further rows can be added to a summary of those so far."""

    def continues(self, remembered: DataSummary | None) -> bool:
        """Whether a summary is of its kind."""
        ...

    def extended(
        self, number: int | None, selection: Selection, remembered: DataSummary | None
    ) -> Any:
        """The same with a summary of the data so far.

        Args:
            number: at most so many inducing variables, where there are any; None keeps the own.
            selection: how points are chosen among rows and earlier points.
            remembered: the summary; None for none.
        """
        ...
