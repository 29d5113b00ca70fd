"""Groupings of which the rows say less than a variance each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from latentgp.kernels import CorrelatedLinear, LatentKernel, Linear, SameGroup
from latentgp.kernels.terms import terms_of
from latentgp.representations.latent_axis import distinct_kernels


class _Grouping(NamedTuple):
    """A term that has a function of every group's own."""

    columns: tuple[int, ...]  # that tell groups apart
    functions: frozenset[Any]  # of which columns, and of which kinds

    def shares_variance(self, other: _Grouping) -> bool:
        """Whether both have the same lines, or one intercepts and the other lines with these."""
        one, two = self.functions, other.functions
        kinds = {kind for kind, _ in one | two}
        with_intercepts = kinds == {CorrelatedLinear} and not (one and two)
        return kinds <= {Linear, CorrelatedLinear} and (one == two or with_intercepts)


def known_by_sums(
    kernel: LatentKernel, X: Float[np.ndarray, "N D"], names: Sequence[str] | None, noisy: bool
) -> tuple[str, ...]:
    """Sentences on groupings that group rows alike, and on those with a group for every row.

    Args:
        kernel: of the latent functions.
        X: the rows.
        names: of the columns.
        noisy: whether the targets have noise, whose variance is learned.

    Example:
        >>> from latentgp.kernels import Constant, SameGroup
        >>> intercepts = [Constant() * SameGroup().on(column) for column in (0, 1)]
        >>> X = np.array([[1.0, 7.0], [1.0, 7.0], [2.0, 5.0]])
        >>> print(*known_by_sums(sum(intercepts), X, ("person", "place"), True))
        Columns person and place group the rows alike: only the sum of their variances is known.
    """
    said = []

    def named(columns: tuple[int, ...]) -> str:
        return ":".join(str(c) if names is None else names[c] for c in columns)

    for own in distinct_kernels(kernel):
        found = _groupings(own, X.shape[1])
        pairs = [(a, b) for a, b in combinations(found, 2) if a.shares_variance(b)]
        said += [
            f"Columns {named(a.columns)} and {named(b.columns)} group the rows alike: only the sum "
            "of their variances is known."
            for a, b in pairs
            if is_within(X[:, a.columns], X[:, b.columns])
            and is_within(X[:, b.columns], X[:, a.columns])
        ]
        said += [
            f"Column {named(a.columns)} has a group for every row: only the sum of its variance "
            "and that of noise is known."
            for a in found
            if noisy and not a.functions and not np.any(_repeats(X[:, a.columns])[1])
        ]
    return tuple(dict.fromkeys(said))


def is_within(fine: Float[np.ndarray, "N columns"], coarse: Float[np.ndarray, "N others"]) -> bool:
    """Whether rows of one group of the first are all of one group of the second.

    Example:
        >>> is_within(np.array([[1.0], [1.0], [2.0]]), np.array([[3.0], [4.0], [4.0]]))
        False
    """
    order, same = _repeats(fine)
    return not np.any(same & np.any(np.diff(coarse[order], axis=0) != 0, axis=1))


def _repeats(X: Float[np.ndarray, "N columns"]) -> tuple[np.ndarray, np.ndarray]:
    """An order in which equal rows are together, and which are as the ones before them."""
    order = np.lexsort(X.T)
    return order, np.all(np.diff(X[order], axis=0) == 0, axis=1)


def _groupings(kernel: Any, inputs: int) -> list[_Grouping]:
    made = []
    for term in terms_of(kernel, tuple(range(inputs))):
        kinds = [(type(part.kernel), part.columns) for part in term.parts]
        columns = tuple(c for kind, own in kinds if kind is SameGroup for c in own)
        functions = frozenset(own for own in kinds if own[0] is not SameGroup)
        made += [_Grouping(columns, functions)] if columns else []
    return made
