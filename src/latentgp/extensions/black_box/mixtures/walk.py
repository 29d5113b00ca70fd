"""Steps of mixture, hyper-parameters and points along estimated slopes, on batches or all rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Float, Int, Key

from latentgp.extensions.black_box.mixtures.bound import MixtureBound
from latentgp.extensions.black_box.mixtures.family import GaussianMixture
from latentgp.extensions.black_box.mixtures.natural import stepped
from latentgp.extensions.black_box.mixtures.search import (
    SearchState,
    SlopeSearch,
    search_along_slopes,
)
from latentgp.numerics.sums import all_finite
from latentgp.rows.data import Data
from latentgp.runtime.programs import Program
from latentgp.runtime.progress import Run, RunControl, Steps
from latentgp.typing import Array, HyperVector, RandomKey, Scalar

_PIECE = 20  # steps in a compiled call


class StepLengths(NamedTuple):
    """Of step t (t + delay)^-power (Robbins & Monro 1951), of Adam's steps rate times its root."""

    delay: Scalar  # in steps
    power: Scalar  # in (0.5, 1]
    rate: Scalar  # of Adam, for hyper-parameters, and for points in units
    unit: Float[Array, "D"]  # in which points move, one an input


class Walk(NamedTuple):
    """Steps along estimated slopes."""

    vector: HyperVector
    # inducing points, shape (M, D) or (Q, M, D); None if they are held
    points: Float[Array, "*Q M D"] | None
    mixture: GaussianMixture
    adam: Any  # state of the optimiser of hyper-parameters and points
    made: Int[Array, ""]  # number of steps
    passed_over: Int[Array, ""]  # those that changed nothing, as they were not finite


class MixtureStep(NamedTuple):
    """Report of a step: estimate of the bound in nats, number of failed values."""

    bound: Float[Array, "T"]
    failed: Float[Array, "T"]


def batch_of(data: Data, places: Int[Array, "B"]) -> Data:
    """Some rows, each counted for as many as makes them all."""
    batch = jax.tree.map(lambda a: a[places], data)
    share = data.X.shape[0] / places.shape[0]
    weights = jnp.ones(places.shape[0], data.X.dtype) if batch.weights is None else batch.weights
    return eqx.tree_at(
        lambda data: data.weights, batch, share * weights, is_leaf=lambda leaf: leaf is None
    )


@Program
def walked(
    bound: MixtureBound,
    state: Walk,
    places: Int[Array, "T B"] | None,
    keys: Key[Array, "T"],
    lengths: StepLengths,
) -> tuple[Walk, MixtureStep]:
    """Steps along estimated slopes, on batches of rows or on all of them."""
    space = bound.space

    def step(state: Walk, part: tuple[Any, RandomKey]) -> tuple[Walk, MixtureStep]:
        rows, key = part
        own = bound.with_points(state.points)
        if rows is not None:
            own = eqx.tree_at(lambda b: b.data, own, batch_of(bound.data, rows))
        model = space.to_model(state.vector)
        basis = own.basis(model)
        at = own.evaluated(model.likelihood, basis, state.mixture, key)
        share = (state.made + lengths.delay) ** -lengths.power
        mixture = stepped(at, share, safely=True)
        vector, points, adam = state.vector, state.points, state.adam
        if space.size or points is not None:
            known = state.mixture.factorised()

            def worth(free: tuple[Array, Array | None]) -> Scalar:
                moved = own.with_points(free[1]).worth(free[0], known, at.expected, key)
                return moved + space.log_prior(free[0])

            gradient: Any = jax.grad(worth)((vector, points))
            updated: Any = optax.scale_by_adam().update(gradient, adam)
            (move, move_points), adam = updated
            rate = lengths.rate * share**0.5
            vector = vector + rate * move
            points = None if points is None else points + rate * lengths.unit * move_points
        after = Walk(vector, points, mixture, adam, state.made, state.passed_over)
        most = 0.5 * own.expectations.samples
        sound = all_finite(after) & (jnp.mean(at.expected.failed) < most)
        after = jax.tree.map(lambda new, old: jnp.where(sound, new, old), after, state)
        after = after._replace(
            made=state.made + 1, passed_over=state.passed_over + (~sound).astype(jnp.int32)
        )
        return after, MixtureStep(at.terms.bound, at.terms.failed)

    return jax.lax.scan(step, state, (places, keys))


def walk(
    method: Any,
    bound: MixtureBound,
    found: SearchState,
    lengths: StepLengths,
    points: Float[Array, "*Q M D"] | None,
    control: RunControl,
    key: RandomKey,
) -> MixtureBound:
    """Steps along estimated slopes, of all that is learned together; gives the bound at their end.

    The method has the number of steps, and rows of a batch. Points are held if they are None. What
    was found, where the walk starts, is brought up to date.
    """
    vector, nothing = jnp.asarray(found.vector), jnp.zeros((), jnp.int32)
    learned: Any = vector, points
    adam = optax.scale_by_adam().init(learned)
    first = Walk(vector, points, found.mixture, adam, nothing, nothing)
    search = _WalkSearch(found, first, bound, lengths, method.steps, method.batch_size, key)
    state = search_along_slopes(search, method.steps, control)
    found.vector, found.mixture = np.asarray(state.vector), state.mixture
    return bound.with_points(state.points)


class _WalkSearch(SlopeSearch):
    """Pieces of 20 steps."""

    def steps(self, state: Walk, run: Run) -> Steps[Walk]:
        found, (bound, lengths, steps, batch_size, key) = self.found, self.settings
        draw = batches(len(bound.data.X), batch_size, key, found.steps)
        while (made := int(state.made)) < steps:
            number = min(_PIECE, steps - made)
            keys = jax.random.split(jax.random.fold_in(key, made), number)
            places = None if draw is None else jnp.asarray(draw(number))
            state, told = walked(bound, state, places, keys, lengths)
            found.failed += int(np.sum(told.failed))
            found.steps, found.passed_over = int(state.made), int(state.passed_over)
            value = float(np.mean(told.bound))
            yield state, self.reported(value, "step", found.steps, steps, run)


def batches(
    rows: int, size: int | None, key: RandomKey, drawn: int
) -> Callable[[int], np.ndarray] | None:
    """Places of the rows of so many batches, shuffled anew every pass; None for all rows.

    Batches that a search has drawn before it is resumed are passed over.
    """
    if size is None or size >= rows:
        return None
    random = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    waiting: list[np.ndarray] = []

    def draw(number: int) -> np.ndarray:
        while len(waiting) < number:
            order = random.permutation(rows)
            waiting.extend(order[: rows // size * size].reshape(-1, size))
        taken = np.stack(waiting[:number])
        del waiting[:number]
        return taken

    for _ in range(drawn):
        draw(1)
    return draw
