"""Hamiltonian trajectories under a metric: leapfrog steps, explicit and implicit.

With target exp(-U(q)) and momenta p ~ N(0, G(q)) the Hamiltonian is

    H(q, p) = U(q) + log |G(q)| / 2 + p' G(q)^-1 p / 2,

which is not separable unless G is constant. The generalised leapfrog step (Girolami & Calderhead
2011, eqs. 16 to 18) has two implicit equations, which are iterated:

    p_half = p - e/2 dH/dq(q, p_half),
    q' = q + e/2 (G(q)^-1 + G(q')^-1) p_half,
    p' = p_half - e/2 dH/dq(q', p_half).

It preserves volume, and is reversible where both have been solved. So a trajectory is refused
unless its equations have been solved to rounding, and the same number of steps with the momentum
turned leads back to the start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from latentgp.numerics.cholesky import lower_cholesky
from latentgp.numerics.triangular import solve_lower
from latentgp.typing import Array, RandomKey, Scalar

_MOST_ITERATIONS = 40
_SOLVED, _RETURNED = 0.6, 0.4  # powers of the rounding error that a change may have


class Proposal(NamedTuple):
    """End of a trajectory."""

    place: Float[Array, "size"]  # coordinates
    log_ratio: Scalar  # of densities of end and start with momenta; -inf where it is refused
    failed: Bool[Array, ""]  # whether an iteration did not converge, or the way back led elsewhere
    evaluations: Scalar  # of the gradient or the metric


class _There(NamedTuple):
    """Values at a place: energy without momenta, its gradient, the metric's root."""

    energy: Scalar
    slope: Float[Array, "size"]
    root: Float[Array, "size size"]
    pull: Any  # from derivatives in the metric to those in the coordinates


def explicit_trajectory(
    potential: Callable[[Array], Array],
    root: Float[Array, "size size"],
    start: Float[Array, "size"],
    scale: Scalar,
    steps: Int[Array, ""],
    key: RandomKey,
) -> Proposal:
    """Leapfrog steps under a constant metric with the lower factor `root`."""
    slope_at = jax.grad(potential)
    momentum = root @ jax.random.normal(key, start.shape, start.dtype)

    def step(_: Any, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        q, p, slope = carry
        half = p - 0.5 * scale * slope
        q = q + scale * _velocity(root, half)
        slope = slope_at(q)
        return q, half - 0.5 * scale * slope, slope

    q, p, _ = jax.lax.fori_loop(0, steps, step, (start, momentum, slope_at(start)))
    before = potential(start) + _kinetic(root, momentum)
    log_ratio = before - potential(q) - _kinetic(root, p)
    failed = ~jnp.isfinite(log_ratio)
    return Proposal(q, jnp.where(failed, -jnp.inf, log_ratio), failed, 1.0 + steps)


def implicit_trajectory(
    potential: Callable[[Array], Array],
    metric: Callable[[Array], Array],
    start: Float[Array, "size"],
    scale: Scalar,
    steps: Int[Array, ""],
    key: RandomKey,
) -> Proposal:
    """Generalised leapfrog steps under a metric that depends on the place, there and back."""

    def at(q: Float[Array, "size"]) -> _There:
        value, slope = jax.value_and_grad(potential)(q)
        tensor, pull = jax.vjp(metric, q)
        root = lower_cholesky(tensor)
        inverse = solve_lower(root, jnp.eye(len(q), dtype=q.dtype))
        energy = value + jnp.sum(jnp.log(jnp.diagonal(root)))
        (of_volume,) = pull(0.5 * inverse.T @ inverse)
        return _There(energy, slope + of_volume, root, pull)

    def force(there: _There, p: Float[Array, "size"]) -> Float[Array, "size"]:
        """dH/dq, from d(p'G^-1 p) = -u'dG u with u = G^-1 p."""
        u = _velocity(there.root, p)
        return there.slope - there.pull(0.5 * jnp.outer(u, u))[0]

    def step(carry: tuple) -> tuple:
        count, q, p, failed, evaluations = carry
        here = at(q)
        start = p - 0.5 * scale * here.slope
        half, first, solved_p = _solved(lambda half: p - 0.5 * scale * force(here, half), start)
        leaving = _velocity(here.root, half)

        def arrived(end: Float[Array, "size"]) -> Float[Array, "size"]:
            root = lower_cholesky(metric(end))
            return q + 0.5 * scale * (leaving + _velocity(root, half))

        end, second, solved_q = _solved(arrived, q + scale * leaving)
        p = half - 0.5 * scale * force(at(end), half)
        failed = failed | ~solved_p | ~solved_q
        return count + 1, end, p, failed, evaluations + first + second + 2

    def run(carry: tuple, turn: None) -> tuple[tuple, tuple]:
        """All steps, then the momentum is turned."""
        end = jax.lax.while_loop(lambda c: (c[0] < steps) & ~c[3], step, (0, *carry))
        _, q, p, failed, evaluations = end
        return (q, -p, failed, evaluations), (q, p)

    first = at(start)
    momentum = first.root @ jax.random.normal(key, start.shape, start.dtype)
    begun = (start, momentum, jnp.zeros((), bool), jnp.ones((), start.dtype))
    (*_, failed, evaluations), (places, momenta) = jax.lax.scan(run, begun, None, length=2)
    tolerance = float(jnp.finfo(start.dtype).eps) ** _RETURNED
    away = jnp.maximum(_change(places[1], start), _change(-momenta[1], momentum))
    last = at(places[0])
    before = first.energy + _kinetic(first.root, momentum)
    log_ratio = before - last.energy - _kinetic(last.root, momenta[0])
    failed = failed | ~(away < tolerance) | ~jnp.isfinite(log_ratio)
    return Proposal(places[0], jnp.where(failed, -jnp.inf, log_ratio), failed, evaluations)


def _solved(
    function: Callable[[Array], Array], start: Float[Array, "size"]
) -> tuple[Float[Array, "size"], Scalar, Bool[Array, ""]]:
    """Fixed point of a function by iteration, how many it took, and whether it was found."""
    tolerance = float(jnp.finfo(start.dtype).eps) ** _SOLVED

    def iterate(carry: tuple) -> tuple:
        point, _, count = carry
        new = function(point)
        return new, _change(new, point), count + 1

    unknown = jnp.full((), jnp.inf, start.dtype)
    point, change, count = jax.lax.while_loop(
        # A change that is no number ends the iteration too.
        lambda carry: (carry[1] > tolerance) & (carry[2] < _MOST_ITERATIONS),
        iterate,
        (start, unknown, 0),
    )
    return point, jnp.asarray(count, start.dtype), change <= tolerance


def _change(new: Float[Array, "size"], old: Float[Array, "size"]) -> Scalar:
    return jnp.max(jnp.abs(new - old) / (1 + jnp.abs(old)))


def _velocity(root: Float[Array, "size size"], p: Float[Array, "size"]) -> Float[Array, "size"]:
    """G^-1 p."""
    return solve_lower(root, solve_lower(root, p), transposed=True)


def _kinetic(root: Float[Array, "size size"], p: Float[Array, "size"]) -> Scalar:
    return 0.5 * jnp.sum(solve_lower(root, p) ** 2)
