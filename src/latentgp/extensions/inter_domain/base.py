# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)
"""Inter-domain inducing variables by one protocol: K_uu as an operator, K_uf of rows.

A kind is a setting, an `InterDomain`, that makes inducing variables for rows and a kernel. Those of
most kinds are made of functions that are fixed before anything is learned (`FixedFunctions`): a
kernel is written as a sum of products, each part gets a basis of its columns, products of parts
Kronecker products and sums blocks. Hyper-parameters are in K_uu alone, or in one factor a function.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError
from latentgp.extensions.inter_domain.functions import (
    Basis,
    FixedFunctions,
    at_lengthscale,
    groups_of,
)
from latentgp.extensions.inter_domain.sums import is_summable, sums_of
from latentgp.kernels import LatentKernel
from latentgp.kernels.terms import Part, Term, terms_of
from latentgp.models import LatentGP
from latentgp.representations.inducing.features import InducingFeatures
from latentgp.representations.summary import RowsAsSums
from latentgp.rows import RowsInMemory
from latentgp.rows.arrays import evenly
from latentgp.rows.data import Data
from latentgp.typing import Inputs, PerRow, RandomKey

_PLACES = 64  # rows at which the variance that is left open is looked at
_ROUNDING = 1e-10  # a share of the prior variance
_USUAL = 0.1  # of the range of a column: length-scales that a search may well come to
_MOST = 10_000
MOST_FUNCTIONS = 1_000  # of a term, where no number is given


class InterDomain(InducingFeatures):
    """A kind of inter-domain inducing variables, as `Inducing(features=...)` takes it."""


class Demands(NamedTuple):
    """What the functions of a part of a kernel are to do."""

    weights: PerRow | None  # of the rows; None for ones
    # length-scale, in ranges of the columns, for which the functions are to do too; infinite for
    # that of the part alone
    shortest: float
    # share of the part's prior variance that may be left open, by a kind whose number of functions
    # follows from it
    left: float
    share: int = 1  # number of parts that the part is multiplied with, itself included


class FixedFeatures(InterDomain):
    """A kind whose variables are `FixedFunctions`: K_uf of rows holds no hyper-parameter.

    So sums over rows can be made once for all (`summarise`).
    """

    words: ClassVar[str]
    fewer: ClassVar[str] = "give a smaller number"

    @abstractmethod
    def basis(self, part: Part, columns: Inputs, demands: Demands) -> Basis:
        """Functions for one part of a kernel.

        The part is at the values that a search starts from, the columns are those that it sees.

        Raises:
            InputError: the kind has none for it.
        """

    def initialise(
        self, X: Inputs, weights: PerRow | None, kernel: LatentKernel, key: RandomKey
    ) -> FixedFunctions:
        return self.functions_for(X, weights, kernel, _USUAL)

    def renewed(
        self, variables: Any, X: Inputs, weights: PerRow | None, kernel: LatentKernel, share: float
    ) -> FixedFunctions | None:
        left = max(share * float(np.mean(variables.left_open(kernel))), _ROUNDING)
        others = self.functions_for(X, weights, kernel, left=left)
        return None if variables.serve_as(others, kernel) else others

    def has_sums(self, variables: Any) -> bool:
        return isinstance(variables, FixedFunctions) and variables.are_fixed

    def sums(self, model: LatentGP, data: Data, variables: Any) -> RowsAsSums | None:
        if not is_summable(model, data):
            return None
        return sums_of(model, RowsInMemory(data), variables, self)

    def functions_for(
        self,
        X: Inputs,
        weights: PerRow | None,
        kernel: LatentKernel,
        shortest: float = np.inf,
        left: float = np.inf,
    ) -> FixedFunctions:
        """The functions for some rows and a kernel; by default for its own length-scales alone.

        The demands are those of `Demands`. At most 1,000 functions of a term are made to meet them.

        Raises:
            InputError: the kernel is none that the kind has functions for.
        """
        X = np.asarray(X)
        counts = None if weights is None else np.asarray(weights)
        real = X if counts is None else X[counts > 0]
        counts = None if counts is None else counts[counts > 0]
        bases, demands = [], Demands(counts, shortest, left)
        for one in groups_of(kernel):
            terms = terms_of(one, tuple(range(X.shape[1])))
            bases.append(tuple(self._of_term(term, real, demands) for term in terms))
        number = max(sum(prod(b.number for b in own) for own in terms) for terms in bases)
        if number > _MOST:
            raise InputError(
                f"{self!r} makes {number} functions of this kernel, more than {_MOST}; "
                f"{self.fewer}, or give Inducing(number=...)."
            )
        return FixedFunctions(
            sample=_some(real), bases=tuple(bases), number=number, words=self.words
        )

    def _of_term(self, term: Term, X: Inputs, demands: Demands) -> tuple[Basis, ...]:
        seen = [column for part in term.parts for column in part.columns]
        if len(set(seen)) < len(seen):
            got = f"a product of kernels of the columns {seen}"
            refuse_kernel(type(self).__name__, "products of kernels of different columns", got)
        share = max(len(term.parts), 1)  # a constant has none
        demands = demands._replace(share=share, left=demands.left / share)
        return tuple(self.basis(part, X[:, part.columns], demands) for part in term.parts)


def as_needed(
    of_times: Callable[[int], Sequence[Basis]], part: Part, columns: Inputs, demands: Demands
) -> Basis:
    """The `least_open` basis of candidates, which are made of ever more functions until it does.

    Candidates have so many times as many functions as at first, up to a limit, where more of the
    prior variance may be left open than demanded.
    """
    times, found = 1, least_open(of_times(1), part, columns, demands.shortest)
    while np.isfinite(demands.left) and found.left_open(part.kernel, _some(columns)) > demands.left:
        times *= 2
        more = of_times(times)
        if more[0].number <= found.number:
            break
        found = least_open(more, part, columns, demands.shortest)
    return found


def least_open(candidates: Sequence[Basis], part: Part, columns: Inputs, shortest: float) -> Basis:
    """The basis that leaves least of a part's prior variance open, and of other length-scales.

    These are shorter ones, or where only its own count, twice as long: the smooth functions of a
    domain that is too small look rougher than they are, and a search ends before it should.
    """
    if len(candidates) == 1:
        return candidates[0]
    places = _some(columns)
    own: Any = part.kernel
    ranges = np.array([upper - lower for lower, upper in map(range_of, columns.T)])
    other = 2.0 * np.asarray(own.lengthscale)
    if np.isfinite(shortest):
        other = np.minimum(own.lengthscale, np.broadcast_to(shortest * ranges, columns.shape[1:]))
        other = other if np.ndim(own.lengthscale) else np.min(other)
    kernels = [own, at_lengthscale(own, other)]
    left = [sum(basis.left_open(kernel, places) for kernel in kernels) for basis in candidates]
    return candidates[int(np.argmin(left))]


def range_of(column: PerRow) -> tuple[float, float]:
    """Least and greatest value of a column; around a constant one, by one half."""
    lower, upper = float(np.min(column)), float(np.max(column))
    return (lower, upper) if upper > lower else (lower - 0.5, upper + 0.5)


def refuse_kernel(kind: Any, supported: str, got: str) -> NoReturn:
    """Raise InputError that an `InterDomain` kind has no functions for a kernel."""
    raise InputError(
        f"{kind} takes {supported}, but got {got}; use RandomFeatures(...) or Inducing(number=...)."
    )


def refuse_part(kind: str, supported: str, part: Part) -> NoReturn:
    """Raise InputError that an `InterDomain` kind has no functions for a part of a kernel."""
    seen = f"{len(part.columns)} column{'s' * (len(part.columns) > 1)}"
    supported = f"{supported}, sums and products of these and Constant"
    refuse_kernel(kind, supported, f"{type(part.kernel).__name__} of {seen}")


def _some(rows: Inputs) -> Float[np.ndarray, "places D"]:
    """Rows at which the variance that is left open is looked at."""
    return rows[evenly(len(rows), _PLACES)]
