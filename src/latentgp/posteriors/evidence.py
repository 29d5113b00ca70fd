"""The evidence of a posterior, and marginals of latent functions."""

from __future__ import annotations

from typing import Literal, NamedTuple

EvidenceKind = Literal["exact", "lower bound", "approximation"]


class Evidence(NamedTuple):
    """Log evidence of the model, in nats, total over rows, with its kind."""

    value: float
    kind: EvidenceKind

    def __float__(self) -> float:
        return self.value
