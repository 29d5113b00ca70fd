"""Posterior of the parts of f, where its kernel is a sum: trend, season and the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from latentgp.typing import Inputs
from latentgp.validation import interval_levels


class Part(NamedTuple):
    """Posterior of one part of f at some inputs.

    Attributes:
        mean: shape (N,), or (N, Q) for Q > 1 latent functions.
        variance: likewise.
    """

    mean: Float[np.ndarray, "N *Q"]
    variance: Float[np.ndarray, "N *Q"]

    def interval(
        self, level: float = 0.95
    ) -> tuple[Float[np.ndarray, "N *Q"], Float[np.ndarray, "N *Q"]]:
        """Ends of the central interval of a normal law with these moments."""
        lower, upper = interval_levels(level)
        deviation = np.sqrt(self.variance)
        return self.mean + ndtri(lower) * deviation, self.mean + ndtri(upper) * deviation


class Parts(Mapping[str, Part]):
    """Posteriors of all parts of f by name; their means and the prior mean add up to that of f.

    Attributes:
        prior_mean: of f, shape (N,) or (N, Q), which belongs to no part.
    """

    def __init__(self, parts: Mapping[str, Part], prior_mean: Float[np.ndarray, "N *Q"]):
        self._parts, self.prior_mean = dict(parts), prior_mean

    def __getitem__(self, name: str) -> Part:
        return self._parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __repr__(self) -> str:
        return f"Parts({', '.join(self._parts)})"


def rows_of_parts(X: Inputs, number: int) -> Float[np.ndarray, "rows columns"]:
    """Rows of the first part at X, then of the second, and so on."""
    units = np.repeat(np.eye(number), len(X), axis=0)
    return np.concatenate([np.tile(X, (number, 1)), units], axis=1)
