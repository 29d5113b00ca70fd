"""A kernel as a sum of products: terms whose parts each see some columns."""

from __future__ import annotations

from functools import singledispatch
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Float

from latentgp.kernels.base import ActiveDimensions, Constant, Kernel, Product, Scaled, Sum
from latentgp.kernels.weighted import WeightedSum
from latentgp.typing import Array


class Part(NamedTuple):
    """A kernel that is neither a sum, a product, a scaling nor a selection."""

    kernel: Kernel  # of its own columns
    columns: tuple[int, ...]  # which of the inputs these are


class Term(NamedTuple):
    """A positive number times a product of parts; of none, a constant function."""

    scale: Float[Array, ""]
    parts: tuple[Part, ...]


@singledispatch
def terms_of(kernel: Kernel, columns: tuple[int, ...]) -> tuple[Term, ...]:
    """The terms of a kernel of some columns, products of sums multiplied out.

    Example:
        >>> from latentgp import RBF, Matern32
        >>> terms = terms_of(2.0 * RBF().on(1) + Matern32().on(0) * RBF().on(1), (0, 1))
        >>> [[part.columns for part in term.parts] for term in terms]
        [[(1,)], [(0,), (1,)]]
    """
    return (Term(jnp.ones(()), (Part(kernel, columns),)),)


@terms_of.register
def _(kernel: Constant, columns: tuple[int, ...]) -> tuple[Term, ...]:
    return (Term(jnp.asarray(kernel.variance), ()),)


@terms_of.register
def _(kernel: Scaled, columns: tuple[int, ...]) -> tuple[Term, ...]:
    terms = terms_of(kernel.kernel, columns)
    return tuple(term._replace(scale=kernel.scale * term.scale) for term in terms)


@terms_of.register
def _(kernel: ActiveDimensions, columns: tuple[int, ...]) -> tuple[Term, ...]:
    return terms_of(kernel.kernel, tuple(columns[index] for index in kernel.dimensions))


@terms_of.register
def _(kernel: Sum, columns: tuple[int, ...]) -> tuple[Term, ...]:
    return tuple(term for part in kernel.parts for term in terms_of(part, columns))


@terms_of.register
def _(kernel: WeightedSum, columns: tuple[int, ...]) -> tuple[Term, ...]:
    scaled = (Scaled(part, w) for part, w in zip(kernel.parts, kernel.weights, strict=True))
    return tuple(term for part in scaled for term in terms_of(part, columns))


@terms_of.register
def _(kernel: Product, columns: tuple[int, ...]) -> tuple[Term, ...]:
    first, *others = (terms_of(part, columns) for part in kernel.parts)
    for own in others:
        first = tuple(Term(a.scale * b.scale, a.parts + b.parts) for a in first for b in own)
    return first
