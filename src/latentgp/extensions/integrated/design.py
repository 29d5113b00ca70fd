"""Points around the mode of the hyper-parameters, and their masses under a standard normal law.

Rue, Martino & Chopin (2009, JRSSB 71:319), 3.1 and 6.5: a lattice for one or two coordinates, a
central composite design for more.
"""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

_LATTICE_UP_TO = 2  # coordinates
_STEP, _DROP = np.sqrt(2.0), 4.5  # deviations, nats
_BEYOND = 1.1  # radius of a design's sphere over sqrt(P), f_0 of Rue et al.


class Design(NamedTuple):
    """Points in standardised coordinates, the mode first, and masses that sum to one.

    With these masses a standard normal law has mean zero and covariance one (on a lattice nearly).
    """

    points: Float[np.ndarray, "points H"]
    masses: Float[np.ndarray, "points"]


def design(size: int) -> Design:
    """The usual design for H coordinates."""
    return lattice(size) if size <= _LATTICE_UP_TO else central_composite(size)


def lattice(size: int, step: float = _STEP, drop: float = _DROP) -> Design:
    """All points of a lattice where a standard normal density is at most `drop` nats lower."""
    reach = int(np.sqrt(2 * drop) / step)
    places = np.indices((2 * reach + 1,) * size).reshape(size, -1).T - reach
    points = step * places[np.sum(places**2, axis=1) * step**2 <= 2 * drop]
    points = points[np.argsort(np.sum(points**2, axis=1), kind="stable")]
    masses = np.exp(-0.5 * np.sum(points**2, axis=1))
    return Design(points, masses / masses.sum())


def central_composite(size: int, beyond: float = _BEYOND) -> Design:
    """The mode, two points on each axis and a fraction of a cube's corners, all on one sphere.

    Corners are a two-level factorial of resolution V, in which no main effect or interaction of
    two coordinates is that of others: on the sphere squares and products average as on the whole
    of it.
    """
    axes = np.sqrt(size) * np.concatenate([np.eye(size), -np.eye(size)])
    sphere = beyond * np.concatenate([axes, corners(size)])
    points = np.concatenate([np.zeros((1, size)), sphere])
    # Every coordinate has a mean square of beyond^2 on the sphere.
    outside = np.full(len(sphere), 1 / (beyond**2 * len(sphere)))
    return Design(points, np.append(1 - 1 / beyond**2, outside))


def corners(size: int) -> Float[np.ndarray, "points H"]:
    """Corners of a cube, +1 and -1, of resolution V (Sanchez & Sanchez 2005)."""
    columns = _walsh_indices(size)
    runs = np.arange(1 << int(columns[-1]).bit_length())
    return 1.0 - 2.0 * np.array([np.bitwise_count(runs & column) & 1 for column in columns]).T


def _walsh_indices(size: int) -> list[int]:
    """The least numbers of which no four or fewer have a bitwise sum (without carry) of zero."""
    chosen: list[int] = []
    sums = {0}  # of at most two
    forbidden = {0}  # sums of at most three
    while len(chosen) < size:
        number = next(number for number in count(1) if number not in forbidden)
        forbidden |= {number ^ known for known in sums}
        sums |= {number, *(number ^ known for known in chosen)}
        chosen.append(number)
        forbidden |= {one ^ other for one in chosen for other in sums}
    return chosen
