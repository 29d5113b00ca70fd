"""Observations: rows of inputs and targets, with whatever else belongs to a row."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int, UInt

from latentgp.errors import InputError
from latentgp.modules import stored
from latentgp.rows.arrays import as_inputs, as_rows, as_targets, as_weights, evenly
from latentgp.rows.spread import robust_spread
from latentgp.runtime.mesh import shard_rows
from latentgp.typing import Array, Inputs, PerRow

_MERGED_AT_MOST = 200_000
_BOUNDS = "upper", "entry"  # side information in units of the targets
_MULTIPLIERS, _MIXED_AT_ONCE = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB), 2**16


@stored
class Data(eqx.Module):
    """A table of observations.

    Args:
        X: inputs, shape (N, D), or (N,) for one input; any array-like of numbers.
        y: targets, shape (N,), or (N, P) for likelihoods of P outputs, where NaN is a missing one.
        weights: how often each row counts, shape (N,), not negative. A whole number w equals
            w copies of the row, zero equals its absence.
        side_information: one number a row that the likelihood reads by name, shape (N,), such
            as `noise_variance=` for a Gaussian.

    Raises:
        InputError: shapes that do not agree, no rows, or values that are not finite numbers;
            the message names the argument and the rows.

    Example:
        >>> data = Data([[0.0], [1.0]], [0.5, 0.7], noise_variance=[0.1, 0.2])
        >>> data.X.shape
        (2, 1)
    """

    X: Float[Array, "N D"]
    y: Float[Array, "N *P"]
    weights: Float[Array, "N"] | None
    side_information: dict[str, Float[Array, "N"]]

    def __init__(self, X: Any, y: Any, *, weights: Any = None, **side_information: Any):
        self.X = as_inputs(X)
        self.y = as_targets(y, len(self.X))
        self.weights = None if weights is None else as_weights(weights, len(self.X))
        self.side_information = {
            name: as_rows(name, values, len(self.X)) for name, values in side_information.items()
        }

    @classmethod
    def with_checked_inputs(
        cls, X: Inputs, y: Any, weights: PerRow | None, **side_information: Any
    ) -> "Data":
        """Data of inputs and weights already checked; y is checked here."""
        side = {name: as_rows(name, v, len(X)) for name, v in side_information.items()}
        fields = {"X": X, "y": as_targets(y, len(X)), "weights": weights, "side_information": side}
        data = object.__new__(cls)
        for name, value in fields.items():
            object.__setattr__(data, name, value)
        return data

    @property
    def size(self) -> int:
        """Number of rows N."""
        return self.X.shape[0]

    @property
    def total_weight(self) -> float:
        """Sum of the weights: the number of rows these count as."""
        return float(self.size if self.weights is None else self.weights.sum())

    def select(self, index: Any) -> "Data":
        """The rows at an index (or where a mask is true)."""
        return jax.tree.map(lambda column: column[index], self)

    def evenly(self, at_most: int) -> "Data":
        """At most so many rows, evenly spaced; their weights are as they were."""
        return self.select(evenly(self.size, at_most))

    @cached_property
    def input_spread(self) -> tuple[Float[np.ndarray, "D"], Float[np.ndarray, "D"]]:
        """Typical size of each input, and its standard deviation over that: `robust_spread`."""
        return robust_spread(self.X, self.weights)

    def merged(self) -> "Data":
        """The same observations with equal rows merged into one that has their weight.

        Rows of weight zero or without any output go, and what is left is put in an order of its
        own, so that a fit depends neither on the order of the rows nor on how a repeated row was
        written down. Where inputs are distinct this order follows from them alone. More than
        200,000 rows are neither merged nor put in another order.
        """
        return self.merged_rows().merged

    def merged_rows(self) -> "MergedRows":
        """The merged data, and in which of their rows each row is."""
        says = np.any(np.isfinite(self.y.reshape(self.size, -1)), axis=1)
        says &= self.weights is None or self.weights > 0
        if not says.any():
            raise InputError("y is missing in every row; give rows with an observed output.")
        data = self if np.all(says) else self.select(says)
        origin = np.cumsum(says) - 1
        origin[~says] = -1
        if data.size > _MERGED_AT_MOST:
            return MergedRows(self, data, origin)
        targets = data.y.reshape(data.size, -1)
        columns = [data.X, targets, *(c[:, None] for c in data.side_information.values())]
        table = np.ascontiguousarray(np.concatenate(columns, axis=1))
        table += 0.0  # makes -0.0 and 0.0 the same bytes
        first, inverse = _distinct(table, data.X.shape[1])
        weights = np.bincount(inverse, weights=data.weights)
        origin[says] = inverse
        weights = None if np.all(weights == 1) else weights.astype(np.float64)
        return MergedRows(self, data.select(first).reweighted(weights), origin)

    def reweighted(self, weights: Float[Array, "N"] | None) -> "Data":
        """The same rows with other weights."""
        return eqx.tree_at(
            lambda own: own.weights, self, weights, is_leaf=lambda leaf: leaf is None
        )

    def shifted(self, by: float | Float[Array, "N"]) -> "Data":
        """The same rows with a number, or one a row, added to the targets.

        Bounds of the targets, which side information may have, move with them.
        """
        own = self.side_information
        moved = own | {name: own[name] + by for name in _BOUNDS if name in own}
        return eqx.tree_at(lambda d: (d.y, d.side_information), self, (self.y + by, moved))

    def to_device(self) -> "Data":
        """The same rows as JAX arrays, over all devices; call it inside the x64 context."""
        return shard_rows(self)

    def padded(self, number: int = 1) -> "Data":
        """The same observations padded to one of few numbers of rows, to reuse compiled programs.

        Rows that fill up are copies of the last one with weight zero. There are a multiple of 64
        up to 512, above that one of 32 numbers in every octave: at most 3 % more, and as many as
        are divisible by the number of devices.
        """
        size = padded_size(self.size)
        rows, weights = self._lengthened(size + -size % number)
        weights[self.size :] = 0
        return rows.reweighted(weights)

    def divisible(self, number: int) -> "Data":
        """The same observations in a number of rows that is a multiple of another.

        The last row is written several times over, each with its part of the weight.
        """
        more = -self.size % number
        if not more:
            return self
        rows, weights = self._lengthened(self.size + more)
        weights[self.size - 1 :] /= more + 1
        return rows.reweighted(weights)

    def _lengthened(self, size: int) -> "tuple[Data, Float[np.ndarray, 'more']]":
        """The rows with copies of the last one, and the weights of all."""
        index = np.minimum(np.arange(size), self.size - 1)
        weights = np.ones(self.size) if self.weights is None else np.asarray(self.weights)
        return self.select(index), weights[index]


def padded_size(size: int) -> int:
    """The next of few numbers of rows: multiples of 64 up to 512, then 32 an octave.

    Example:
        >>> padded_size(100), padded_size(1_000)
        (128, 1008)
    """
    step = 64 if size <= 512 else 1 << ((size - 1).bit_length() - 6)
    return size + -size % step


def check_outputs(y: Float[np.ndarray, "N *P"], outputs: tuple[int, ...], likelihood: str) -> None:
    """Raise if targets are not of as many outputs as a likelihood has, () for one number."""
    if y.shape[1:] != outputs:
        wanted = f"(rows, {outputs[0]})" if outputs else "(rows,)"
        raise InputError(
            f"{likelihood} needs y of shape {wanted}, got {y.shape}; change its shape, or choose a "
            "likelihood of as many outputs."
        )


def check_side_information(given: Iterable[str], known: tuple[str, ...], likelihood: str) -> None:
    """Raise if the rows carry something that the likelihood would not read."""
    for name in given:
        if name not in known:
            raise InputError(
                f"{likelihood} reads no per-row {name!r} (it knows: {', '.join(known) or 'none'}); "
                "leave it out or choose a likelihood that reads it."
            )


class MergedRows(NamedTuple):
    """Rows that were checked and merged once, for whoever comes after."""

    given: Data
    merged: Data  # equal ones in one, in an order of their own
    origin: Int[np.ndarray, "N"]  # the merged row of each given one; -1 for one that is gone

    def centred(self, centre: float) -> "MergedRows":
        """With a constant taken off the targets."""
        if not centre:
            return self
        return MergedRows(self.given.shifted(-centre), self.merged.shifted(-centre), self.origin)

    def counted(self, sentence: str) -> str:
        """A sentence that counts merged rows, with the number of given ones where it differs."""
        merged, given = self.merged.size, int(np.sum(self.origin >= 0))
        distinct = f"{merged} distinct of {given} rows" if merged < given else f"{merged} rows"
        return sentence.replace(f"{merged} rows", distinct, 1)


def _distinct(
    table: Float[np.ndarray, "N columns"], leading: int
) -> tuple[Int[np.ndarray, "distinct"], Int[np.ndarray, "N"]]:
    """Index of the first copy of each distinct row, and which of them each row is.

    They are in an order of their own, that of some leading columns where these differ.
    """
    bits = table.view(np.uint64)
    prints = [_fingerprints(columns) for columns in (bits[:, :leading], bits[:, leading:])]
    first, inverse = _as_wholes(np.stack(prints, axis=1))
    if len(first) < len(bits) and not np.array_equal(bits[first][inverse], bits):
        # Different rows of one fingerprint, about once in a billion tables.
        first, inverse = _as_wholes(bits)
    return first, inverse


def _as_wholes(
    bits: UInt[np.ndarray, "N columns"],
) -> tuple[Int[np.ndarray, "distinct"], Int[np.ndarray, "N"]]:
    """The same in the order of the rows' bytes."""
    rows = bits.view(np.dtype((np.void, bits.dtype.itemsize * bits.shape[1])))[:, 0]
    _, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
    return first, inverse


def _fingerprints(bits: UInt[np.ndarray, "N columns"]) -> UInt[np.ndarray, "N"]:
    """A number of 64 bits for each row, equal for equal rows, by the mixer of Stafford (2011)."""
    half = np.uint64(32)
    salts = np.random.default_rng(0).integers(0, 2**64, size=bits.shape[1], dtype=np.uint64)
    found = np.empty(len(bits), np.uint64)
    rows = max(1, _MIXED_AT_ONCE // bits.shape[1])
    for start in range(0, len(bits), rows):
        mixed = bits[start : start + rows] ^ salts
        for multiplier in _MULTIPLIERS:
            mixed ^= mixed >> half
            mixed *= np.uint64(multiplier)
        mixed ^= mixed >> half
        found[start : start + rows] = mixed.sum(axis=1)
    return found
