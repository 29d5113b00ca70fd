"""Elements: information of lanes of rows about the state before them, and their joining.

Given the state where a lane begins its rows are a Gaussian element (Särkkä & García-Fernández
2021). A loop over the lanes joins the elements. A GPU, which does as many numbers in the time of
one, joins groups of lanes side by side, and then the groups.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.extensions.state_space import lanes as small
from latentgp.extensions.state_space.lanes import Matrix, UnrolledMatrix, number, scaled
from latentgp.extensions.state_space.markov.beliefs import (
    Adjoint,
    Belief,
    Filter,
    full_pair,
    updated_back,
    zeros,
)
from latentgp.extensions.state_space.markov.series import Series
from latentgp.runtime.devices import on_processor
from latentgp.typing import Array

_JOINED_IN_TURN = 128


class Element(NamedTuple):
    """The rows of a lane given the state x before it.

    Their integral is exp(value + eta'x - x'J x / 2), and the state after them N(Phi x + mean, P).
    """

    belief: Belief
    Phi: Matrix
    eta: Matrix
    J: Matrix
    value: Any


def elements_of(
    process: Filter,
    series: Series,
    linear: Float[Array, "T *Q lanes"],
    precision: Float[Array, "T *S lanes"],
) -> Element:
    """Information of each lane about the state before it."""
    like_mean, like_spread = linear[0], precision[0]
    h = process.measurement(like_spread)

    def step(element: Element, at: Any) -> tuple[Element, None]:
        where, linear, precision = at
        A, Q = process.transition(where)
        mean = process.begun(A @ element.belief.mean, where)
        before = Belief(mean, process.moved(element.belief.spread, A, Q))
        moved = element._replace(belief=before, Phi=A @ element.Phi)
        told = _told(process, moved, h, linear, precision)
        return _full_element(told, like_mean, like_spread), None

    start = _no_rows(process, like_mean, like_spread)
    element, _ = jax.lax.scan(step, start, (series.lanes, linear, precision))
    return element


def _no_rows(process: Filter, like_mean: Any, like_spread: Any) -> Element:
    """The element of no rows."""
    size = process.space.size
    none = zeros(size, size, like_spread)
    unit = small.matrix(small.identity(size).rows, like_spread)
    return Element(
        Belief(zeros(size, 1, like_mean), none),
        small.full(unit, like_spread),
        zeros(size, 1, like_mean),
        none,
        jnp.zeros_like(like_mean),
    )


def joined(process: Filter, elements: Element) -> tuple[Belief, Adjoint, Float[Array, "*Q"]]:
    """Beliefs where lanes begin, the adjoint where they end, and the log evidence."""
    lanes, axis = elements.value.shape[-1], _axis_of_lanes(elements.J)
    if not join_in_groups(lanes):
        moved = jax.tree.map(
            lambda leaf: jnp.moveaxis(leaf, axis, 0), elements._replace(value=None)
        )
        each, size = moved._replace(value=jnp.moveaxis(elements.value, -1, 0)), process.space.size
        start = Belief(zeros(size, 1, each.value[0]), zeros(size, size, number(each.J)[0]))
        starts, values = _onward(process, start, each)
        ends = _back(process, Adjoint(*start), starts, each)
        back = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, axis), (starts, ends))
        return *back, jnp.sum(values, axis=0)
    each = _in_groups(process, elements, -(-lanes // round(lanes**0.5)))
    begin = _no_rows(process, each.value[0], number(each.J)[0])
    composed, _ = jax.lax.scan(partial(_composed, process), begin, each)
    first, last, evidence = joined(process, composed)
    starts, _ = _onward(process, first, each)
    ends = _back(process, last, starts, each)
    return *_from_groups((starts, ends), axis, lanes), evidence


def _told(process: Filter, element: Element, h: Matrix, linear: Any, precision: Any) -> Element:
    """An element after a site of h'x, x the state after its rows."""
    after = process.update(element.belief, h, linear, precision)
    c = element.Phi.mT @ h
    return Element(
        after.belief,
        element.Phi - scaled(after.g, after.weight) @ c.mT,
        element.eta + scaled(c, after.error),
        element.J + small.symmetric(scaled(c, after.weight) @ c.mT),
        element.value + after.value,
    )


def _composed(process: Filter, element: Element, later: Element) -> tuple[Element, None]:
    """One element of two that follow each other."""
    like_mean, like_spread = element.value, number(element.J)
    for u, D, y in zip(*small.unit_factors(later.J, later.eta), strict=True):
        element = _told(process, element, u, y, D)
    mean, spread = element.belief
    Phi, own = later.Phi, later.belief
    moved = Belief(Phi @ mean + own.mean, process.moved(spread, Phi, own.spread, own.spread))
    told = Element(moved, Phi @ element.Phi, element.eta, element.J, element.value + later.value)
    return _full_element(told, like_mean, like_spread), None


def _given(process: Filter, belief: Belief, element: Element) -> tuple[list[Any], Any]:
    """Updates of a belief by what an element says of it, and its log evidence."""
    total, found = element.value, []
    for u, D, y in zip(*small.unit_factors(element.J, element.eta), strict=True):
        after = process.update(belief, u, y, D)
        found.append((u, D, after))
        belief, total = after.belief, total + after.value
    return found, total


def _onward(process: Filter, start: Belief, each: Element) -> tuple[Belief, Any]:
    """Beliefs where elements begin, and the log evidence of each."""
    like_mean, like_spread = each.value[0], number(each.J)[0]

    def forward(belief: Belief, element: Element) -> tuple[Belief, Any]:
        found, total = _given(process, belief, element)
        known, Phi, own = found[-1][2].belief, element.Phi, element.belief
        spread = process.moved(known.spread, Phi, own.spread, own.spread)
        after = Belief(Phi @ known.mean + own.mean, spread)
        return full_pair(after, like_mean, like_spread), (belief, total)

    return jax.lax.scan(forward, start, each)[1]


def _back(process: Filter, end: Adjoint, starts: Belief, each: Element) -> Adjoint:
    """The adjoint where elements end."""
    like_mean, like_spread = each.value[0], number(each.J)[0]

    def backward(later: Adjoint, at: Any) -> tuple[Adjoint, Adjoint]:
        belief, element = at
        (found, _), Phi = _given(process, belief, element), element.Phi
        now = Adjoint(Phi.mT @ later.r, small.symmetric(Phi.mT @ later.N @ Phi))
        for u, D, after in reversed(found):
            gain = process.known(after.belief).spread @ u
            now = updated_back(now, u, gain, D, after.error, after.weight)
        return full_pair(now, like_mean, like_spread), later

    return jax.lax.scan(backward, end, (starts, each), reverse=True)[1]


def _full_element(element: Element, like_mean: Any, like_spread: Any) -> Element:
    return element._replace(
        belief=full_pair(element.belief, like_mean, like_spread),
        Phi=small.full(element.Phi, like_spread),
        eta=small.full(element.eta, like_mean),
        J=small.full(element.J, like_spread),
    )


def _axis_of_lanes(M: Matrix) -> int:
    """Where the lanes' axis is in the leaves of a matrix, from the end."""
    return -1 if isinstance(M, UnrolledMatrix) else -3


def _in_groups(process: Filter, elements: Element, size: int) -> Element:
    """Groups of consecutive lanes side by side, the lanes of each in front."""
    lanes = elements.value.shape[-1]
    groups = -(-lanes // size)
    axis = _axis_of_lanes(elements.J)

    def cut(leaf: Any, filling: Any, axis: int) -> Any:
        more = jax.lax.slice_in_dim(filling, 0, groups * size - lanes, axis=axis)
        whole = jnp.concatenate([leaf, more], axis)
        axis += whole.ndim
        shape = *whole.shape[:axis], groups, size, *whole.shape[axis + 1 :]
        return jnp.moveaxis(whole.reshape(shape), axis + 1, 0)

    filling = _no_rows(process, elements.value, number(elements.J))
    value = cut(elements.value, filling.value, -1)
    rest = (tree._replace(value=None) for tree in (elements, filling))
    return jax.tree.map(partial(cut, axis=axis), *rest)._replace(value=value)


def _from_groups(tree: Any, axis: int, lanes: int) -> Any:
    """Lanes as they were before they were in groups."""

    def joined(leaf: Any) -> Any:
        at = leaf.ndim + axis  # of the groups, after their lanes are behind them
        leaf = jnp.moveaxis(leaf, 0, at)
        whole = leaf.reshape(*leaf.shape[: at - 1], -1, *leaf.shape[at + 1 :])
        return jax.lax.slice_in_dim(whole, 0, lanes, axis=axis)

    return jax.tree.map(joined, tree)


def join_in_groups(number: int) -> bool:
    """Whether so many things that follow each other are joined in groups side by side, then these.

    That takes fewer steps and more operations than one after another.
    """
    return number > _JOINED_IN_TURN and not on_processor()
