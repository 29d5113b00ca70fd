"""The evidence of a posterior, and marginals of latent functions."""

from typing import Literal, NamedTuple

EvidenceKind = Literal["exact", "lower bound", "approximation"]


class Evidence(NamedTuple):
    """The log evidence of the model, in nats, total over rows, named for what it is."""

    value: float
    kind: EvidenceKind

    def __float__(self) -> float:
        return self.value
