"""Functions of ArviZ under the names of versions 0 and 1."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

_Groups = Mapping[str, Mapping[str, Any] | None]


def import_arviz() -> Any:
    """ArviZ, without the notice that its next version will be another one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import arviz
    return arviz


def has_data_trees() -> bool:
    """Whether ArviZ keeps draws in xarray's DataTree, as from version 1, not in InferenceData."""
    return int(import_arviz().__version__.partition(".")[0]) >= 1


def from_groups(groups: _Groups, **named: Any) -> Any:
    """InferenceData, or a DataTree, of groups by name, with ArviZ's `dims` and `coords`."""
    present = {name: dict(values) for name, values in groups.items() if values is not None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of chains that are longer than there are draws
        if has_data_trees():
            return import_arviz().from_dict(present, **named)
        return import_arviz().from_dict(**present, **named)


def with_coordinates(data: Any, coordinates: Mapping[str, Any], groups: Sequence[str]) -> Any:
    """The same with further coordinates in some groups."""
    if not has_data_trees():
        return data.assign_coords(coordinates, groups=groups)
    for name in groups:
        data[name].dataset = data[name].to_dataset().assign_coords(coordinates)
    return data


def smoothed_log_weights(
    log_ratios: Float[np.ndarray, "*N S"], efficiency: float = 1.0
) -> tuple[Float[np.ndarray, "*N S"], Float[np.ndarray, "*N"]]:
    """Pareto-smoothed log importance weights of S draws, normalised, and Pareto k.

    Efficiency is the effective sample size over the number of draws.
    """
    log_ratios = np.ascontiguousarray(log_ratios)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if has_data_trees():
            from arviz_stats.base import array_stats  # pyright: ignore[reportMissingImports]

            # It takes log likelihoods, which are the negative of log ratios.
            found, k = array_stats.psislw(-log_ratios, r_eff=efficiency)
        else:
            found, k = import_arviz().psislw(log_ratios, efficiency)
    return np.asarray(found), np.asarray(k)
