"""Kernels of space and time as sums of products, k(x, x') = sum_j k_j(t, t') c_j(s, s')."""

from __future__ import annotations

from functools import singledispatch
from itertools import chain, product
from typing import NamedTuple

from latentgp.errors import InputError
from latentgp.extensions.state_space.kernels import columns_seen
from latentgp.kernels.base import ActiveDimensions, Constant, Kernel, Product, Scaled, Sum
from latentgp.kernels.weighted import WeightedSum


class SeparableTerm(NamedTuple):
    """A kernel of time alone times one of space alone."""

    time: Kernel  # of the column of time
    space: Kernel | None  # of whole inputs, of which it sees other columns; None for a constant one

    @property
    def product(self) -> Kernel:
        """Both as one kernel."""
        return self.time if self.space is None else self.time * self.space


class _Factors(NamedTuple):
    """Factors of a product, those of time and those of space."""

    time: tuple[Kernel, ...]
    space: tuple[Kernel, ...]


def separable_terms(kernel: Kernel, inputs: int, time: int) -> list[SeparableTerm]:
    """The terms of a kernel of so many columns, of which one is time.

    Raises:
        InputError: a factor sees time and other columns, or time is no column.

    Example:
        >>> from latentgp import RBF, Matern32
        >>> terms = separable_terms(Matern32().on(0) * RBF().on(1, 2) + Matern32().on(0), 3, 0)
        >>> [term.space is None for term in terms]
        [False, True]
    """
    if not 0 <= time < inputs:
        raise InputError(
            f"The column of time must be one of the {inputs} input columns, got time={time}; "
            "columns are counted from 0."
        )
    return [
        SeparableTerm(_of_time(own), _multiplied(own.space) if own.space else None)
        for own in _terms(kernel, tuple(range(inputs)), time)
    ]


def _multiplied(factors: tuple[Kernel, ...]) -> Kernel:
    return factors[0] if len(factors) == 1 else Product(factors)


def _of_time(factors: _Factors) -> Kernel:
    return _multiplied(factors.time or (Constant(1.0),))


def _terms(kernel: Kernel, columns: tuple[int, ...], time: int) -> list[_Factors]:
    """Terms of a kernel whose own columns are these of the inputs."""
    own = kernel if columns == tuple(range(len(columns))) else kernel.on(*columns)
    seen = {columns[column] for column in columns_seen(kernel, len(columns))}
    if seen <= {time}:
        return [_Factors((own,), ())]
    if time not in seen:
        return [_Factors((), (own,))]
    return _of_both(kernel, columns, time)


@singledispatch
def _of_both(kernel: Kernel, columns: tuple[int, ...], time: int) -> list[_Factors]:
    """Terms of a kernel that sees time and other columns."""
    others = sorted({columns[c] for c in columns_seen(kernel, len(columns))} - {time})
    raise InputError(
        f"SpaceTime() takes sums of products of kernels of time and kernels of space, but "
        f"{kernel!r} sees column {time}, which is time, and columns {others}; name the columns of "
        "each, as in Matern32().on(0) * Matern52().on(1, 2), or use Inducing(...) or Dense()."
    )


@_of_both.register
def _(kernel: ActiveDimensions, columns: tuple[int, ...], time: int) -> list[_Factors]:
    return _terms(kernel.kernel, tuple(columns[c] for c in kernel.dimensions), time)


@_of_both.register
def _(kernel: Scaled, columns: tuple[int, ...], time: int) -> list[_Factors]:
    terms = _terms(kernel.kernel, columns, time)
    return [own._replace(time=(Scaled(_of_time(own), kernel.scale),)) for own in terms]


@_of_both.register
def _(kernel: Sum, columns: tuple[int, ...], time: int) -> list[_Factors]:
    return [own for part in kernel.parts for own in _terms(part, columns, time)]


@_of_both.register
def _(kernel: WeightedSum, columns: tuple[int, ...], time: int) -> list[_Factors]:
    scaled = map(Scaled, kernel.parts, kernel.weights)
    return [own for part in scaled for own in _terms(part, columns, time)]


@_of_both.register
def _(kernel: Product, columns: tuple[int, ...], time: int) -> list[_Factors]:
    each = [_terms(part, columns, time) for part in kernel.parts]
    return [
        _Factors(*(tuple(chain(*own)) for own in zip(*chosen, strict=True)))
        for chosen in product(*each)
    ]
