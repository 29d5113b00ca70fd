"""The representation with which a stream of rows goes on."""

from __future__ import annotations

import dataclasses

from latentgp.extensions.deep.random_features import FeatureWeights, RandomFeatures
from latentgp.extensions.state_space.markov.remembered import RememberedRows
from latentgp.extensions.state_space.markov.representation import Markov
from latentgp.representations.base import Representation
from latentgp.representations.inducing.algebra import ByVariables
from latentgp.representations.inducing.representation import Inducing
from latentgp.representations.inducing.selection import Selection
from latentgp.representations.inducing.stream import StreamingPrior
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
    if isinstance(remembered, RememberedRows) or (remembered is None and isinstance(own, Markov)):
        series = own if isinstance(own, Markov) else Markov()
        if remembered is None:
            return dataclasses.replace(series, remembered=None)
        states, harmonics = remembered.truncation
        return dataclasses.replace(
            series, remembered=remembered, rbf_states=states, harmonics=harmonics
        )
    assert isinstance(remembered, StreamingPrior | None)
    weights = remembered is not None and isinstance(remembered.centres, FeatureWeights)
    if isinstance(own, ByVariables) and weights == isinstance(own, RandomFeatures):
        return own.extended(number, selection, remembered)
    started = RandomFeatures() if weights else Inducing(number=usual)
    return started.extended(number, selection, remembered)
