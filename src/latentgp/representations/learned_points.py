"""Inducing points that searches move with the hyper-parameters.

A representation takes part by its fields: `learn_points`, `points` and `spread`, of the rows, a
column, in units of which points move.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from latentgp.typing import Array, Inputs


def learns_points(representation: Any) -> bool:
    """Whether searches move inducing points too."""
    return getattr(representation, "learn_points", False)


def spread_of(X: Inputs) -> Float[np.ndarray, "D"]:
    """Standard deviations of the columns, one where there is none."""
    spread = np.std(X, axis=0)
    return np.where(spread > 0, spread, 1.0)


def learned_coordinates(representation: Any) -> Float[np.ndarray, "P"]:
    """Coordinates of inducing points that searches move; none where these are held."""
    if not learns_points(representation):
        return np.zeros(0)
    return np.ravel(np.asarray(representation.points) / np.asarray(representation.spread))


def moved(representation: Any, coordinates: Float[Array, "P"]) -> Any:
    """The same with points of other coordinates; differentiable in these."""
    spread = jnp.asarray(representation.spread)
    points = coordinates.reshape(-1, len(spread)) * spread
    return dataclasses.replace(representation, points=points)
