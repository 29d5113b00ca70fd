"""Rows of a series so far, with their sites: what an exact update goes on from."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Float

from latentgp.representations.summary import DataSummary
from latentgp.typing import Array


class RememberedRows(DataSummary):
    """Rows seen so far, exactly.

    Attributes:
        centres: their inputs, shape (O, D).
        linear: of their sites, as functions of g, shape (O, Q).
        precision: likewise.
    """

    centres: Float[Array, "O D"]
    linear: Float[Array, "O Q"]
    precision: Float[Array, "O Q"]
    constant: Float[Array, ""]
    signed: bool = eqx.field(static=True, default=False)

    @property
    def latents(self) -> int:
        return self.linear.shape[1]
