"""What rows leave to the prior: variances of groupings, and coefficients that separate classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Num

from latentgp.kernels import CorrelatedLinear, FixedEffects, Linear, SameGroup
from latentgp.kernels.terms import terms_of
from latentgp.means import ZeroMean
from latentgp.models import LatentGP
from latentgp.representations.latent_axis import distinct_kernels
from latentgp.rows.data import Data

_LARGEST_DESIGN = 200_000  # numbers in a table of columns that is looked at for separation


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


def untold_variances(model: LatentGP, rows: Data, names: Sequence[str] | None) -> tuple[str, ...]:
    """Sentences on groupings of the same groups, and on what tells the classes apart.

    Args:
        model: with fixed effects, or effects of groups.
        rows: that are fitted.
        names: of the columns.

    Example:
        >>> from latentgp import Gaussian
        >>> from latentgp.kernels import Constant
        >>> kernel = sum(Constant() * SameGroup().on(column) for column in (0, 1))
        >>> rows = Data(np.array([[1.0, 7.0], [1.0, 7.0], [2.0, 5.0]]), np.arange(3.0))
        >>> print(*untold_variances(LatentGP(kernel, Gaussian()), rows, ("who", "where")))
        Columns who and where group the rows alike: only the sum of their variances is known.
    """
    X, of_classes = rows.X, model.likelihood.targets == "class" and rows.y.ndim == 1
    said = []

    def named(columns: tuple[int, ...]) -> str:
        return ":".join(str(c) if names is None else names[c] for c in columns)

    for kernel in distinct_kernels(model.kernel):
        found = list(_groupings(kernel, X.shape[1]))
        for a, b in combinations(found, 2):
            one, two = X[:, a.columns], X[:, b.columns]
            if a.shares_variance(b) and is_within(one, two) and is_within(two, one):
                said.append(
                    f"Columns {named(a.columns)} and {named(b.columns)} group the rows alike: only "
                    "the sum of their variances is known."
                )
        said += [
            f"Column {named(own.columns)} tells the classes apart: the variance of its effects is "
            "bounded by the prior alone."
            for own in found
            if of_classes
            and np.any(_repeats(X[:, own.columns])[1])
            and is_within(X[:, own.columns], rows.y[:, None])
        ]
    if of_classes and model.likelihood.latent_size == 1:
        for own in _separating(model, rows):
            who = " and ".join(named((column,)) for column in own)
            alone = f"Column {who} separates", "its coefficient is"
            what, which = (
                alone if len(own) == 1 else (f"Columns {who} separate", "coefficients are")
            )
            said.append(f"{what} the classes: {which} bounded by the prior alone.")
    return tuple(dict.fromkeys(said))


def is_within(fine: Num[np.ndarray, "N columns"], coarse: Num[np.ndarray, "N others"]) -> bool:
    """Whether rows of one group of the first are all of one group of the second.

    Example:
        >>> is_within(np.array([[1.0], [1.0], [2.0]]), np.array([[3.0], [4.0], [4.0]]))
        False
    """
    order, same = _repeats(fine)
    return not np.any(same & np.any(np.diff(coarse[order], axis=0) != 0, axis=1))


def _separating(model: LatentGP, rows: Data) -> list[tuple[int, ...]]:
    """Columns of fixed effects that separate two classes, each alone or some together."""
    terms = terms_of(model.kernel, tuple(range(rows.X.shape[1])))
    effects = [term.parts[0] for term in terms if len(term.parts) == 1]
    columns = [c for own in effects if isinstance(own.kernel, FixedEffects) for c in own.columns]
    values = np.unique(rows.y)
    if not columns or len(values) != 2 or rows.size * len(columns) > _LARGEST_DESIGN:
        return []
    sign = np.where(rows.y == values[0], -1.0, 1.0)
    X = rows.X[:, columns]
    constant = np.ptp(X, axis=0) == 0
    X = X / np.max(np.abs(X), axis=0, initial=np.finfo(float).tiny)
    levels = X[:, constant]
    if not isinstance(model.mean, ZeroMean):
        levels = np.ones((rows.size, 1))
    varying = np.flatnonzero(~constant)
    together = _direction(np.hstack([X[:, varying], levels]), sign)[: len(varying)]
    if not together.any():
        return []
    alone = [
        (columns[c],) for c in varying if _direction(np.hstack([X[:, [c]], levels]), sign).any()
    ]
    return alone or [tuple(columns[c] for c in varying[together])]


def _direction(
    X: Num[np.ndarray, "N columns"], sign: Num[np.ndarray, "N"]
) -> Bool[np.ndarray, "columns"]:
    """Columns of a linear function that is on one side for each class, and not zero (Konis 2007).

    It has the greatest sum over the rows among those with coefficients in [-1, 1].
    """
    from scipy.optimize import linprog  # takes long to import

    toward = X * sign[:, None]
    found = linprog(-toward.sum(axis=0), A_ub=-toward, b_ub=np.zeros(len(X)), bounds=(-1, 1))
    separates = found.status == 0 and -found.fun > 1e-6
    return np.abs(found.x) > 1e-6 if separates else np.zeros(X.shape[1], bool)


def _repeats(
    X: Num[np.ndarray, "N columns"],
) -> tuple[Int[np.ndarray, "N"], Bool[np.ndarray, "less"]]:
    """An order in which equal rows are together, and which are as the ones before them."""
    order = np.lexsort(X.T)
    return order, np.all(np.diff(X[order], axis=0) == 0, axis=1)


def _kind(kernel: Any) -> type:
    """The type of a kernel; of lines through zero one, correlated or not."""
    return type(kernel) if getattr(kernel, "intercept", True) else Linear


def _groupings(kernel: Any, inputs: int) -> Iterator[_Grouping]:
    for term in terms_of(kernel, tuple(range(inputs))):
        kinds = [(_kind(part.kernel), part.columns) for part in term.parts]
        columns = tuple(c for kind, own in kinds if kind is SameGroup for c in own)
        if columns:
            yield _Grouping(columns, frozenset(own for own in kinds if own[0] is not SameGroup))
