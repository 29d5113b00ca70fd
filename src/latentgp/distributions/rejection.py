"""Rejection sampling of whole arrays: the one owner of its loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Bool, PyTree

from latentgp.typing import Array, RandomKey

State = TypeVar("State")
Result = TypeVar("Result")

# The loop goes on with an eighth of the lanes once no more are unfinished, at most twice, and not
# below a width. Each narrower loop has to be compiled.
_SHRINKAGE, _MINIMAL_WIDTH, _NARROWER = 8, 128, 2


def repeat_until_done(
    step: Callable[[RandomKey, Any, State], tuple[State, Bool[Array, "B"]]],
    key: RandomKey,
    parameters: PyTree,
    state: State,
    done: Bool[Array, "N"],
    narrower: int = _NARROWER,
) -> State:
    """Repeat a random step on every lane until each lane is done.

    A lane that is done keeps its state. Few lanes need many repetitions, so the unfinished ones
    are gathered into a narrower array when they fit there: the work is close to the sum of the
    lanes' own repetitions, not to the largest of them times N.

    `step(key, parameters, state)` gives the new state and which lanes are done now, for any number
    of lanes; the new state of a lane that is not done is kept as well. Parameters and state share
    their only axis. A lane that could never end, one with a parameter that is not a number say,
    must be among those that are done at first. Lanes are gathered so many times at most (narrower).
    """
    size = done.shape[0]
    width = size // _SHRINKAGE
    allowed = width if narrower > 0 and width >= _MINIMAL_WIDTH else 0

    def is_long(carry: tuple) -> Bool[Array, ""]:
        return jnp.sum(~carry[2]) > allowed

    def repeat(carry: tuple) -> tuple:
        key, state, done = carry
        key, now = jax.random.split(key)
        new, ends = step(now, parameters, state)
        state = jax.tree.map(lambda old, changed: jnp.where(done, old, changed), state, new)
        return key, state, done | ends

    key, state, done = jax.lax.while_loop(is_long, repeat, (key, state, done))
    if allowed == 0:
        return state
    lanes = jnp.nonzero(~done, size=width, fill_value=size)[0]

    def gather(array: Array) -> Array:
        return array.at[lanes].get(mode="clip")

    own, at = jax.tree.map(gather, (parameters, state))
    rest = repeat_until_done(step, key, own, at, lanes >= size, narrower - 1)
    return jax.tree.map(lambda all, part: all.at[lanes].set(part, mode="drop"), state, rest)


def computed_once(function: Callable[..., Result], *arguments: Any) -> Result:
    """`function(*arguments)`, computed once and stored.

    XLA for the CPU fuses an array with each of its users and computes it again in each; a
    rejection step that takes a millisecond takes ten. What leaves a loop it stores: this is a
    loop of one turn, where XLA does not see that it is one.
    """
    shapes = jax.eval_shape(function, *arguments)
    empty = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    turns = jax.lax.optimization_barrier(jnp.int32(1))
    return jax.lax.while_loop(
        lambda carry: carry[0] < turns,
        lambda carry: (carry[0] + 1, function(*arguments)),
        (jnp.int32(0), empty),
    )[1]
