"""Inducing variables that "auto" takes for kernels with coefficients or effects of groups."""

from __future__ import annotations

from latentgp.extensions.inter_domain.per_part import PerPart
from latentgp.representations import Inducing


def of_each_part(number: int) -> Inducing:
    """So many points, and the coefficients of the other parts."""
    return Inducing(features=PerPart(number))
