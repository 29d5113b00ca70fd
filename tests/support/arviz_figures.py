"""Figures of ArviZ that versions 0 and 1 name differently."""

from typing import Any, NamedTuple

import arviz as az
import numpy as np

from latentgp.posteriors.arviz_versions import has_data_trees


class LooFigures(NamedTuple):
    """Of `az.loo`."""

    pointwise: np.ndarray
    pareto_k: np.ndarray
    parameters: float
    elpd: float
    standard_error: float


def loo_of(data: Any) -> LooFigures:
    found = az.loo(data, pointwise=True)
    if has_data_trees():
        rows = found.n_data_points
        # Version 1 divides by one row less.
        error = found.se * np.sqrt((rows - 1) / rows)
        return LooFigures(found.elpd_i.values, found.pareto_k.values, found.p, found.elpd, error)
    return LooFigures(
        found.loo_i.values, found.pareto_k.values, found.p_loo, found.elpd_loo, found.se
    )


def waic_of(data: Any) -> float | None:
    """Of `az.waic`, which version 1 does without."""
    return None if has_data_trees() else az.waic(data).elpd_waic


def groups_of(data: Any) -> list[str]:
    return list(data.children) if has_data_trees() else list(data.groups())
