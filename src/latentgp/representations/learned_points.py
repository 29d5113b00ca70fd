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


def learned_steps(representation: Any) -> Float[np.ndarray, "P"]:
    """Where steps of inducing points that searches move begin; none where these are held.

    From the points that were chosen, in units of the spread: a column of categories, along which
    nothing has a derivative, keeps its values to the last bit.
    """
    return np.zeros(np.size(representation.points) if learns_points(representation) else 0)


def moved(representation: Any, steps: Float[Array, "P"]) -> Any:
    """The same with points that such steps lead to; differentiable in these."""
    points, spread = jnp.asarray(representation.points), jnp.asarray(representation.spread)
    return dataclasses.replace(representation, points=points + steps.reshape(points.shape) * spread)
