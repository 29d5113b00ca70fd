"""Dimensions that a covariance couples: all, none, or those of each block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from latentgp.errors import refuse


def block_sizes(structure: Any, dimension: int) -> tuple[int, ...]:
    """Sizes of the blocks, which add up to the dimension.

    Example:
        >>> block_sizes("full", 3), block_sizes("mean-field", 3), block_sizes((1, 2), 3)
        ((3,), (1, 1, 1), (1, 2))
    """
    if structure == "full":
        return (dimension,)
    return (1,) * dimension if structure == "mean-field" else tuple(structure)


def check_rank(owner: Any, dimension: int) -> None:
    """Raise InputError if a rank, if there is one, is above the dimension."""
    name = type(owner).__name__
    sentence = f"{name}.rank must be at most the dimension {dimension}, got {owner.rank}."
    refuse({sentence: (owner.rank or 0) > dimension})


def slices_of(sizes: Sequence[int]) -> list[slice]:
    """The dimensions of each block."""
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    return [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
