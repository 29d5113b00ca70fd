"""The evidence of a posterior, and marginals of latent functions."""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

EvidenceKind = Literal["exact", "lower bound", "approximation"]


class Evidence(NamedTuple):
    """The log evidence of the model, in nats, total over rows, named for what it is."""

    value: float
    kind: EvidenceKind

    def __float__(self) -> float:
        return self.value


class Marginals(NamedTuple):
    """Means and variances of the latent functions, shape (N,), or (N, Q) for Q > 1."""

    mean: Float[np.ndarray, "N *Q"]
    variance: Float[np.ndarray, "N *Q"]
