"""Unbiased solutions from conjugate gradients that are stopped early (ULISSE)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from latentgp.extensions.iterative.solvers.conjugate_gradients import begun_at
from latentgp.extensions.iterative.solvers.operators import LinearOperator
from latentgp.extensions.iterative.solvers.preconditioners.base import Preconditioner
from latentgp.extensions.iterative.solvers.solution import compiled, norms
from latentgp.modules import Module
from latentgp.typing import Array, RandomKey, Scalar, Vectors


class ExponentialWeights(Module):
    """w_j = exp(rate j): increment j after the threshold is taken with probability 1 / w_j."""

    rate: Scalar | float  # larger values stop earlier and vary more

    def __call__(self, j: Int[Array, "S"]) -> Float[Array, "S"]:
        return jnp.exp(self.rate * j)


class TruncatedSolution(eqx.Module):
    """Independent unbiased estimates of a solution, all from one run."""

    value: Float[Array, "estimates N S"]  # of each estimate
    steps: Int[Array, "estimates S"]  # increments that each of them took
    # increments at which the threshold was reached, shape (S,), which every estimate takes
    threshold_steps: Int[Array, "S"]
    products: Int[Array, ""]  # of the run with A
    # of each right-hand side, whether the run ended as it should: false where steps ran out or the
    # iteration broke down, which leaves a bias
    is_unbiased: Bool[Array, "S"]


@compiled("threshold", "tolerance", "max_steps")
def ulisse(
    operator: LinearOperator,
    right: Vectors,
    key: RandomKey,
    *,
    threshold: Any,
    weights: Callable[[Array], Array] | None = None,
    preconditioner: Preconditioner | None = None,
    start: Vectors | None = None,
    tolerance: Any = 1e-8,
    max_steps: Any = 1000,
    copies: int = 2,
) -> TruncatedSolution:
    """Unbiased estimates of A^-1 b by random truncation (Filippone & Engler 2015, eq. 11-12).

    Increments of conjugate gradients are summed up to the one that brings the residual below the
    threshold. Those after it are taken with probabilities 1 / w_0, 1 / w_1, ... until one is not,
    each times the weights w_0 w_1 ... so far. Expectations are those of the run to `tolerance`.
    For fast growing weights the variance is carried by events that are hardly ever seen.

    Arguments are those of `conjugate_gradients`, of which the start must not depend on the key and
    the tolerance says when a run counts as complete. The threshold is a norm of the residual,
    q sqrt(N) in the source. The weights give w_j >= 1 of an array of numbers j = 0, 1, ...;
    `ExponentialWeights(1.0)` unless given. Copies are independent estimates.

    Raises:
        InputError: a preconditioner that iterates inside.

    Example:
        >>> from latentgp.extensions.iterative.solvers.operators import StoredCovariance
        >>> A = StoredCovariance(jnp.diag(jnp.array([1.0, 2.0, 4.0])))
        >>> found = ulisse(A, jnp.ones((3, 1)), jax.random.key(0), threshold=10.0)
        >>> found.value.shape, found.threshold_steps.tolist()
        ((2, 3, 1), [1])
    """
    weights = ExponentialWeights(1.0) if weights is None else weights
    state, move = begun_at(operator, right, preconditioner, start, tolerance)
    shape = copies, right.shape[1]
    begun = (
        state,
        jnp.broadcast_to(state.value, (copies, *right.shape)),
        jnp.ones(shape, right.dtype),
        jnp.ones(shape, bool),
        jnp.zeros(shape, int),
        jnp.full(shape[1:], -1),
        jnp.zeros(shape[1:], int),
        jnp.asarray(0),
    )

    def step(now: Any) -> Any:
        before, sums, factor, going, taken, late, threshold_steps, steps = now
        after = move(before)
        # Increments past the threshold: -1 before it, 0 at the one that reached it.
        reached = (late >= 0) | (norms(after.residual) <= threshold)
        late = jnp.where(reached, late + 1, -1)
        threshold_steps = jnp.where(late <= 0, steps + 1, threshold_steps)
        w = jnp.where(late >= 0, weights(jnp.maximum(late, 0)), 1.0)
        u = jax.random.uniform(jax.random.fold_in(key, steps), shape, right.dtype)
        going = going & (u < 1 / w) & before.active
        factor = jnp.where(going, factor * w, factor)
        increment = after.length * before.direction
        sums = sums + jnp.where(going, factor, 0.0)[:, None, :] * increment
        after = after._replace(active=after.active & jnp.any(going, axis=0))
        return after, sums, factor, going, taken + going, late, threshold_steps, steps + 1

    end = jax.lax.while_loop(
        lambda now: jnp.any(now[0].active) & (now[-1] < max_steps), step, begun
    )
    state, sums, _, _, taken, _, threshold_steps, products = end
    # A sum that still takes all that comes, and was not at its end.
    fine = ~state.active & ~state.broken & jnp.all(jnp.isfinite(sums), axis=(0, 1))
    return TruncatedSolution(
        sums, taken, jnp.minimum(threshold_steps, jnp.max(taken, axis=0)), products, fine
    )
