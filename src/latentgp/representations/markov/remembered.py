"""Rows of a series so far, with their sites: what an exact update goes on from."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Float

from latentgp.kernels.state_space import Truncation
from latentgp.representations.summary import DataSummary
from latentgp.typing import Array


class RememberedRows(DataSummary):
    """Rows seen so far, exactly.

    Attributes:
        centres: their inputs, shape (O, D).
        linear: of their sites, as functions of g, shape (O, Q).
        precision: likewise.
        truncation: of what was approximated.
    """

    centres: Float[Array, "O D"]
    linear: Float[Array, "O Q"]
    precision: Float[Array, "O Q"]
    constant: Float[Array, ""]
    signed: bool = eqx.field(static=True, default=False)
    truncation: Truncation = eqx.field(static=True, default=Truncation())

    @property
    def latents(self) -> int:
        return self.linear.shape[1]
