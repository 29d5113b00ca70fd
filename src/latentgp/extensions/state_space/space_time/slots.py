"""Rows of many places in steps of time, each with slots for what is seen then."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentgp.extensions.state_space.space_time.stacked import segments_for
from latentgp.modules import stored
from latentgp.typing import Array, Inputs, Points

_WIDEST = 128
_A_STEP = 6  # slots that take as long as a step without any


@stored
class Slots(eqx.Module):
    """T steps of B slots; rows of one time and place share one."""

    # of the steps, in order; a time of many slots has several steps, and the last ones may be empty
    # copies of the one before
    times: Float[Array, "T"]
    places: Points  # inputs without their time, which is zero
    place: Int[Array, "T B"]  # number of the place of each slot
    slot: Int[Array, "N"]  # number of the slot of each row, that of its step times B and its own
    earlier: int = eqx.field(static=True, default=0)  # number of the first rows that are remembered

    @classmethod
    def of(cls, X: Inputs, time: int, earlier: int = 0) -> "Slots":
        """Slots of rows in NumPy, with a given column of time."""
        elsewhere = X.copy()
        elsewhere[:, time] = 0.0
        times, when = np.unique(X[:, time], return_inverse=True)
        places, where = np.unique(elsewhere, axis=0, return_inverse=True)
        pairs, own = np.unique(when * len(places) + where.ravel(), return_inverse=True)
        when, where = np.divmod(pairs, len(places))
        counts = np.bincount(when)
        width = _width(counts)
        steps = -(-counts // width)
        ends = np.cumsum(steps)
        within = np.arange(len(pairs)) - (np.cumsum(counts) - counts)[when]
        step, column = (ends - steps)[when] + within // width, within % width
        place = np.zeros((ends[-1], width), int)
        place[step, column] = where
        more = segments_for(len(place)) ** 2 - len(place)
        return cls(
            np.pad(np.repeat(times, steps), (0, more), mode="edge"),
            places,
            np.pad(place, ((0, more), (0, 0))),
            (step * width + column)[own],
            earlier,
        )

    @classmethod
    def one_a_row(cls, X: Inputs, time: int, earlier: int) -> "Slots":
        """A step for each of rows that may be traced."""
        none = jnp.zeros((0, 1), int)
        return cls(X[:0, time], X[:0], none, none[:, 0], earlier).with_rows(X, time)

    def with_rows(self, X: Float[Array, "B D"], time: int) -> "Slots":
        """The same with a step for each further row, last in `slot`."""
        steps, width = self.place.shape
        times = jnp.concatenate([self.times, X[:, time]])
        own = jnp.zeros((len(X), width), int).at[:, 0].set(len(self.places) + jnp.arange(len(X)))
        more = segments_for(len(times)) ** 2 - len(times)
        order = jnp.argsort(times)
        ranks = jnp.argsort(order)
        return Slots(
            jnp.pad(times[order], (0, more), mode="edge"),
            jnp.concatenate([self.places, X.at[:, time].set(0.0)]),
            jnp.pad(jnp.concatenate([self.place, own])[order], ((0, more), (0, 0))),
            jnp.concatenate(
                [ranks[self.slot // width] * width + self.slot % width, ranks[steps:] * width]
            ),
            self.earlier,
        )

    def is_of(self, X: Inputs, time: int) -> bool:
        """Whether it is of these rows. In NumPy."""
        return len(self.slot) == len(X) and np.array_equal(self.inputs(time), X)

    @property
    def of_rows(self) -> tuple[Int[Array, "N"], Int[Array, "N"]]:
        """Numbers of the step and the place of each row."""
        return self.slot // self.place.shape[1], self.place.ravel()[self.slot]

    def inputs(self, time: int) -> Points:
        """Inputs of the rows."""
        step, place = self.of_rows
        found = self.places[place]
        return found + self.times[step][:, None] * (np.arange(found.shape[1]) == time)

    def at_rows(self, values: Float[Array, "*Q T B"]) -> Float[Array, "*Q N"]:
        """Values of slots as those of the rows."""
        return values.reshape(*values.shape[:-2], -1)[..., self.slot]

    def sums(self, values: Float[Array, "*Q N"]) -> Float[Array, "*Q T B"]:
        """Sums of the rows' values in each slot."""
        shape = values.shape[:-1]
        none = jnp.zeros((*shape, self.place.size), values.dtype)
        return none.at[..., self.slot].add(values).reshape(*shape, *self.place.shape)


def _width(counts: Int[np.ndarray, "T"]) -> int:
    """Number of slots a step that takes the least time for so many slots at each time."""
    most = min(int(counts.max()), _WIDEST)
    widths = sorted({*(2**k for k in range(most.bit_length())), most})
    return min(widths, key=lambda width: int(np.sum(-(-counts // width))) * (_A_STEP + width))
