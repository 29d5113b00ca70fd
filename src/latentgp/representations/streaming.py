"""The representation with which a stream of rows goes on."""

from __future__ import annotations

from latentgp.representations.base import Representation
from latentgp.representations.inducing.algebra import ByVariables
from latentgp.representations.inducing.representation import Inducing
from latentgp.representations.inducing.selection import Selection
from latentgp.representations.inducing.stream import StreamingPrior
from latentgp.representations.random_features import FeatureWeights, RandomFeatures


def going_on(
    own: Representation,
    remembered: StreamingPrior | None,
    number: int | None,
    usual: int,
    selection: Selection,
) -> ByVariables:
    """A representation by inducing variables, with a summary of the rows so far.

    Args:
        own: of the method: what it has is kept where it is by such variables.
        remembered: the summary, of variables of one kind; None for none.
        number: at most so many inducing variables; None keeps the own number.
        usual: the number where there is none.
        selection: how points are chosen among rows and earlier points.
    """
    weights = remembered is not None and isinstance(remembered.centres, FeatureWeights)
    if isinstance(own, ByVariables) and weights == isinstance(own, RandomFeatures):
        return own.extended(number, selection, remembered)
    started = RandomFeatures() if weights else Inducing(number=usual)
    return started.extended(number, selection, remembered)
