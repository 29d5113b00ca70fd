"""Warped inputs: a row that a kernel reads many times is warped once."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from latentgp.kernels import InputWarping
from latentgp.kernels.base import ActiveDimensions
from latentgp.typing import Array


def unwarped(kernel: Any, X: Float[Array, "N D"]) -> tuple[Any, Float[Array, "N E"]]:
    """The kernel of warped inputs, and these; both as they are where nothing is warped."""
    match kernel:
        case InputWarping():
            return kernel.kernel, kernel.warp(X)
        case ActiveDimensions(kernel=InputWarping() as inner):
            return inner.kernel, inner.warp(X[:, jnp.asarray(kernel.dimensions)])
    return kernel, X


def slope_of_whole(kernel: Any, slope: Any) -> Any:
    """Derivative in a kernel from that in the one of warped inputs: knots have none."""
    match kernel:
        case InputWarping():
            path = "kernel"
        case ActiveDimensions(kernel=InputWarping()):
            path = "kernel.kernel"
        case _:
            return slope
    return eqx.tree_at(attrgetter(path), jax.tree.map(jnp.zeros_like, kernel), slope)
