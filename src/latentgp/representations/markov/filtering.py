"""Filter and smoother of a state-space process in lanes, with its adjoint written by hand.

A series is cut into lanes of consecutive rows, and all lanes take a step at a time, each entry of
the small matrices an array over them. Given the state where a lane begins, its rows are a Gaussian
element (Särkkä & García-Fernández 2021); one loop over the lanes joins the elements. Evidence
needs these two; marginals and derivatives need the filter in each lane, from where the lane
really begins, and the adjoint back.

Covariances are kept as roots, L with P = L L'. An update by a site exp(l f - w f^2 / 2) of f = h'x
is Potter's, a transition an orthogonalisation of [A L, Q^1/2]. Where precisions can be negative
they are kept as they are.

The adjoint (r, N) is that of de Jong (1988): the log evidence has the derivatives r in a predicted
mean and (r r' - N) / 2 in a predicted covariance, the smoothed mean is m + P r and the smoothed
covariance P - P N P.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.kernels.state_space import StateSpace
from latentgp.numerics import lanes as small
from latentgp.numerics.lanes import Matrix, Unrolled, number, scaled
from latentgp.representations.markov.series import Lanes, Series
from latentgp.typing import Array

_FEW_STATES = 2


class Belief(NamedTuple):
    """N(mean, P) of a state.

    Attributes:
        mean: shape (d, 1).
        spread: the root of P, or P.
    """

    mean: Matrix
    spread: Matrix


class Adjoint(NamedTuple):
    """How what comes later depends on a state."""

    r: Matrix
    N: Matrix


class Starts(NamedTuple):
    """Known states from which series go on, in place of the prior.

    Attributes:
        mean: of K series, shape (Q, K, d).
        covariance: shape (Q, K, d, d).
    """

    mean: Float[Array, "Q K d"]
    covariance: Float[Array, "Q K d d"]


class Filtered(NamedTuple):
    """What the filter leaves for the smoother.

    Attributes:
        before: means and covariances of the state after the row before each, entries of shape
            (L, ..., C), covariances without their upper half.
        error: e = (l - w m) / S of each row, for S = 1 + w h'P h.
        weight: w / S.
        last: mean and covariance where lanes end.
        ends: the adjoint where lanes end.
        log_evidence: of each latent.
    """

    before: Any
    error: Float[Array, "L *Q C"]
    weight: Float[Array, "L *Q C"]
    last: Belief
    ends: Adjoint
    log_evidence: Float[Array, "*Q"]


class Smoothed(NamedTuple):
    """Marginals of f at the rows, and the adjoint before each row's update, in lanes."""

    mean: Float[Array, "L *Q C"]
    variance: Float[Array, "L *Q C"]
    adjoint: Any


class Filter(eqx.Module):
    """The arithmetic of one process.

    Attributes:
        space: its state-space form; leaves broadcast against lanes.
        signed: whether precisions can be negative.
        starts: states from which series go on; None where all begin at the prior.
    """

    space: StateSpace
    signed: bool = eqx.field(static=True)
    starts: Starts | None = None

    def measurement(self, lanes: Any) -> Matrix:
        """h, shape (d, 1)."""
        return small.matrix([[entry] for entry in self.space.measurement], lanes)

    def transition(self, at: Lanes, space: StateSpace | None = None) -> tuple[Matrix, Matrix]:
        """A and Q of a step: none and the prior's covariance where a series begins.

        Where it goes on from a known state Q is the covariance of that, which a process given as
        an argument leaves out: it does not depend on the process.
        """
        own = space is None
        space = self.space if space is None else space
        nothing = Unrolled([[0.0] * space.size] * space.size)
        found = *space.transition(at.time, at.gap), space.covariance(at.time), nothing
        A, Q, P, zero = (small.matrix(M.rows, at.gap) for M in found)
        if self.starts is not None and at.start is not None:
            known = (
                _entries(jnp.asarray(self.starts.covariance)[:, at.start], at.gap) if own else zero
            )
            P = small.chosen(at.start >= 0, known, P)
        return small.chosen(at.fresh, zero, A), small.chosen(at.fresh, P, Q)

    def begun(self, mean: Matrix, at: Lanes) -> Matrix:
        """The mean after a transition, with that of a known state where a series goes on."""
        if self.starts is None or at.start is None:
            return mean
        known = _entries(jnp.asarray(self.starts.mean)[:, at.start, :, None], at.gap)
        return small.chosen(at.start >= 0, known, mean)

    def without_means(self) -> "Filter":
        """The same process about its mean: posterior means are linear in linear terms."""
        if self.starts is None:
            return self
        starts = self.starts._replace(mean=jnp.zeros_like(self.starts.mean))
        return Filter(self.space, self.signed, starts)

    def moved(
        self, spread: Matrix, A: Matrix, Q: Matrix, root_of_Q: Matrix | None = None
    ) -> Matrix:
        """The spread after a transition."""
        if self.signed:
            return small.symmetric(A @ spread @ A.mT + Q)
        root = small.semidefinite_root(Q) if root_of_Q is None else root_of_Q
        found = small.lower_of_rows(small.beside(A @ spread, root))
        # What follows reads it often: without a barrier the compiler finds it anew each time.
        return jax.lax.optimization_barrier(found) if self.space.size > _FEW_STATES else found

    def update(self, belief: Belief, h: Matrix, linear: Any, precision: Any) -> "Updated":
        """The belief after a site of h'x."""
        mean, spread = belief
        v = spread.mT @ h
        g = v if self.signed else spread @ v
        s = number(h.mT @ g) if self.signed else number(v.mT @ v)
        S = 1 + precision * s
        m = number(h.mT @ mean)
        error = (linear - precision * m) / S
        explained = (linear**2 * s + 2 * linear * m - precision * m**2) / S
        value = 0.5 * (explained - jnp.log(jnp.abs(S)))
        if self.signed:
            told = small.symmetric(spread - scaled(g, precision / S) @ g.mT)
        else:
            told = spread - scaled(g, precision / (S + jnp.sqrt(S))) @ v.mT
        return Updated(Belief(mean + scaled(g, error), told), value, error, precision / S, g)

    def known(self, belief: Belief) -> Belief:
        """The belief with its covariance in place of a root."""
        mean, spread = belief
        return belief if self.signed else Belief(mean, spread @ spread.mT)


class Updated(NamedTuple):
    """A belief after a site.

    Attributes:
        belief: after it.
        value: log of the integral of belief times site.
        error: e = (l - w m) / S.
        weight: w / S.
        g: P h of before.
    """

    belief: Belief
    value: Any
    error: Any
    weight: Any
    g: Matrix


class Element(NamedTuple):
    """The rows of a lane given the state x before it.

    Their integral is exp(value + eta'x - x'J x / 2), and the state after them N(Phi x + mean, P).
    """

    belief: Belief
    Phi: Matrix
    eta: Matrix
    J: Matrix
    value: Any


def filtered(
    process: Filter,
    series: Series,
    linear: Float[Array, "L *S C"],
    precision: Float[Array, "L *Q C"],
) -> Filtered:
    """Filter sites in lanes; linear terms may have axes in front of those of the precisions."""
    like_mean, like_spread = linear[0], precision[0]
    size = process.space.size
    starts = Belief(_zeros(size, 1, like_mean), _zeros(size, size, like_spread))
    ends, found = Adjoint(*starts), None
    if linear.shape[-1] > 1:
        starts, ends, found = _joined(process, _elements(process, series, linear, precision))
    h = process.measurement(like_spread)

    def step(belief: Belief, at: Any) -> tuple[Belief, Any]:
        where, linear, precision = at
        A, Q = process.transition(where)
        mean = process.begun(A @ belief.mean, where)
        predicted = Belief(mean, process.moved(belief.spread, A, Q))
        after = process.update(predicted, h, linear, precision)
        out = _packed(process.known(belief)), after.error, after.weight, after.value
        return _full(after.belief, like_mean, like_spread), out

    last, (before, error, weight, values) = jax.lax.scan(
        step, starts, (series.lanes, linear, precision)
    )
    evidence = jnp.sum(values, axis=(0, -1)) if found is None else found
    last = _full(process.known(last), like_mean, like_spread)
    return Filtered(before, error, weight, last, ends, evidence)


def smoothed(
    process: Filter,
    series: Series,
    precision: Float[Array, "L *Q C"],
    found: Filtered,
    slopes: bool,
    readings: Matrix | None = None,
) -> tuple[Smoothed, StateSpace | None]:
    """Marginals at the rows; derivatives of the evidence in the process if wanted.

    Args:
        process: the process.
        series: the rows in lanes.
        precision: of the sites.
        found: by the filter.
        slopes: whether the derivatives are wanted.
        readings: what the marginals are of, a column of states for each row, if it is not f.
    """
    like_mean, like_spread = found.error[0], precision[0]
    h = process.measurement(like_spread)
    gap = series.lanes.gap[0]
    space = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, jnp.broadcast_shapes(jnp.shape(leaf), gap.shape)),
        process.space,
    )
    widest = max((jnp.shape(leaf) for leaf in jax.tree.leaves(space)), key=len, default=gap.shape)
    like_move = jnp.zeros(widest, gap.dtype)

    def step(carry: Any, at: Any) -> tuple[Any, Any]:
        later, (mean, P), total = carry
        where, w, error, weight, packed, reading = at
        u = P @ h
        read = h if reading is None else reading
        v = u if reading is None else P @ reading
        values = number(read.mT @ mean) + number(v.mT @ later.r)
        variances = number(read.mT @ v) - number(v.mT @ later.N @ v)
        now = _updated_back(later, h, u, w, error, weight)
        former = _unpacked(packed)

        def move(space: StateSpace) -> tuple[Matrix, Matrix]:
            A, Q = process.transition(where, space)
            return small.full(A, like_move), small.full(Q, like_move)

        if slopes:
            (A, _), pull = jax.vjp(move, space)
            in_P = now.r @ now.r.mT - now.N
            in_A = now.r @ former.mean.mT + in_P @ (A @ former.spread)
            found_slopes = small.full(in_A, like_spread), small.full(scaled(in_P, 0.5), like_spread)
            cotangents = _over_latents(found_slopes, like_spread, like_move)
            total = jax.tree.map(jnp.add, total, pull(cotangents)[0])
        else:
            A, _ = process.transition(where)
        earlier = Adjoint(A.mT @ now.r, small.symmetric(A.mT @ now.N @ A))
        now = _full_adjoint(now, like_mean, like_spread)
        carry = _full_adjoint(earlier, like_mean, like_spread), former, total
        return carry, (values, variances, (now.r, _lower(now.N)))

    none = jax.tree.map(jnp.zeros_like, space)
    (_, _, total), (mean, variance, adjoint) = jax.lax.scan(
        step,
        (found.ends, found.last, none),
        (series.lanes, precision, found.error, found.weight, found.before, readings),
        reverse=True,
    )
    slope = jax.tree.map(_sum_to, total, process.space) if slopes else None
    return Smoothed(mean, variance, adjoint), slope


def _elements(
    process: Filter,
    series: Series,
    linear: Float[Array, "L *Q C"],
    precision: Float[Array, "L *R C"],
) -> Element:
    """What each lane says of the state before it."""
    like_mean, like_spread = linear[0], precision[0]
    size = process.space.size
    h = process.measurement(like_spread)

    def step(element: Element, at: Any) -> tuple[Element, None]:
        where, linear, precision = at
        A, Q = process.transition(where)
        mean = process.begun(A @ element.belief.mean, where)
        before = Belief(mean, process.moved(element.belief.spread, A, Q))
        Phi = A @ element.Phi
        after = process.update(before, h, linear, precision)
        c = Phi.mT @ h
        told = Element(
            after.belief,
            Phi - scaled(after.g, after.weight) @ c.mT,
            element.eta + scaled(c, after.error),
            element.J + small.symmetric(scaled(c, after.weight) @ c.mT),
            element.value + after.value,
        )
        return _full_element(told, like_mean, like_spread), None

    none = _zeros(size, size, like_spread)
    start = Element(
        Belief(_zeros(size, 1, like_mean), none),
        small.full(small.matrix(small.identity(size).rows, like_spread), like_spread),
        _zeros(size, 1, like_mean),
        none,
        jnp.zeros_like(like_mean),
    )
    element, _ = jax.lax.scan(step, start, (series.lanes, linear, precision))
    return element


def _joined(process: Filter, elements: Element) -> tuple[Belief, Adjoint, Float[Array, "*Q"]]:
    """Beliefs where lanes begin, the adjoint where they end, and the log evidence."""
    each = _lanes_first(elements)
    like_mean = jnp.zeros_like(each.value[0])
    like_spread = jnp.zeros_like(number(each.J)[0])

    def told(belief: Belief, element: Element) -> tuple[list[Any], Any]:
        columns, pivots, values = small.unit_factors(element.J, element.eta)
        total, found = element.value, []
        for u, D, y in zip(columns, pivots, values, strict=True):
            after = process.update(belief, u, y, D)
            found.append((u, D, after))
            belief, total = after.belief, total + after.value
        return found, total

    def forward(belief: Belief, element: Element) -> tuple[Belief, Any]:
        found, total = told(belief, element)
        known, Phi, own = found[-1][2].belief, element.Phi, element.belief
        spread = process.moved(known.spread, Phi, own.spread, own.spread)
        after = Belief(Phi @ known.mean + own.mean, spread)
        return _full(after, like_mean, like_spread), (belief, total)

    size = process.space.size
    nothing = Belief(_zeros(size, 1, like_mean), _zeros(size, size, like_spread))
    _, (starts, values) = jax.lax.scan(forward, nothing, each)

    def backward(later: Adjoint, at: Any) -> tuple[Adjoint, Adjoint]:
        belief, element = at
        found, _ = told(belief, element)
        Phi = element.Phi
        now = Adjoint(Phi.mT @ later.r, small.symmetric(Phi.mT @ later.N @ Phi))
        for u, D, after in reversed(found):
            gain = process.known(after.belief).spread @ u
            now = _updated_back(now, u, gain, D, after.error, after.weight)
        return _full_adjoint(now, like_mean, like_spread), later

    none = Adjoint(*nothing)
    _, ends = jax.lax.scan(backward, none, (starts, each), reverse=True)
    axis = _axis_of_lanes(elements.J)
    back = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, axis), (starts, ends))
    return *back, jnp.sum(values, axis=0)


def _updated_back(
    later: Adjoint, h: Matrix, u: Matrix, precision: Any, error: Any, weight: Any
) -> Adjoint:
    """The adjoint before a site's update, for u = P h of after it."""
    r, N = later
    n = scaled(N @ u, precision)
    curvature = weight + precision * number(u.mT @ n)
    cross = h @ n.mT
    change = scaled(h @ h.mT, curvature) - cross - cross.mT
    return Adjoint(r + scaled(h, error - precision * number(u.mT @ r)), N + change)


def _over_latents(matrices: Any, like: Any, wanted: Any) -> Any:
    """Matrices summed over the latents that share a transition."""
    if like.shape == wanted.shape:
        return matrices
    extra = tuple(range(like.ndim - wanted.ndim))
    return jax.tree.map(lambda leaf: jnp.sum(leaf, axis=extra), matrices)


def _sum_to(values: Any, like: Any) -> Any:
    """Values over lanes summed to the shape of the leaf they belong to."""
    shape = jnp.shape(like)
    values = jnp.sum(values, axis=tuple(range(values.ndim - len(shape))))
    narrow = tuple(i for i, n in enumerate(shape) if n == 1)
    return jnp.sum(values, axis=narrow, keepdims=True) if narrow else values


def _entries(values: Float[Array, "Q *C I J"], lanes: Any) -> Matrix:
    """Matrices in the last two axes as one over the others."""
    rows, columns = values.shape[-2:]
    return small.matrix([[values[..., i, j] for j in range(columns)] for i in range(rows)], lanes)


def _zeros(rows: int, columns: int, like: Any) -> Matrix:
    return small.full(small.matrix([[0.0] * columns] * rows, like), like)


def _full(belief: Belief, like_mean: Any, like_spread: Any) -> Belief:
    return Belief(small.full(belief.mean, like_mean), small.full(belief.spread, like_spread))


def _full_adjoint(adjoint: Adjoint, like_mean: Any, like_spread: Any) -> Adjoint:
    return Adjoint(small.full(adjoint.r, like_mean), small.full(adjoint.N, like_spread))


def _full_element(element: Element, like_mean: Any, like_spread: Any) -> Element:
    return Element(
        _full(element.belief, like_mean, like_spread),
        small.full(element.Phi, like_spread),
        small.full(element.eta, like_mean),
        small.full(element.J, like_spread),
        element.value,
    )


def _axis_of_lanes(M: Matrix) -> int:
    """Where the lanes' axis is in the leaves of a matrix, from the end."""
    return -1 if isinstance(M, Unrolled) else -3


def _lanes_first(element: Element) -> Element:
    """The lanes' axis in front."""
    axis = _axis_of_lanes(element.J)
    moved = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, axis, 0), element._replace(value=None))
    return moved._replace(value=jnp.moveaxis(element.value, -1, 0))


def _packed(belief: Belief) -> Any:
    """A mean and a covariance without its upper half."""
    return belief.mean, _lower(belief.spread)


def _unpacked(packed: Any) -> Belief:
    mean, lower = packed
    return Belief(mean, from_lower(lower))


def _lower(M: Matrix) -> Any:
    """The lower half of a symmetric matrix."""
    if not isinstance(M, Unrolled):
        return M
    return tuple(M.rows[i][: i + 1] for i in range(len(M.rows)))


def from_lower(lower: Any) -> Matrix:
    """A symmetric matrix of its lower half."""
    if not isinstance(lower, tuple):
        return lower
    size = range(len(lower))
    return Unrolled([[lower[max(i, j)][min(i, j)] for j in size] for i in size])
