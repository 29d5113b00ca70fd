"""Dimensions that a covariance couples: all, none, or those of each block; its rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from latentgp.errors import InputError


def check_structure(owner: object, structure: Any) -> None:
    """Raise InputError unless a structure is "full", "mean-field" or the sizes of blocks."""
    by_name = structure in ("full", "mean-field")
    sizes = (
        isinstance(structure, tuple)
        and structure
        and all(isinstance(size, int) and size > 0 for size in structure)
    )
    if not by_name and not sizes:
        raise InputError(
            f'{type(owner).__name__}.structure must be "full", "mean-field" or the sizes of '
            f"blocks such as (3, 2), got {structure!r}."
        )


def block_sizes(structure: Any, dimension: int) -> tuple[int, ...]:
    """Sizes of the blocks, which add up to the dimension.

    Example:
        >>> block_sizes("full", 3), block_sizes("mean-field", 3), block_sizes((1, 2), 3)
        ((3,), (1, 1, 1), (1, 2))
    """
    if structure == "full":
        return (dimension,)
    return (1,) * dimension if structure == "mean-field" else tuple(structure)


def check_blocks(owner: object, structure: Any, dimension: int) -> None:
    """Raise InputError unless the blocks add up to the dimension."""
    sizes = block_sizes(structure, dimension)
    if sum(sizes) != dimension:
        raise InputError(
            f"{type(owner).__name__}.structure has blocks of {sum(sizes)} dimensions in all, but "
            f"the log density has {dimension}."
        )


def check_rank(owner: Any, dimension: int) -> None:
    """Raise InputError if a rank, if there is one, is above the dimension."""
    if (owner.rank or 0) > dimension:
        raise InputError(
            f"{type(owner).__name__}.rank must be at most the dimension {dimension}, got "
            f"{owner.rank}."
        )


def slices_of(sizes: Sequence[int]) -> list[slice]:
    """The dimensions of each block."""
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    return [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
