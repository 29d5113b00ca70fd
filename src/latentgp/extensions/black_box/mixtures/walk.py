"""Steps of mixture, hyper-parameters and points along estimated slopes, on batches or all rows."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Float, Int, Key

from latentgp.extensions.black_box.mixtures.bound import MixtureBound
from latentgp.extensions.black_box.mixtures.family import GaussianMixture
from latentgp.extensions.black_box.mixtures.natural import stepped
from latentgp.extensions.black_box.mixtures.search import (
    MixtureStep,
    SearchState,
    StepSearch,
    search_along_slopes,
)
from latentgp.numerics.finite import all_finite
from latentgp.runtime.programs import Program
from latentgp.runtime.progress import RunControl
from latentgp.typing import Array, HyperVector, RandomKey, Scalar


class StepLengths(NamedTuple):
    """Of step t (t + delay)^-power (Robbins & Monro 1951), of Adam's steps rate times its root."""

    delay: Scalar  # in steps
    power: Scalar  # in (0.5, 1]
    rate: Scalar  # of Adam, for hyper-parameters, and for points in units
    unit: Float[Array, "D"]  # in which points move, one an input


class Walk(NamedTuple):
    """Steps along estimated slopes."""

    vector: HyperVector
    points: Float[Array, "*Q M D"] | None  # inducing ones, (M, D) or (Q, M, D); None if held
    mixture: GaussianMixture
    adam: Any  # state of the optimiser of hyper-parameters and points
    made: Int[Array, ""]  # number of steps


@Program
def walked(
    bound: MixtureBound,
    lengths: StepLengths,
    state: Walk,
    places: Int[Array, "T B"] | None,
    keys: Key[Array, "T"],
) -> tuple[Walk, MixtureStep]:
    """Steps along estimated slopes, on batches of rows or on all of them."""
    space = bound.space

    def step(state: Walk, part: tuple[Any, RandomKey]) -> tuple[Walk, MixtureStep]:
        rows, key = part
        own = bound.of_rows(rows).with_points(state.points)
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
        after = Walk(vector, points, mixture, adam, state.made)
        most = 0.5 * own.expectations.samples
        sound = all_finite(after) & (jnp.mean(at.expected.failed) < most)
        after = jax.tree.map(lambda new, old: jnp.where(sound, new, old), after, state)
        after = after._replace(made=state.made + 1)
        value = at.terms.bound + space.log_prior(state.vector)
        return after, MixtureStep(at.terms.bound, value, at.terms.failed, ~sound)

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
    """Steps of all that is learned together; gives the bound at their end, and updates `found`."""
    vector, nothing = jnp.asarray(found.vector), jnp.zeros((), jnp.int32)
    learned: Any = vector, points
    adam = optax.scale_by_adam().init(learned)
    first = Walk(vector, points, found.mixture, adam, nothing)
    taken, rows = partial(walked, bound, lengths), len(bound.data.X)
    search = StepSearch(found, first, taken, rows, method.steps, method.batch_size, key)
    state = search_along_slopes(search, method.steps, control)
    found.vector, found.mixture = np.asarray(state.vector), state.mixture
    return bound.with_points(state.points)
