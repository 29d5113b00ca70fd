"""Verdict on depth: whether hidden layers pay on a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:
    from latentgp.surfaces.evaluation.comparison import Compared

Scored = tuple["Compared", Float[np.ndarray, "N"]]


def verdict(shallow: Sequence[Scored], deep: Sequence[Scored]) -> str:
    """Whether depth pays by two standard errors of held-out rows, and what the bounds say.

    Args:
        shallow: contenders without hidden layers, each with its NLPD row by row; NaN without fit.
        deep: those with some.

    Example:
        >>> from latentgp.surfaces.evaluation.comparison import Compared
        >>> one, two = (Compared(name, nlpd, 0.1) for name, nlpd in [("one", 1.0), ("two", 0.9)])
        >>> verdict([(one, np.array([1.0, 1.0, 1.0]))], [(two, np.array([0.9, 0.8, 1.0]))])
        'Depth does not pay here: two is ahead of one by 0.100 ± 0.058 nats a row.'
    """
    best_shallow, best_deep = _best(shallow), _best(deep)
    if best_shallow is None or best_deep is None:
        return "There is no verdict on depth: it takes a fit without hidden layers, and one with."
    (one, of_one), (many, of_many) = best_shallow, best_deep
    gain = of_one - of_many
    mean = float(np.mean(gain))
    error = float(np.std(gain, ddof=1) / np.sqrt(len(gain))) if len(gain) > 1 else np.nan
    if not np.isfinite(error):
        return "There is no verdict on depth: one held-out row says nothing of the error."
    said = "pays" if mean > 2 * error else "does not pay"
    where = "ahead of" if mean > 0 else "behind"
    told = f"Depth {said} here: {many.name} is {where} {one.name} by {abs(mean):.3f} ± {error:.3f}"
    bounded = [row for row, _ in (*shallow, *deep) if not np.isnan(row.bound)]
    if len(bounded) < 2:
        return f"{told} nats a row."
    highest = max(bounded, key=lambda row: row.bound)
    return f"{told} nats a row. {highest.name} has the highest bound, {highest.bound:.3f}."


def _best(scored: Sequence[Scored]) -> Scored | None:
    fitted = [(row, nlpd) for row, nlpd in scored if not np.isnan(row.nlpd)]
    return min(fitted, key=lambda own: own[0].nlpd, default=None)
