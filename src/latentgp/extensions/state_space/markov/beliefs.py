"""Beliefs of a state in lanes, and how a process and its rows change them.

Covariances are kept as roots, L with P = L L'. An update by a site exp(l f - w f^2 / 2) of f = h'x
is Potter's, a transition an orthogonalisation of [A L, Q^1/2]. Where precisions can be negative
they are kept as they are.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.extensions.state_space import lanes as small
from latentgp.extensions.state_space.kernels import StateSpace
from latentgp.extensions.state_space.lanes import Matrix, UnrolledMatrix, number, scaled
from latentgp.extensions.state_space.markov.series import Lanes
from latentgp.modules import stored
from latentgp.typing import Array

_FEW_STATES = 2
_MOST_NUMBERS = 1 << 20  # of the transitions of all steps, made together


@stored
class Belief(NamedTuple):
    """N(mean, P) of a state."""

    mean: Matrix  # shape (states, 1)
    spread: Matrix  # the root of P, or P


@stored
class Adjoint(NamedTuple):
    """Dependence of later rows on a state."""

    r: Matrix
    N: Matrix


@stored
class Starts(NamedTuple):
    """Known states from which series go on, in place of the prior."""

    mean: Float[Array, "Q series states"]
    covariance: Float[Array, "Q series states states"]


@stored
class Filter(eqx.Module):
    """The arithmetic of one process."""

    space: StateSpace  # its state-space form; leaves broadcast against lanes
    signed: bool = eqx.field(static=True)  # whether precisions can be negative
    # states from which series go on; None where all begin at the prior
    starts: Starts | None = None

    def measurement(self, lanes: Any) -> Matrix:
        """h, shape (states, 1)."""
        return small.matrix([[entry] for entry in self.space.measurement], lanes)

    def transition(self, at: Lanes, space: StateSpace | None = None) -> tuple[Matrix, Matrix]:
        """A and Q of a step: none and the prior's covariance where a series begins.

        Where it goes on from a known state Q is the covariance of that, which a process given as
        an argument leaves out: it does not depend on the process.
        """
        own = space is None
        space = self.space if space is None else space
        nothing = UnrolledMatrix([[0.0] * space.size] * space.size)
        found = *space.transition(at.time, at.gap), space.covariance(at.time), nothing
        A, Q, P, zero = (small.matrix(M.rows, at.gap) for M in found)
        if self.starts is not None and at.start is not None:
            known = (
                _entries(jnp.asarray(self.starts.covariance)[:, at.start], at.gap) if own else zero
            )
            P = small.chosen(at.start >= 0, known, P)
        return small.chosen(at.fresh, zero, A), small.chosen(at.fresh, P, Q)

    def moves(self, lanes: Lanes) -> "Moves":
        """Transitions of all steps of one lane, where that is no great number.

        A loop over the rows of one lane takes as long as it has operations, however small. Else
        each step makes its own.
        """
        if lanes.gap.shape[-1] > 1 or lanes.gap.size * self.space.size**2 > _MOST_NUMBERS:
            return Moves(None, None)

        def of_step(at: Lanes) -> tuple[Matrix, Matrix, Matrix | None]:
            A, Q = self.transition(at)
            return A, Q, None if self.signed else small.semidefinite_root(Q)

        of_all = eqx.filter_vmap(of_step)(jax.tree.map(jnp.asarray, lanes))
        return Moves(*eqx.partition(of_all, eqx.is_array))

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

    def update(self, belief: Belief, h: Matrix, linear: Any, precision: Any) -> "UpdatedBelief":
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
        return UpdatedBelief(Belief(mean + scaled(g, error), told), value, error, precision / S, g)

    def known(self, belief: Belief) -> Belief:
        """The belief with its covariance in place of a root."""
        mean, spread = belief
        return belief if self.signed else Belief(mean, spread @ spread.mT)


class Moves(NamedTuple):
    """A, Q and the root of Q of all steps, if they are made together."""

    each: Any  # entries of every step
    fixed: Any  # the same for all, such as zeros

    def of(self, process: Filter, at: Lanes, own: Any) -> tuple[Matrix, Matrix, Matrix | None]:
        """Those of a step, whose entries are given."""
        if self.each is None:
            return *process.transition(at), None
        return eqx.combine(own, self.fixed)


class UpdatedBelief(NamedTuple):
    """A belief after a site."""

    belief: Belief  # after it
    value: Any  # log of the integral of belief times site
    error: Any  # e = (l - w m) / S
    weight: Any  # w / S
    g: Matrix  # P h of before


def updated_back(
    later: Adjoint, h: Matrix, u: Matrix, precision: Any, error: Any, weight: Any
) -> Adjoint:
    """The adjoint before a site's update, for u = P h of after it."""
    r, N = later
    n = scaled(N @ u, precision)
    curvature = weight + precision * number(u.mT @ n)
    cross = h @ n.mT
    change = scaled(h @ h.mT, curvature) - cross - cross.mT
    return Adjoint(r + scaled(h, error - precision * number(u.mT @ r)), N + change)


def _entries(values: Float[Array, "Q *S rows columns"], lanes: Any) -> Matrix:
    """Matrices in the last two axes as one over the others."""
    rows, columns = values.shape[-2:]
    return small.matrix([[values[..., i, j] for j in range(columns)] for i in range(rows)], lanes)


def zeros(rows: int, columns: int, like: Any) -> Matrix:
    """A matrix of zeros in all lanes."""
    return small.full(small.matrix([[0.0] * columns] * rows, like), like)


Pair = TypeVar("Pair", Belief, Adjoint)


def full_pair(pair: Pair, like_mean: Any, like_spread: Any) -> Pair:
    """The same with every entry an array over all lanes."""
    return type(pair)(small.full(pair[0], like_mean), small.full(pair[1], like_spread))
