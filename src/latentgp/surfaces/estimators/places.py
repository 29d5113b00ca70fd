"""Places of rows: geometry as two columns, on the globe where these are degrees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from latentgp.errors import InputError
from latentgp.kernels.sphere import are_degrees
from latentgp.modules import stored_as

_LONGITUDE = "longitude", "lon", "long", "lng", "decimallongitude"
_LATITUDE = "latitude", "lat", "decimallatitude"
# Names of columns that may hold what the geometry says, the usual name first.
_DEGREES = (*_LONGITUDE, "x"), (*_LATITUDE, "y")
_PLANE = ("easting", "x", *_LONGITUDE), ("northing", "y", *_LATITUDE)
_WGS84 = "EPSG:4326"
_SHOWN = 5


@stored_as("Places")
@dataclass(frozen=True)
class PlaceColumns:
    """Two columns that say where a row is.

    Attributes:
        columns: longitude and latitude, or the two coordinates of a plane.
        on_globe: whether they are degrees on the globe, with length-scales in kilometres.
        crs: coordinate system of training as text, into which geometry is re-projected; None where
            the geometry had none.
        of_geometry: whether training took them from geometry.
    """

    columns: tuple[str, str]
    on_globe: bool
    crs: str | None
    of_geometry: bool = False

    def read(self, frame: Any) -> Any:
        """A table with geometry as one with the two columns; other tables as they are.

        Raises:
            InputError: a coordinate system that training had and the table lacks, or the other way
                round; rows without geometry.
        """
        if not has_geometry(frame) or not (self.of_geometry or {*self.columns} - {*frame.columns}):
            return frame
        if (frame.crs is None) != (self.crs is None):
            here, there = ("no", self.crs) if frame.crs is None else (frame.crs.name, "none")
            raise InputError(
                f"the table has {here} coordinate system and training had {there}: declare the one "
                "that its coordinates are in, by frame.set_crs(...)"
            )
        if self.crs is not None and frame.crs != self.crs:
            frame = frame.to_crs(self.crs)
        points, _ = points_of(frame)
        check_there(frame, points)
        return _with_columns(frame, self.columns, points)

    def among(self, names: Sequence[str]) -> tuple[int, int]:
        """Numbers of the two among columns by name."""
        return names.index(self.columns[0]), names.index(self.columns[1])


def in_areas(
    points: Float[np.ndarray, "N 2"], places: PlaceColumns, areas: Any
) -> tuple[Int[np.ndarray, "pairs"], Int[np.ndarray, "pairs"]]:
    """Numbers of the points that lie in areas, and of these; pairs where areas overlap.

    A point on the border of areas alone belongs to the first of them. On the globe areas may go on
    beyond 180 degrees to either side.

    Raises:
        InputError: no geometry; coordinate systems of which one alone is known.
    """
    if not has_geometry(areas):
        raise InputError("areas must be a GeoDataFrame: read it by geopandas.read_file, say")
    if (areas.crs is None) != (places.crs is None):
        raise InputError(
            "the areas and the model's places must both have a coordinate system, or none: declare "
            "the one that is lacking, by frame.set_crs(...)"
        )
    geometry = areas.geometry if places.crs is None else areas.geometry.to_crs(places.crs)
    turns = (0.0, -360.0, 360.0) if places.on_globe else (0.0,)
    of_points = type(geometry).from_xy(*np.concatenate([np.add(points, (t, 0.0)) for t in turns]).T)
    inside, touching = (
        geometry.sindex.query(of_points, predicate=relation) % [[len(points)], [len(geometry)]]
        for relation in ("within", "intersects")
    )
    touching = touching[:, ~np.isin(touching[0], inside[0])]
    touching = touching[:, np.unique(touching[0], return_index=True)[1]]
    rows, numbers = np.unique(np.concatenate([inside, touching], axis=1), axis=1)
    return rows, numbers


def has_geometry(frame: Any) -> bool:
    """Whether a table is one of geopandas with an active geometry; nothing is imported."""
    return getattr(frame, "active_geometry_name", None) is not None


def placed(frame: Any, globe: bool | None = None) -> tuple[Any, PlaceColumns, list[str], list[str]]:
    """A table with geometry as one of numbers: its places, notes on them, and doubts.

    Missing places are NaN.

    Args:
        frame: a GeoDataFrame.
        globe: whether places are on the globe; None goes by the coordinate system.

    Raises:
        InputError: no geometry in any row, degrees that are none, a column of the same name.
    """
    crs: Any = frame.crs
    doubts, geographic = list[str](), getattr(crs, "is_geographic", False)
    turned = globe if not geographic else "degree" not in crs.axis_info[0].unit_name
    if crs is not None and turned:
        frame = frame.to_crs(_WGS84)
        crs, geographic = frame.crs, True
    points, notes = points_of(frame)
    known = points[np.isfinite(points).all(axis=1)]
    if not len(known):
        raise InputError("no row has a geometry: give points or areas to at least one")
    unit = "" if crs is None else f", in {crs.axis_info[0].unit_name}s"
    system = "without a coordinate system" if crs is None else f"in {crs.name}"
    degrees = bool(np.all(are_degrees(known)))
    if (geographic or globe) and not degrees:
        raise InputError(
            f"the geometry {system} is taken as degrees but has {known[0].tolist()}: declare the "
            "coordinate system that it is in, by frame.set_crs(..., allow_override=True)"
        )
    if degrees and crs is None and globe is None:
        doubts.append(
            "the geometry has no coordinate system, and all of it lies within degrees: it is taken "
            "as a plane (guessed); frame.set_crs(4326) puts it on the globe"
        )
    if degrees and crs is not None and not geographic:
        doubts.append(
            f"the geometry is in {crs.name}{unit}, but all of it lies within degrees: if these are "
            "degrees taken for another unit, frame.set_crs(4326, allow_override=True) says so"
        )
    on_globe = bool(globe) if crs is None else geographic and globe is not False
    plain = frame.drop(columns=_geometries(frame))
    columns = [
        _name(plain, values, known_as)
        for values, known_as in zip(points.T, _DEGREES if geographic else _PLANE, strict=True)
    ]
    places = PlaceColumns(
        (columns[0], columns[1]), on_globe, None if crs is None else crs.to_string(), True
    )
    notes.insert(0, f"{', '.join(columns)}: places of the geometry {system}{unit}")
    return _with_columns(frame, places.columns, points), places, notes, doubts


def guessed(
    names: Sequence[str], X: Float[np.ndarray, "N D"], globe: bool | None
) -> tuple[PlaceColumns | None, list[str]]:
    """Places by the names of numeric columns and their values, and what was guessed.

    Args:
        names: of the columns.
        X: their values.
        globe: whether they are to be on the globe; None guesses.

    Raises:
        InputError: no such columns, where they are to be on the globe.
    """
    lowered = [name.lower() for name in names]
    pair = [[n for n, name in enumerate(lowered) if name in own] for own in (_LONGITUDE, _LATITUDE)]
    if globe is False or any(len({lowered[n] for n in own}) != 1 for own in pair):
        if globe:
            raise InputError(
                "globe=True needs one column of longitudes and one of latitudes, named lon and "
                "lat, say: rename them, or pass a GeoDataFrame"
            )
        return None, [note for n in pair[0] for note in _across(names[n], X[:, n])]
    first, second = pair[0][0], pair[1][0]
    columns = names[first], names[second]
    if not np.all(are_degrees(X[:, [first, second]])):
        if globe:
            raise InputError(
                f"globe=True, but {columns[0]} and {columns[1]} are not within degrees: give "
                "longitudes from -540 to 540 and latitudes from -90 to 90"
            )
        said = "are called degrees but are not within them: taken as a plane (guessed)"
        return None, [f"{columns[0]}, {columns[1]} {said}"]
    said = "" if globe else " by their names and values (guessed)"
    words = f"{columns[0]}, {columns[1]}: longitude and latitude in degrees{said}"
    return PlaceColumns(columns, True, _WGS84), [words]


def _across(name: str, longitude: Float[np.ndarray, "N"]) -> list[str]:
    """A note where longitudes are farther apart as numbers than on the globe, by half at least."""
    around = np.unique(longitude % 360)
    arc = 360 - np.max(np.diff(around, append=around[0] + 360))
    if np.max(np.abs(longitude)) > 540 or np.ptp(longitude) <= 1.5 * arc:
        return []
    return [
        f"{name}: on a line, where {longitude.min():g} is far from {longitude.max():g} (guessed); "
        "write longitudes on from 180, as 181 for -179, if they are near"
    ]


def points_of(frame: Any) -> tuple[Float[np.ndarray, "N 2"], list[str]]:
    """A point for each row, NaN where the geometry is missing or empty, and a note on areas."""
    geometry = frame.geometry
    missing = (geometry.isna() | geometry.is_empty).to_numpy(bool)
    kinds = geometry[~missing].geom_type
    others = kinds[kinds != "Point"]
    shown = geometry if others.empty else geometry.representative_point()
    points = np.full((len(frame), 2), np.nan)
    points[~missing] = np.column_stack([shown[~missing].x, shown[~missing].y])
    counts = others.value_counts()
    notes = [
        f"{count} {kind} of the geometry as a point inside it (shapely's representative point)"
        for kind, count in counts.items()
    ]
    return points, notes


def check_there(frame: Any, points: Float[np.ndarray, "N 2"]) -> None:
    """InputError where rows have no place."""
    missing = np.isnan(points).any(axis=1)
    if missing.any():
        rows = [str(row) for row in frame.index[missing]]
        more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
        raise InputError(
            f"the geometry is missing or empty in row(s) {', '.join(rows[:_SHOWN])}{more}: give "
            "it, or leave these rows out"
        )


def _geometries(frame: Any) -> list[Any]:
    """Names of the columns of geometry."""
    return [name for name, kind in frame.dtypes.items() if str(kind) == "geometry"]


def _with_columns(frame: Any, columns: tuple[str, str], points: Float[np.ndarray, "N 2"]) -> Any:
    plain = frame.drop(columns=_geometries(frame))
    return plain.assign(**dict(zip(columns, points.T, strict=True)))


def _name(plain: Any, values: Float[np.ndarray, "N"], known_as: Sequence[str]) -> str:
    """The column that has these values already, or the usual name; InputError if it is taken."""
    for place, name in enumerate(plain.columns):
        column = plain.iloc[:, place]
        if str(name).lower() in known_as and column.dtype.kind in "fiu":
            same = np.isclose(column.to_numpy(float), values, rtol=1e-9, atol=1e-9)
            if np.all(same | np.isnan(values)):
                return str(name)
    if known_as[0] in plain.columns:
        raise InputError(
            f"the table has a column {known_as[0]!r} that differs from its geometry: rename it, or "
            "leave one of the two out"
        )
    return known_as[0]
