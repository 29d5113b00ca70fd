"""Filter and smoother of many processes that are seen together, all rows of a time at once.

The state is that of independent processes, copies of a few: M of one law each, its d states one
after another with the M copies inside, so that a transition is A x I. Rows of a step read values
h'x of the copies by weights phi, and their sites are one update of B x B. A loop over segments of
steps keeps the belief where each begins; smoothing makes those inside anew (Griewank 1992), so that
memory is that of 2 sqrt(T) beliefs.

The adjoint (r, N) is that of `filtering`: slopes of the log evidence in a predicted mean and
covariance are r and (r r' - N) / 2.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentgp.modules import stored
from latentgp.numerics.cholesky import cholesky
from latentgp.numerics.devices import one_after_another
from latentgp.representations.latent_axis import split_linear
from latentgp.typing import Array, Scalar

Blocks = tuple[Array, ...]  # of each process, shape (*steps, states, states)


class Layout(NamedTuple):
    """Layout of a state."""

    measurements: tuple[tuple[float, ...], ...]  # h of each process
    copies: tuple[int, ...]  # how many of it there are

    @property
    def size(self) -> int:
        """Number of states n."""
        return sum(len(h) * M for h, M in zip(self.measurements, self.copies, strict=True))

    @property
    def _spans(self) -> list[tuple[int, int, slice]]:
        """Number of states and of copies, and the rows, of each process."""
        found, before = [], 0
        for h, M in zip(self.measurements, self.copies, strict=True):
            after = before + len(h) * M
            found.append((len(h), M, slice(before, after)))
            before = after
        return found

    def _each(self, X: Float[Array, "_ *S"]) -> list[Float[Array, "_ _ *S"]]:
        """The rows of each process, shape (states, M, ...)."""
        return [X[own].reshape(states, M, *X.shape[1:]) for states, M, own in self._spans]

    def moved(self, A: Blocks, X: Float[Array, "M *S"]) -> Float[Array, "M *S"]:
        """(A x I) X."""
        parts = map(partial(jnp.einsum, "ab,bm...->am..."), A, self._each(X))
        return jnp.concatenate([part.reshape(-1, *X.shape[1:]) for part in parts])

    def moved_both(self, A: Blocks, P: Float[Array, "M M"]) -> Float[Array, "M M"]:
        """(A x I) P (A x I)' of a symmetric P."""
        return self.moved(A, self.moved(A, P).T)

    def read(self, X: Float[Array, "M *S"]) -> Float[Array, "values *S"]:
        """The values h'x of every copy."""
        parts = [
            sum(weight * part[a] for a, weight in enumerate(h) if weight)
            for h, part in zip(self.measurements, self._each(X), strict=True)
        ]
        return jnp.concatenate(parts)

    def written(self, Y: Float[Array, "values *S"]) -> Float[Array, "M *S"]:
        """The transpose of `read`."""
        found, before = [], 0
        for h, M in zip(self.measurements, self.copies, strict=True):
            found += [weight * Y[before : before + M] for weight in h]
            before += M
        return jnp.concatenate(found)

    def covariance(self, Q: Blocks) -> Float[Array, "M M"]:
        """Q x I."""
        pairs = zip(Q, self.copies, strict=True)
        return jax.scipy.linalg.block_diag(
            *(jnp.kron(q, jnp.eye(M, dtype=q.dtype)) for q, M in pairs)
        )

    def blocks(self, X: Float[Array, "M columns"], Y: Float[Array, "M columns"]) -> Blocks:
        """Sums over copies of X Y' between the states of each."""
        pairs = zip(self._each(X), self._each(Y), strict=True)
        return tuple(jnp.einsum("amk,bmk->ab", x, y) for x, y in pairs)

    def diagonal_blocks(self, P: Float[Array, "M M"]) -> Blocks:
        """Sums over copies of the blocks of P between the states of each."""
        own = (P[rows, rows].reshape(d, M, d, M) for d, M, rows in self._spans)
        return tuple(jnp.einsum("ambm->ab", block) for block in own)


@stored
class Beliefs(NamedTuple):
    """N(mean, covariance) of the state, one mean for each of S linear terms."""

    mean: Float[Array, "*T M S"]
    covariance: Float[Array, "*T M M"]


class Adjoint(NamedTuple):
    """Dependence of later rows on a predicted state."""

    r: Float[Array, "*T M S"]
    N: Float[Array, "*T M M"]


class Steps(NamedTuple):
    """The steps of a loop, in segments."""

    moves: Any  # A of the transition to each, zero to the first
    noises: Any  # Q, to the first one the prior's covariance
    place: Int[Array, "groups steps B"]  # number of what each row reads in the table of weights
    linear: Float[Array, "groups steps B S"]  # of the sites
    precision: Float[Array, "groups steps B"]  # of the sites; zero where there is no row


class Readings(NamedTuple):
    """Further rows without sites, in the order of time."""

    after: Int[Array, "rows"]  # number of the last step at or before each; -1 for none
    weights: Float[Array, "rows values"]  # phi of each
    moves: Any  # A from that step
    noises: Any  # Q from that step, the prior's covariance where there is none
    onwards: Any  # A to the next step


class Forward(NamedTuple):
    """Results of the filter."""

    starts: Beliefs  # the belief before each segment
    log_evidence: Float[Array, "S"]  # of each set of linear terms


class Slopes(NamedTuple):
    """Derivatives of the log evidence in the prior of the states and what rows read."""

    moves: Any
    noises: Any
    table: Float[Array, "places values"]


class SmoothedReadings(NamedTuple):
    """Marginals of what rows read."""

    mean: Float[Array, "groups steps B S"]  # at the rows of each step, for each set of linear terms
    variance: Float[Array, "groups steps B"]  # at the rows of each step
    # l - W mean there, exact to rounding however precise the sites are
    force: Float[Array, "groups steps B S"]
    # means, first column, and variances, second, at further rows
    at_readings: Float[Array, "rows 2"]
    slopes: Slopes | None  # derivatives, if wanted


class _Update(NamedTuple):
    """Results of an update for the way back."""

    after: Beliefs  # the belief
    gain: Float[Array, "B M"]  # P h K', rows by states
    weight: Float[Array, "B B"]  # K = (I + W C)^-1 W for the rows' predicted covariance C
    error: Float[Array, "B S"]  # e = (I + W C)^-1 (l - W m)


class StackedArithmetic(NamedTuple):
    """The arithmetic."""

    layout: Layout  # of the state
    signed: bool  # whether precisions can be negative
    table: Float[Array, "places values"]  # weights phi of what rows read, for each place

    def forward(self, steps: Steps) -> Forward:
        """The filter."""

        def segment(belief: Beliefs, own: Any) -> tuple[Beliefs, Any]:
            def step(belief: Beliefs, at: Any) -> tuple[Beliefs, Any]:
                update, value = self._update(belief, at)
                return update.after, value

            after, values = jax.lax.scan(step, belief, own)
            return after, (belief, jnp.sum(values, axis=0))

        _, (starts, values) = jax.lax.scan(segment, self._nothing(steps), steps)
        return Forward(starts, jnp.sum(values, axis=0))

    def backward(
        self, steps: Steps, starts: Beliefs, readings: Readings | None, slopes: bool
    ) -> SmoothedReadings:
        """The smoother.

        It starts from the belief before each segment.
        """
        layout, nothing = self.layout, self._nothing(steps)
        lengths = steps.place.shape[:2]
        onwards = jax.tree.map(_shifted, steps.moves)
        number = jnp.arange(lengths[0] * lengths[1]).reshape(lengths)
        rows = 0 if readings is None else len(readings.after)
        dtype = self.table.dtype

        def step(carry: Any, at: Any) -> tuple[Any, Any]:
            ahead, read, in_table = carry
            own, onward, place, update = at
            if readings is not None:
                read = self._read_between(readings, read, place, update.after, ahead)
            r = layout.moved(_transposed(onward), ahead.r)
            N = layout.moved_both(_transposed(onward), ahead.N)
            in_moves = self._slope_in_moves(onward, update.after, ahead) if slopes else None
            m, P = update.after
            phi = self.table[own.place]
            mean = phi @ layout.read(m + P @ r)
            seen = phi @ layout.read(P)  # R P
            variance = jnp.sum(phi * layout.read(seen.T).T, 1) - jnp.sum((seen @ N) * seen, 1)
            force = update.error - update.gain @ r
            told = update.gain @ N
            if slopes:
                smooth = layout.read(m + P @ r)[:, 0]
                shared = layout.read((update.gain - told @ P).T).T
                in_table = in_table.at[own.place].add(force[:, :1] * smooth - shared)
            inner = 0.5 * (update.weight + told @ update.gain.T) @ phi
            change = layout.written(phi.T @ (layout.written(inner.T).T - told))
            ahead = Adjoint(r + layout.written(phi.T @ force), N + change + change.T)
            in_noises = self._slope_in_noises(ahead) if slopes else None
            return (ahead, read, in_table), (mean, variance, force, in_moves, in_noises)

        def segment(carry: Any, at: Any) -> tuple[Any, Any]:
            start, own, onward, place = at

            def again(belief: Beliefs, at: Any) -> tuple[Beliefs, _Update]:
                update, _ = self._update(belief, at)
                return update.after, update

            _, updates = jax.lax.scan(again, start, own)
            return jax.lax.scan(step, carry, (own, onward, place, updates), reverse=True)

        read = jnp.full((), rows - 1), jnp.zeros((rows, 2), dtype)
        start = Adjoint(*nothing), read, jnp.zeros_like(self.table) if slopes else None
        (ahead, read, in_table), (mean, variance, force, in_moves, in_noises) = jax.lax.scan(
            segment, start, (starts, steps, onwards, number), reverse=True
        )
        if readings is not None:
            read = self._read_between(readings, read, jnp.full((), -1), nothing, ahead)
        of_prior = None
        if slopes:
            of_prior = Slopes(jax.tree.map(_shifted_back, in_moves), in_noises, in_table)
        return SmoothedReadings(mean, variance, force, read[1], of_prior)

    def _nothing(self, steps: Steps) -> Beliefs:
        """A state of zero, which the first transition forgets."""
        size, dtype = self.layout.size, self.table.dtype
        return Beliefs(
            jnp.zeros((size, steps.linear.shape[-1]), dtype), jnp.zeros((size, size), dtype)
        )

    def _update(self, belief: Beliefs, at: Steps) -> tuple[_Update, Float[Array, "S"]]:
        """A step: the transition, then the sites of its rows; log of their integral beside."""
        layout = self.layout
        m = layout.moved(at.moves, belief.mean)
        P = layout.moved_both(at.moves, belief.covariance) + layout.covariance(at.noises)
        phi = self.table[at.place]
        seen = phi @ layout.read(P)  # R P
        C = phi @ layout.read(seen.T)
        C, c = 0.5 * (C + C.T), phi @ layout.read(m)
        W, linear = at.precision, at.linear
        unit = jnp.eye(len(W), dtype=C.dtype)
        rest = linear - W[:, None] * c
        if self.signed:
            inverse, log_determinant = _inverse(unit + W[:, None] * C)
            weight = inverse * W
            weight, error = 0.5 * (weight + weight.T), inverse @ rest
            gain = weight @ seen
            lost = seen.T @ gain
            lost, half = 0.5 * (lost + lost.T), 0.5 * log_determinant
        else:
            D = jnp.sqrt(W)
            S = unit + D[:, None] * C * D
            factor = cholesky(S)
            wide = (jnp.broadcast_to(a[:, None], rest.shape) for a in (D, jnp.diagonal(S)))
            ratio, weak = split_linear(rest, *wide)
            z = factor.inverse.T @ (factor.inverse @ (ratio - D[:, None] * (C @ weak)))
            error, half = weak + D[:, None] * z, factor.half_log_determinant
            root = factor.inverse * D
            weight, told = root.T @ root, root @ seen
            gain, lost = root.T @ told, told.T @ told
        f = c + C @ error
        value = 0.5 * jnp.sum(linear * f + error * c, axis=0) - half
        after = Beliefs(m + seen.T @ error, P - lost)
        return _Update(after, gain, weight, error), value

    def _slope_in_moves(self, onward: Any, before: Beliefs, ahead: Adjoint) -> Blocks:
        """Derivative in A of a transition: r (m + P A' r)' - N A P."""
        m, P = before
        moved = self.layout.moved(onward, P).T
        of_mean = self.layout.blocks(ahead.r, m + moved @ ahead.r)
        of_covariance = self.layout.blocks(ahead.N, moved)
        return jax.tree.map(jnp.subtract, of_mean, of_covariance)

    def _slope_in_noises(self, ahead: Adjoint) -> Blocks:
        """Derivative in Q of a transition."""
        outer = self.layout.blocks(ahead.r, ahead.r)
        own = self.layout.diagonal_blocks(ahead.N)
        return jax.tree.map(lambda a, b: 0.5 * (a - b), outer, own)

    def _read_between(
        self, readings: Readings, read: Any, place: Any, belief: Beliefs, ahead: Adjoint
    ) -> Any:
        """Marginals of the further rows after a step and before the next."""
        layout = self.layout

        def there(state: Any) -> Any:
            left, _ = state
            return (left >= 0) & (readings.after[jnp.maximum(left, 0)] == place)

        def one(state: Any) -> Any:
            left, found = state
            phi, A, Q, onward = jax.tree.map(lambda leaf: leaf[left], readings[1:])
            h = layout.written(phi)
            back = layout.moved(_transposed(A), h)
            u = layout.moved(A, belief.covariance @ back) + layout.moved(Q, h)
            z = layout.moved(onward, u)
            mean = back @ belief.mean[:, 0] + z @ ahead.r[:, 0]
            variance = h @ u - z @ (ahead.N @ z)
            return left - 1, found.at[left].set(jnp.stack([mean, variance]))

        return jax.lax.while_loop(there, one, read)


def _transposed(A: Blocks) -> Blocks:
    return tuple(block.T for block in A)


def _shifted(values: Array) -> Array:
    """Those of the next step; after the last one zero."""
    flat = values.reshape(-1, *values.shape[2:])
    return jnp.concatenate([flat[1:], jnp.zeros_like(flat[:1])]).reshape(values.shape)


def _shifted_back(values: Array) -> Array:
    """Those of the step before; before the first one zero."""
    flat = values.reshape(-1, *values.shape[2:])
    return jnp.concatenate([jnp.zeros_like(flat[:1]), flat[:-1]]).reshape(values.shape)


@one_after_another
def _inverse(A: Float[Array, "B B"]) -> tuple[Float[Array, "B B"], Scalar]:
    """A^-1 and log |det A| of a matrix that need not be symmetric."""
    return jnp.linalg.inv(A), jnp.linalg.slogdet(A)[1]


def segmented(values: Any, number: int) -> Any:
    """Arrays of steps as those of segments; their number is a multiple of that of segments."""
    return jax.tree.map(lambda a: a.reshape(number, -1, *a.shape[1:]), values)


def segments_for(steps: int) -> int:
    """Number of segments: equally many as steps in each."""
    return max(1, int(np.ceil(np.sqrt(steps))))
