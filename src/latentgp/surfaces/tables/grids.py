"""Grids of xarray as rows of a table, and predictions of the rows as grids again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from latentgp.errors import InputError
from latentgp.surfaces.tables.levels import listed


def is_grid(values: Any) -> bool:
    """Whether something is a Dataset or DataArray of xarray, which is not imported for it."""
    return all(hasattr(values, name) for name in ("dims", "coords", "to_dataframe"))


@dataclass(frozen=True)
class GridRows:
    """Variables and coordinates along shared dimensions, a row for each of their combinations."""

    dataset: Any  # of xarray
    names: tuple[str, ...]  # of its variables and coordinates that are columns
    dims: tuple[Any, ...]  # dimensions of the rows, the last one fastest

    @classmethod
    def of(cls, values: Any, names: Iterable[str] | None = None) -> GridRows:
        """The grid of some variables and coordinates; all of them unless named.

        Args:
            values: a Dataset, a DataArray, or a mapping of coordinates along a dimension each.
            names: those of others are ignored.

        Raises:
            InputError: xarray is not there, coordinates that are no columns, two names of a kind.
        """
        if isinstance(values, Mapping) and not is_grid(values):
            values = _of_coordinates(values)
        dataset = as_dataset(values)
        wanted = None if names is None else set(names)
        own = tuple(n for n in dataset.variables if wanted is None or str(n) in wanted)
        dims = tuple(d for d in dataset.sizes if any(d in dataset[name].dims for name in own))
        return cls(dataset, own, dims)

    @property
    def rows(self) -> pd.DataFrame:
        """A column for each of the names."""
        shape = {dim: self.dataset.sizes[dim] for dim in self.dims}
        columns = {
            str(name): self.dataset[name].variable.set_dims(shape).values.ravel()
            for name in self.names
        }
        return pd.DataFrame(columns, index=range(int(np.prod(list(shape.values())))))

    def shaped(self, rows: pd.DataFrame, level: float) -> Any:
        """Columns that belong to the rows as a Dataset with their coordinates.

        The ends of intervals, `lower` and `upper`, become `quantiles` with a coordinate `quantile`.
        """
        import xarray

        shape = [self.dataset.sizes[dim] for dim in self.dims]
        ends = [name for name in ("lower", "upper") if name in rows]
        found: dict[Any, Any] = {
            name: (self.dims, rows[name].to_numpy().reshape(shape))
            for name in rows.columns
            if name not in ends
        }
        coordinates = {
            name: own.variable
            for name, own in self.dataset.coords.items()
            if set(own.dims) <= set(self.dims) and name not in found
        }
        if ends:
            values = rows[ends].to_numpy().T.reshape(2, *shape)
            found["quantiles"] = (("quantile", *self.dims), values)
            coordinates["quantile"] = np.round([(1 - level) / 2, (1 + level) / 2], 12)
        return xarray.Dataset(found, coords=coordinates)


def as_dataset(values: Any) -> Any:
    """A Dataset; of a DataArray the one with its name, or "value"."""
    return (
        values if hasattr(values, "data_vars") else values.to_dataset(name=values.name or "value")
    )


def rows_with_target(values: Any, target: str | None) -> tuple[Any, str | None, list[str]]:
    """A grid as a table with the target, its name, and notes on variables left out.

    Columns are variables and coordinates whose dimensions the target has. Tables of another kind
    are as they are.

    Raises:
        InputError: no target, of several variables.
    """
    if not is_grid(values):
        return values, target, []
    dataset = as_dataset(values)
    if target is None and len(dataset.data_vars) == 1:
        target = str(next(iter(dataset.data_vars)))
    if target not in dataset.data_vars:
        raise InputError(
            f"the dataset has no variable {target!r} to predict: name one of "
            f"{listed(map(str, dataset.data_vars))}"
        )
    dims = set(dataset[target].dims)
    outside = [name for name in dataset.variables if not set(dataset[name].dims) <= dims]
    bare = [str(dim) for dim in dataset[target].dims if dim not in dataset.coords]
    notes = [f"{name}: left out, it has dimensions that {target!r} lacks" for name in outside]
    notes += [f"dimension {dim}: no input, it has no coordinate" for dim in bare]
    grid = GridRows.of(dataset.drop_vars(outside))
    return grid.rows, target, notes


def _of_coordinates(values: Mapping[str, Any]) -> Any:
    try:
        import xarray
    except ImportError as error:
        raise InputError(
            "a grid of coordinates needs xarray: install it, or pass a DataFrame with a row each"
        ) from error
    try:
        return xarray.Dataset(coords={str(k): np.asarray(v) for k, v in values.items()})
    except ValueError as error:
        raise InputError(
            f"the grid's coordinates must be a row of values each ({error}): pass "
            '{"lon": [...], "lat": [...]}'
        ) from error
