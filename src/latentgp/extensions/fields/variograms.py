"""Variograms: of values at places, and of kernels, along every direction or one by one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentgp.errors import InputError, refuse
from latentgp.extensions.fields.places import as_places, places_of
from latentgp.extensions.fields.response import as_number, as_numbers
from latentgp.kernels.base import Kernel
from latentgp.kernels.per_latent import OwnKernels
from latentgp.kernels.sphere import EARTH_RADIUS, along_surface, on_unit_sphere
from latentgp.rows.arrays import as_inputs, as_rows
from latentgp.runtime.x64 import double_precision
from latentgp.typing import Array, RandomKey
from latentgp.validation import as_key, check_count, is_whole

_CUTOFF = 1 / 3  # of the diagonal of the places
_PILOT = 2_000  # places whose distances tell how many pairs a bin has
_PLACES = 50_000  # that a bin's pairs are of, at least, where there are as many
_EVERY_WAY = 12  # directions that a kernel's variogram is averaged over


class Variogram(NamedTuple):
    """Half the mean squared difference of values, by the distance of their places.

    Attributes:
        distance: mean distance of the pairs of each bin, shape (A, B) for A directions.
        classical: mean of (z - z')^2 / 2 (Matheron 1962), shape (A, B); NaN of a bin without pairs.
        robust: by square roots of differences, less led by outliers (Cressie & Hawkins 1980,
            eq. 3.10), shape (A, B).
        pairs: number of pairs of each bin, shape (A, B).
        edges: of the bins, shape (B + 1,).
        directions: angles in degrees from the first column (east) towards the second (north), shape
            (A,); None for all directions together, of which A is 1.
        tolerance: greatest deviation from a direction in degrees; None without directions.
        places: number of places whose pairs are looked at in each bin, shape (B,).
        of_places: number of all places.
        is_whole: whether all pairs are counted; else some, drawn at random.
    """

    distance: Float[np.ndarray, "A B"]
    classical: Float[np.ndarray, "A B"]
    robust: Float[np.ndarray, "A B"]
    pairs: Int[np.ndarray, "A B"]
    edges: Float[np.ndarray, "edges"]
    directions: Float[np.ndarray, "A"] | None
    tolerance: float | None
    places: Int[np.ndarray, "B"]
    of_places: int
    is_whole: bool

    def __str__(self) -> str:
        lines = []
        for a in range(len(self.pairs)):
            if self.directions is not None:
                lines.append(f"direction {self.directions[a]:g} degrees, +-{self.tolerance:g}")
            lines.append(f"{'distance':>10}{'pairs':>10}{'classical':>12}{'robust':>12}")
            rows = zip(self.distance[a], self.pairs[a], self.classical[a], self.robust[a])  # noqa: B905
            lines += [f"{d:>10.4g}{n:>10,}{c:>12.4g}{r:>12.4g}" for d, n, c, r in rows if n]
        if not self.is_whole:
            lines.append(
                f"Pairs are some, drawn at random, of {self.places.min():,} to "
                f"{self.places.max():,} places a bin, of {self.of_places:,}."
            )
        return "\n".join(lines)


def variogram(
    X: Any,
    residuals: Any,
    *,
    bins: Any = 15,
    cutoff: float | None = None,
    directions: Any = None,
    tolerance: float | None = None,
    degrees: bool = False,
    most_pairs: int = 5_000_000,
    key: RandomKey | None = None,
) -> Variogram:
    """Empirical variogram of values at places, by both usual estimators.

    Values are free of a trend: residuals of a mean, not what grows across the map. Pairs at
    distance zero are in the first bin, and in that of every direction.

    Args:
        X: places, shape (N, D).
        residuals: a value each, shape (N,).
        bins: number of equally wide bins, or their edges from zero, shape (B + 1,).
        cutoff: greatest distance; a third of the diagonal of the places unless given. Edges have
            their own.
        directions: angles in degrees from the first column towards the second: 0 is east, 90 north,
            if columns are those. Of two columns only. (gstat's `alpha` is 90 less this.)
        tolerance: greatest deviation from a direction in degrees, up to 90; unless given the
            directions share the circle.
        degrees: columns are longitude and latitude in degrees; distances are great-circle ones in
            kilometres, directions those at the middle between two places.
        most_pairs: pairs that are looked at; with more, each bin has those of places drawn at
            random, about as many in every bin.
        key: random key for these; needed if there are more pairs.

    Returns:
        `Variogram`, which prints as a table.

    Raises:
        InputError: shapes that do not agree; directions without two columns; edges that do not
            rise from zero; a range of an argument; more pairs than `most_pairs` without a key.

    Example:
        >>> import numpy as np
        >>> places = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
        >>> found = variogram(places, np.array([0.0, 1.0, 4.0]), bins=[0.0, 1.5, 2.5])
        >>> found.pairs, found.classical
        (array([[2, 1]]), array([[2.5, 8. ]]))
    """
    X = as_places(X, "X", degrees)
    values = as_rows("residuals", residuals, len(X))
    ways = None if directions is None else as_numbers("directions", directions)
    if tolerance is None and ways is not None:
        tolerance = 90.0 / max(len(ways), 1)
    tolerance = None if tolerance is None else as_number("tolerance", tolerance)
    check_count("most_pairs", most_pairs, 1)
    refuse(
        {
            f"directions read two columns, got {X.shape[1]}; give those of the places.": ways
            is not None
            and X.shape[1] != 2,
            f"tolerance={tolerance!r} is a deviation from directions; give directions=.": ways
            is None
            and tolerance is not None,
            "directions must be angles in degrees and tolerance from 0 to 90, got "
            f"{directions!r} and {tolerance!r}.": ways is not None
            and not (len(ways) and 0 < (tolerance or 0) <= 90),
        }
    )
    points = np.asarray(on_unit_sphere(X)) if degrees else X
    edges = _edges(points, bins, cutoff, degrees)
    reach = 2 * np.sin(edges / (2 * EARTH_RADIUS)) if degrees else edges
    number_of_places, whole = [], len(X) * (len(X) - 1) // 2 <= most_pairs
    shape = (1 if ways is None else len(ways), len(edges) - 1)
    sums = np.zeros((4, *shape))
    for bins_here, rows, groups in _places_of_bins(points, reach, most_pairs, key):
        number_of_places += [len(rows)] * len(bins_here)
        first, second = _pairs(points, rows, groups, float(reach[bins_here[-1] + 1]))
        A, B = points[first], points[second]
        apart = np.sqrt(np.sum((A - B) ** 2, axis=1))
        distance = along_surface(apart) if degrees else apart
        number = np.maximum(np.searchsorted(edges, distance) - 1, 0)
        step = np.abs(values[first] - values[second])
        columns = np.ones_like(step), distance, step**2 / 2, np.sqrt(step)
        for a in range(shape[0]):
            kept = np.isin(number, bins_here)
            if ways is not None:
                angle = _angle(A, B, degrees)
                off = np.abs((angle - ways[a] + 90) % 180 - 90)
                kept &= (off <= tolerance) | (apart == 0)
            for total, column in zip(sums[:, a], columns, strict=True):
                total += np.bincount(number[kept], column[kept], shape[1])
    pairs, distances, squares, roots = sums
    with np.errstate(invalid="ignore", divide="ignore"):
        distance, classical = distances / pairs, squares / pairs
        robust = (roots / pairs) ** 4 / (2 * (0.457 + 0.494 / pairs))
    counted = pairs.astype(int), edges, ways, tolerance
    return Variogram(
        distance, classical, robust, *counted, np.array(number_of_places), len(X), whole
    )


def _edges(
    points: Float[np.ndarray, "N D"], bins: Any, cutoff: float | None, degrees: bool
) -> Float[np.ndarray, "edges"]:
    """Edges of the bins, in the unit of distances."""
    if np.iterable(bins):
        edges = as_numbers("bins", bins)
    else:
        diagonal = float(np.linalg.norm(np.ptp(points, axis=0)))
        usual = _CUTOFF * diagonal * (EARTH_RADIUS if degrees else 1.0)
        last = usual if cutoff is None else as_number("cutoff", cutoff)
        edges = np.linspace(0.0, last, int(bins) + 1 if is_whole(bins, 1) else 1)
    most = math.pi * EARTH_RADIUS if degrees else math.inf
    if len(edges) < 2 or edges[0] != 0 or not np.all(np.diff(edges) > 0) or edges[-1] > most:
        raise InputError(
            f"bins must be a whole number from 1 or edges that rise from zero, got {bins!r} with "
            f"cutoff={cutoff!r}; give cutoff= where all places are one, and at most half of the "
            "circumference of the globe."
        )
    return edges


def _places_of_bins(
    points: Float[np.ndarray, "N D"],
    reach: Float[np.ndarray, "edges"],
    most_pairs: int,
    key: RandomKey | None,
) -> Iterator[tuple[Int[np.ndarray, "bins"], Int[np.ndarray, "some"], int]]:
    """Bins with rows, and the number of groups of these within which pairs are looked for.

    All rows in one group for all bins, or for each bin a random subset of rows in random groups:
    each pair is in one of them with the same probability, so that means over pairs are free of
    bias. A bin's places are many even where few of them would have pairs enough, as means over
    pairs that share their places vary more.
    """
    N, bins = len(points), np.arange(len(reach) - 1)
    if most_pairs >= N * (N - 1) // 2:
        yield bins, np.arange(N), 1
        return
    if key is None:
        raise InputError(
            f"{N:,} places have {N * (N - 1) // 2:,} pairs, more than most_pairs={most_pairs:,}; "
            "give key=jax.random.key(0) to look at some of them drawn at random, or more of them."
        )
    bits = [int(word) for word in np.ravel(jax.random.key_data(as_key(key)))]
    generator = np.random.default_rng(bits)
    pilot = points[generator.choice(N, min(N, _PILOT), replace=False)]
    first, second = _pairs(pilot, np.arange(len(pilot)), 1, float(reach[-1]))
    found = np.histogram(np.linalg.norm(pilot[first] - pilot[second], axis=1), reach)[0]
    share = np.maximum(np.cumsum(found), 1) / (len(pilot) * (len(pilot) - 1) / 2)
    for b in bins:  # pairs nearer than the bin are found with its own, and are no more either
        wanted = most_pairs / len(bins) / share[b]  # pairs at any distance
        number = min(N, max(_PLACES, int(np.sqrt(2 * wanted)) + 1))
        groups = int(np.clip(number**2 / (2 * wanted), 1, number // 2))
        yield bins[b : b + 1], generator.choice(N, number, replace=False), groups


def _pairs(
    points: Float[np.ndarray, "N D"], rows: Int[np.ndarray, "some"], groups: int, reach: float
) -> tuple[Int[np.ndarray, "P"], Int[np.ndarray, "P"]]:
    """Pairs of these rows within a group that are no further apart."""
    from scipy.spatial import KDTree

    group = np.arange(len(rows)) % groups * (2.0 * reach)  # a coordinate that keeps them apart
    tree = KDTree(np.column_stack([points[rows], group]))
    found = tree.query_pairs(reach * (1 + 1e-12), output_type="ndarray")
    return rows[found[:, 0]], rows[found[:, 1]]


def _angle(
    A: Float[np.ndarray, "P D"], B: Float[np.ndarray, "P D"], degrees: bool
) -> Float[np.ndarray, "P"]:
    """Angle from A to B in degrees, on the sphere at the middle of the arc between them."""
    step = B - A
    if not degrees:
        return np.degrees(np.arctan2(step[:, 1], step[:, 0]))
    middle = A + B
    east = np.stack([-middle[:, 1], middle[:, 0], np.zeros(len(A))], axis=1)
    north = np.cross(middle, east)
    east = east * np.linalg.norm(middle, axis=1, keepdims=True)
    return np.degrees(np.arctan2(np.sum(step * north, axis=1), np.sum(step * east, axis=1)))


class ModelVariogram(NamedTuple):
    """Half the expected squared difference of values by a kernel, by the distance of their places.

    Attributes:
        distance: of places, shape (B,).
        gamma: expectation along each direction, shape (A, B).
        directions: angles in degrees, as in `Variogram`, shape (A,); None for their mean, of
            which A is 1.
    """

    distance: Float[np.ndarray, "B"]
    gamma: Float[np.ndarray, "A B"]
    directions: Float[np.ndarray, "A"] | None


@double_precision
def model_variogram(
    kernel: Kernel,
    distance: Any,
    *,
    noise_variance: float = 0.0,
    directions: Any = None,
    at: Any = None,
    columns: tuple[int, int] | None = None,
    degrees: bool | None = None,
) -> ModelVariogram:
    """Variogram of a kernel: k(x, x) / 2 + k(z, z) / 2 - k(x, z) + noise at places apart.

    For a stationary kernel this is k(0) - k(h) + noise (Chilès & Delfiner 2012, eq. 2.9); for
    another it is the mean over the places `at`, to both sides. At distance zero it is zero.

    Args:
        kernel: of the latent function, such as `fit.model.kernel`.
        distance: shape (B,), from zero; kilometres if `degrees`.
        noise_variance: of the rows, such as `fit.model.likelihood.noise_variance`.
        directions: angles in degrees from the first of `columns` towards the second; None is the
            mean over twelve of them.
        at: rows from which places are apart, shape (R, D), where the kernel is not stationary;
            zeros of two columns unless given, so that a kernel of further ones needs it.
        columns: numbers of the columns of places among those of the inputs; as `places_of` finds
            them in the kernel unless given, else the first two.
        degrees: they are longitude and latitude in degrees; so of `OnSphere` unless given.

    Raises:
        InputError: distances or a noise variance that are negative or not finite; directions that
            are not; columns that there are not; degrees that are none; kernels of several latent
            functions.

    Example:
        >>> import latentgp as lgp
        >>> curve = lgp.fields.model_variogram(
        ...     lgp.Matern12(2.0, variance=3.0), [0.0, 2.0], noise_variance=0.5
        ... )
        >>> curve.gamma.round(2)
        array([[0. , 2.4]])
    """
    distance, noise_variance = (
        as_numbers("distance", distance),
        as_number("noise_variance", noise_variance),
    )
    refuse(
        {
            f"Distances and noise_variance must not be negative, got {distance.tolist()} and "
            f"{noise_variance!r}.": min(noise_variance, *distance) < 0,
            f"columns must be two numbers of columns, got {columns!r}.": columns is not None
            and not (np.shape(columns) == (2,) and all(is_whole(c, 0) for c in columns)),
            "kernel is one a latent function; give that of one.": isinstance(kernel, OwnKernels),
        }
    )
    rows = np.zeros((1, max(columns or (1,)) + 1)) if at is None else as_inputs(at, "at")
    every = np.arange(_EVERY_WAY) * 180 / _EVERY_WAY
    ways = every if directions is None else as_numbers("directions", directions)
    found = places_of(kernel, rows.shape[1])
    columns = columns or (found.columns if found else (0, 1))
    degrees = bool(found and found.degrees) if degrees is None else degrees
    if columns[0] == columns[1] or max(columns) >= rows.shape[1]:
        raise InputError(f"columns must be two of the {rows.shape[1]} inputs, got {columns!r}.")
    as_places(rows[:, columns], "at", degrees)
    both_sides = np.concatenate([ways, ways + 180])
    moved = _moved(rows[:, columns], distance, both_sides, degrees)  # W B R 2
    other = np.broadcast_to(rows, (*moved.shape[:3], rows.shape[1])).copy()
    other[..., columns] = moved
    means = np.asarray(_half_squares(kernel, jnp.asarray(rows), jnp.asarray(other)))
    gamma = means.reshape(2, len(ways), -1).mean(axis=0)
    gamma = np.where(distance > 0, gamma + noise_variance, 0.0)
    if directions is None:
        return ModelVariogram(distance, gamma.mean(axis=0, keepdims=True), None)
    return ModelVariogram(distance, gamma, ways)


@eqx.filter_jit
def _half_squares(
    kernel: Kernel, rows: Float[Array, "R D"], other: Float[Array, "W B R D"]
) -> Float[Array, "W B"]:
    """Mean over rows of half the expected squared difference from each to another."""

    def of_pair(x: Float[Array, "D"], z: Float[Array, "D"]) -> Float[Array, ""]:
        return (kernel(x, x) + kernel(z, z)) / 2 - kernel(x, z)

    of_rows = jax.vmap(of_pair, in_axes=(0, 0))
    return jnp.mean(jax.vmap(jax.vmap(of_rows, (None, 0)), (None, 0))(rows, other), axis=-1)


def _moved(
    places: Float[np.ndarray, "R 2"],
    distance: Float[np.ndarray, "B"],
    ways: Float[np.ndarray, "W"],
    degrees: bool,
) -> Float[np.ndarray, "W B R 2"]:
    """Places so far away along each direction, on a plane or along great circles."""
    way, apart = np.radians(ways)[:, None, None], distance[None, :, None]
    first, second = places[:, 0], places[:, 1]
    if not degrees:
        moved = first + apart * np.cos(way), second + apart * np.sin(way)
        return np.stack(np.broadcast_arrays(*moved), axis=-1)
    angle, here = apart / EARTH_RADIUS, np.radians(second)
    upward = np.sin(here) * np.cos(angle) + np.cos(here) * np.sin(angle) * np.sin(way)
    latitude = np.arcsin(np.clip(upward, -1, 1))
    across = np.cos(way) * np.sin(angle) * np.cos(here)
    turn = np.arctan2(across, np.cos(angle) - np.sin(here) * np.sin(latitude))
    longitude = (first + np.degrees(turn) + 180) % 360 - 180
    return np.stack(np.broadcast_arrays(longitude, np.degrees(latitude)), axis=-1)
