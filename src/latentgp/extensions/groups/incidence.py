"""Sparse products with the block of P between a grouping and the effects of crossed ones.

A student rates a few of a thousand lecturers, so that few numbers of a level's block are not zero.
Products of two such blocks go over the pairs of lecturers that a student rates.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from latentgp.typing import Array

# In a dense product, that take as long as a pair in a sum over pairs; and pairs that are kept.
_PRODUCTS_A_PAIR, _MOST_PAIRS = 80, 2e7


class Incidence(NamedTuple):
    """Cells, each a level and an effect of another grouping that a row has both of.

    Cells are in the order of levels; pairs are of cells of one level, both ways round.
    """

    level: Int[Array, "cells"]
    effect: Int[Array, "cells"]  # its place among those that are left
    first: Int[Array, "pairs"]  # numbers of cells
    second: Int[Array, "pairs"]
    shared: Int[Array, "_"]  # places of the effects that all rows share

    @classmethod
    def of(
        cls,
        level: Int[np.ndarray, "N"],
        effects: Int[np.ndarray, "N E"],
        shared: Int[np.ndarray, "_"],
        levels: int,
        left: int,
    ) -> Incidence | None:
        """The cells of rows, by the level and effects of each; None where dense products pay."""
        cell = np.unique(level[:, None] * left + effects)
        own, place = cell // left, cell % left
        each = np.bincount(own, minlength=levels)
        pairs = float(np.sum(each.astype(float) ** 2))
        if pairs > min(levels * left**2 / _PRODUCTS_A_PAIR, _MOST_PAIRS):
            return None
        partners = each[own]
        first = np.repeat(np.arange(len(cell)), partners)
        begins, before = np.cumsum(each) - each, np.cumsum(partners) - partners
        second = np.arange(len(first)) - before[first] + begins[own[first]]
        return cls(*(jnp.asarray(part, jnp.int32) for part in (own, place, first, second, shared)))

    def lacks(
        self, level: Int[Array, "N"], effects: Int[Array, "N E"], levels: int, left: int
    ) -> Bool[Array, "N"]:
        """Whether a row has a level and an effect that are in no cell."""
        known = jnp.zeros((levels, left), bool).at[self.level, self.effect].set(True)
        own = known.at[level[:, None], effects].get(mode="fill", fill_value=False)
        return ~jnp.all(own, axis=1)

    def product(
        self, one: Float[Array, "L E left"], other: Float[Array, "L E left"]
    ) -> Float[Array, "left left"]:
        """A symmetric sum over levels of products one' other, zero outside of cells and shared."""
        own, on = (block[self.level, :, self.effect] for block in (one, other))
        each = jnp.sum(own[self.first] * on[self.second], axis=1)
        total = jnp.zeros((one.shape[2], one.shape[2]), one.dtype)
        total = total.at[self.effect[self.first], self.effect[self.second]].add(each)
        beside = jnp.tensordot(other[:, :, self.shared], one, ((0, 1), (0, 1)))
        return total.at[:, self.shared].set(beside.T).at[self.shared].set(beside)

    def times(
        self, block: Float[Array, "L E left"], covariance: Float[Array, "left left"]
    ) -> Float[Array, "L E left"]:
        """Such a block times a covariance, in the cells and of the shared effects alone."""
        own = block[self.level, :, self.effect]
        between = covariance[self.effect[self.first], self.effect[self.second]]
        each = between[:, None] * own[self.second]
        total = jax.ops.segment_sum(each, self.first, len(own), indices_are_sorted=True)
        beside = block[:, :, self.shared] @ covariance[self.shared]
        beside = beside.at[self.level, :, self.effect].add(total)
        return beside.at[:, :, self.shared].set(block @ covariance[:, self.shared])
