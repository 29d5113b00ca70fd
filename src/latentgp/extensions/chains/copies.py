"""Row weights where sites are drawn: a row of weight w is w rows, each with a draw of its own."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from latentgp.modules import stored
from latentgp.rows.arrays import check_values
from latentgp.sites.gaussian import GaussianSites, Rows
from latentgp.typing import Array, RowLatents


@stored
class Copies(NamedTuple):
    """Rows repeated as often as their weights say, and whose copies they are."""

    rows: Rows  # without weights, one a copy
    origin: Int[Array, "copies"]  # the row that each is a copy of

    def spread(self, f: RowLatents) -> Float[Array, "copies Q"]:
        """Latents of the copies."""
        return f[self.origin]

    def gather(self, sites: GaussianSites, size: int) -> GaussianSites:
        """Sums of the copies' sites, one a row."""
        return GaussianSites(*(jax.ops.segment_sum(field, self.origin, size) for field in sites))


def copies_of(rows: Rows) -> Copies:
    """Every row as often as its weight says; InputError unless weights are whole numbers."""
    size = len(rows.y)
    weights = np.ones(size) if rows.weights is None else np.asarray(rows.weights)
    kind = "whole numbers, numbers of copies, where draws are made"
    check_values("weights", weights, weights == np.floor(weights), kind, "use AugmentedVI")
    origin = np.repeat(np.arange(size), weights.astype(int))
    side = {name: values[origin] for name, values in rows.side.items()}
    return Copies(Rows(rows.y[origin], None, side), jax.numpy.asarray(origin))
