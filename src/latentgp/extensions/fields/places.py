"""Which columns of a model's inputs are places, and grids over them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float

from latentgp.errors import InputError, in_a_line, refuse
from latentgp.kernels.base import Kernel
from latentgp.kernels.per_latent import LatentKernel, OwnKernels
from latentgp.kernels.sphere import OnSphere, are_degrees, on_unit_sphere
from latentgp.kernels.stationary import Stationary
from latentgp.kernels.terms import terms_of
from latentgp.rows.arrays import as_inputs, evenly
from latentgp.runtime.x64 import double_precision
from latentgp.validation import check_count

_ROWS = 2_000  # that tell how far apart places are
_NEAR = 3.0  # times the usual distance to the next row: cells beyond are beside the places


class Places(NamedTuple):
    """Two columns of the inputs that are places, with the part of the kernel that reads them.

    Attributes:
        columns: their numbers, the first across and the second up.
        kernel: of these two columns alone.
        degrees: whether they are longitude and latitude in degrees.
    """

    columns: tuple[int, int]
    kernel: Kernel
    degrees: bool

    @property
    def in_lengthscales(self) -> bool:
        """Whether distances are in length-scales, as the columns have their own."""
        return not self.degrees and np.shape(getattr(self.kernel, "lengthscale", ())) == (2,)

    @double_precision
    def metric(self, X: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N 2"]:
        """The places, in length-scales where the columns have their own."""
        own = X[:, self.columns]
        if not self.in_lengthscales:
            return own
        return np.asarray(self.kernel.embed(jax.numpy.asarray(own)))  # type: ignore


def places_of(kernel: LatentKernel, columns: int) -> Places | None:
    """The places of a kernel: the two columns of its first stationary part of exactly two.

    Of `Gneiting` they are those of space. None if there is no such part; a kernel of all of more
    columns has no places.

    Args:
        kernel: such as `fit.model.kernel`; of several latent functions the first one's counts.
        columns: number of columns of the inputs.

    Raises:
        InputError: no kernel; fewer columns than it reads.

    Example:
        >>> import latentgp as lgp
        >>> kernel = lgp.RBF().on(0) + lgp.kernels.OnSphere(lgp.Matern32(500.0)).on(2, 1)
        >>> places = lgp.fields.places_of(kernel, 3)
        >>> places.columns, places.degrees
        ((2, 1), True)
        >>> lgp.fields.places_of(lgp.RBF(), 3) is None
        True
    """
    said = f"kernel must be a kernel such as Matern32(), got {in_a_line(repr(kernel))}."
    refuse({said: not isinstance(kernel, Kernel | OwnKernels)})
    check_count("columns", columns, 1)
    kernel.check_inputs(columns)
    own = kernel.each[0] if isinstance(kernel, OwnKernels) else kernel
    for term in terms_of(own, tuple(range(columns))):
        for part in term.parts:
            one, seen = part.kernel, part.columns
            if space := getattr(one, "space", None):  # beside a column of time
                one, seen = space.kernel, tuple(seen[d] for d in space.dimensions)
            inner = getattr(one, "kernel", one)  # on the globe, say
            if len(seen) == 2 and isinstance(inner, Stationary):
                return Places((seen[0], seen[1]), one, isinstance(one, OnSphere))
    return None


class MapGrid(NamedTuple):
    """Centres of square cells over places, row by row from the lowest.

    Attributes:
        across: centres along the first column, shape (W,).
        up: centres along the second column, shape (H,).
        points: all centres, shape (H W, 2), the first column varying fastest.
        near: whether a place is near each, shape (H, W).
    """

    across: Float[np.ndarray, "W"]
    up: Float[np.ndarray, "H"]
    points: Float[np.ndarray, "cells 2"]
    near: Bool[np.ndarray, "H W"]

    def values(self, values: Float[np.ndarray, "cells"]) -> Float[np.ndarray, "H W"]:
        """Values at the points in rows and columns, NaN where no place is near."""
        values = np.asarray(values)
        if values.shape != (self.near.size,) or values.dtype.kind not in "fiub":
            raise InputError(
                f"A map needs one value for each of the grid's {self.near.size} points, got shape "
                f"{values.shape} of {values.dtype}; predict at grid.points."
            )
        return np.where(self.near, values.reshape(self.near.shape), np.nan)


def as_places(X: Any, name: str, degrees: bool) -> Float[np.ndarray, "N D"]:
    """Places as an array; InputError of degrees that are none."""
    X = as_inputs(X, name)
    if degrees and (X.shape[1] != 2 or not np.all(are_degrees(X))):
        raise InputError(
            f"degrees=True reads two columns, longitudes from -540 to 540 and latitudes from -90 "
            f"to 90, but {name} has {X.shape[1]} and such as {np.abs(X).max(axis=0).tolist()}; "
            "give those of the places, in this order."
        )
    return X


def grid_over(places: Any, *, cells: int = 2_500, degrees: bool = False) -> MapGrid:
    """A grid of about so many square cells over places.

    Longitudes of the points are from -180 to 180, or from 0 to 360 where those of places go beyond
    180; across they are counted on where places are on both sides of such an end.

    Args:
        places: shape (N, 2).
        cells: number of cells.
        degrees: columns are longitude and latitude in degrees.

    Raises:
        InputError: other than two columns of finite numbers; no cells; degrees that are none.

    Example:
        >>> import numpy as np
        >>> grid = grid_over(np.array([[0.0, 0.0], [3.0, 1.0]]), cells=12)
        >>> grid.across, grid.up
        (array([0.25, 0.75, 1.25, 1.75, 2.25, 2.75]), array([0.25, 0.75]))
    """
    from scipy.spatial import KDTree

    places = as_places(places, "places", degrees)
    refuse({f"places must have two columns, got {places.shape[1]}.": places.shape[1] != 2})
    check_count("cells", cells, 1)
    first = 0.0 if places[:, 0].max() > 180 else -180.0  # where longitudes begin
    low, high = _box(places, first if degrees else None)
    wide, tall = np.maximum(high - low, 1e-9 * max(1.0, float(np.max(np.abs(high)))))
    shrunk = math.cos(math.radians((low[1] + high[1]) / 2)) if degrees else 1.0
    tall_cells = int(np.clip(np.rint(np.sqrt(cells * tall / (wide * shrunk))), 1, cells))
    ends = zip(low, high, (max(1, round(cells / tall_cells)), tall_cells), strict=True)
    across, up = (a + (b - a) * (np.arange(n) + 0.5) / n for a, b, n in ends)
    points = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
    if degrees:
        points[:, 0] = (points[:, 0] - first) % 360 + first
    some = places[evenly(len(places), _ROWS)]
    there, here = (np.asarray(on_unit_sphere(a)) if degrees else a for a in (some, points))
    tree = KDTree(there)
    nearest: Any = [min(2, len(some))]  # after the place itself
    to_next = tree.query(there, k=nearest)[0]
    beside = np.roll(here, 1, axis=0) - here
    cell = np.median(np.linalg.norm(beside, axis=1))
    near = tree.query(here)[0] <= _NEAR * max(float(np.quantile(to_next, 0.9)), float(cell))
    return MapGrid(across, up, points, near.reshape(len(up), len(across)))


def _box(
    places: Float[np.ndarray, "N 2"], first: float | None
) -> tuple[Float[np.ndarray, "2"], Float[np.ndarray, "2"]]:
    """Lowest and highest values; of longitudes with the widest gap outside."""
    low, high = places.min(axis=0), places.max(axis=0)
    if first is None:
        return low, high
    longitude = np.unique(places[:, 0] % 360)
    gaps = np.diff(longitude, append=longitude[0] + 360)
    widest = int(np.argmax(gaps))
    start = longitude[(widest + 1) % len(longitude)]
    start = (start - first) % 360 + first
    return np.array([start, low[1]]), np.array([start + 360 - gaps[widest], high[1]])
