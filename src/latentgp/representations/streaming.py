"""The representation with which a stream of rows goes on."""

from __future__ import annotations

from typing import Any

from latentgp.representations.base import Representation
from latentgp.representations.inducing.representation import Inducing
from latentgp.representations.inducing.selection import Selection
from latentgp.representations.protocols import Streams
from latentgp.representations.summary import DataSummary


def going_on(
    own: Representation,
    remembered: DataSummary | None,
    number: int | None,
    usual: int,
    selection: Selection,
) -> Representation:
    """A representation with a summary of the rows so far.

    Args:
        own: of the method: what it has is kept where it is of the summary's kind.
        remembered: the summary: rows of a series, or inducing variables of one kind; None for none.
        number: at most so many inducing variables; None keeps the own number.
        usual: the number where there is none.
        selection: how points are chosen among rows and earlier points.
    """
    streams: Any = own
    if not (isinstance(own, Streams) and own.continues(remembered)):
        usual_of_kind = None if remembered is None else remembered.usual_representation
        streams = usual_of_kind or Inducing(number=usual)
    return streams.extended(number, selection, remembered)
