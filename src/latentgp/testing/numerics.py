"""Tools of the conformance suites: comparisons in sentences, derivatives by differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float, PyTree

from latentgp.runtime import row_scan

_STEP = 1e-3
_DIRECTIONS = 3


def require(condition: Any, sentence: str) -> None:
    """Raise AssertionError with the sentence unless the condition holds."""
    if not bool(condition):
        raise AssertionError(sentence)


def require_equal(
    actual: Any, expected: Any, what: str, *, rtol: float = 0.0, atol: float = 0.0
) -> None:
    """Raise AssertionError unless two arrays agree in shape and, to a tolerance, in value."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    require(
        actual.shape == expected.shape,
        f"{what}: the shape is {actual.shape} where {expected.shape} is expected.",
    )
    require(np.all(np.isfinite(actual)), f"{what}: not all values are finite: {actual}.")
    if actual.dtype == bool:
        actual, expected = actual.astype(int), expected.astype(int)
    excess = np.abs(actual - expected) - (atol + rtol * np.abs(expected))
    if excess.size and excess.max() > 0:
        worst = np.unravel_index(np.argmax(excess), excess.shape)
        place = f" at {tuple(map(int, worst))}" if worst else ""
        raise AssertionError(
            f"{what}: {actual[worst]!r} where {expected[worst]!r} is expected{place} "
            f"(rtol={rtol:g}, atol={atol:g})."
        )


def require_alike(actual: PyTree, expected: PyTree, what: str, **tolerances: float) -> None:
    """Raise AssertionError unless each array of two trees agrees, as in `require_equal`."""
    for one, other in zip(*map(jax.tree.leaves, (actual, expected)), strict=True):
        require_equal(one, other, what, **tolerances)


def require_finite(tree: PyTree, what: str) -> None:
    """Raise AssertionError unless every number in a tree is finite."""
    for leaf in jax.tree.leaves(tree):
        require(np.all(np.isfinite(np.asarray(leaf))), f"{what} is not finite: {leaf}.")


def require_gradient(
    function: Callable[[Any], Any],
    point: PyTree,
    gradient: PyTree,
    what: str,
    *,
    rtol: float = 1e-6,
    atol: float = 1e-8,
) -> None:
    """Compare a gradient with differences of fourth order along random directions.

    The function is of one tree like the point, and smooth around it. `what` names the gradient;
    `rtol` is relative to its size.
    """
    vector, unravel = ravel_pytree(point)
    slope = np.asarray(ravel_pytree(gradient)[0])
    vector = np.asarray(vector)
    require(slope.shape == vector.shape, f"{what} has shape {slope.shape}, not {vector.shape}.")
    generator = np.random.default_rng(0)
    for _ in range(_DIRECTIONS):
        direction = generator.normal(size=vector.shape)
        values = [
            float(function(unravel(jnp.asarray(vector + steps * _STEP * direction))))
            for steps in (-2, -1, 1, 2)
        ]
        differences = np.dot([1, -8, 8, -1], values) / (12 * _STEP)
        tolerance = atol + rtol * np.linalg.norm(slope) * np.linalg.norm(direction)
        require(
            abs(slope @ direction - differences) <= tolerance,
            f"{what} is wrong: along a direction it is {slope @ direction!r}, differences of "
            f"the value give {differences!r} (tolerance {tolerance:.1e}).",
        )


def as_single(tree: PyTree) -> PyTree:
    """A tree with its floating-point leaves in float32."""

    def cast(leaf: Any) -> Any:
        is_wide = jax.dtypes.result_type(leaf) == np.float64
        return np.asarray(leaf, np.float32) if is_wide else leaf

    return jax.tree.map(cast, tree)


def require_single(tree: PyTree, what: str) -> None:
    """Raise AssertionError unless every floating-point leaf of a tree is float32."""
    for leaf in jax.tree.leaves(tree):
        if np.issubdtype(leaf.dtype, np.floating):
            require(
                leaf.dtype == np.float32,
                f"{what} is {leaf.dtype} though all that went in is float32.",
            )


def even_nodes(
    latent_size: int = 1, count: int = 8001
) -> tuple[Float[np.ndarray, "S Q"], Float[np.ndarray, "S"]]:
    """Many even nodes for independent standard normals: good for narrow integrands and kinks."""
    points = np.linspace(-10, 10, count)
    grid = np.stack([g.ravel() for g in np.meshgrid(*[points] * latent_size)], axis=-1)
    weights = np.exp(-0.5 * np.sum(grid**2, axis=1))
    return grid, weights / weights.sum()


@contextmanager
def chunks_of(rows: int) -> Iterator[None]:
    """Within it, sums over rows that are newly traced go through chunks of so many rows."""
    with mock.patch.multiple(row_scan, _MINIMAL_CHUNK=rows, _MAXIMAL_CHUNK=rows):
        yield
