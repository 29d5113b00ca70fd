"""Graphs of areas: adjacency in any form, and the matrices that it fixes, made once in NumPy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentgp.errors import InputError
from latentgp.kernels.index import Invariant
from latentgp.modules import Module
from latentgp.typing import Array
from latentgp.validation import check_count


class GraphMatrix(Module, Invariant):
    """Matrix of areas by areas and eigenvalues that a graph fixes for all hyper-parameters."""

    matrix: Float[Array, "A A"]
    eigenvalues: Float[Array, "A"]

    @property
    def areas(self) -> int:
        """Number of areas A."""
        return self.matrix.shape[-1]

    @property
    def held(self) -> Float[Array, "A A"]:
        """The matrix, which has no derivative."""
        return jnp.asarray(jax.lax.stop_gradient(self.matrix))

    def __repr__(self) -> str:
        return f"<{self.areas} areas>"


def normalised(W: Float[np.ndarray, "A A"]) -> GraphMatrix:
    """D^-1/2 V and L of D^-1/2 W D^-1/2 = V L V', by which (D - a W)^-1 = B (1 - a L)^-1 B'.

    D is one for an area without neighbours.
    """
    root = np.sqrt(np.maximum(W.sum(axis=0), 1.0))
    eigenvalues, vectors = np.linalg.eigh(W / np.outer(root, root))
    return GraphMatrix(vectors / root[:, None], np.clip(eigenvalues, -1.0, 1.0))


def intrinsic(W: Float[np.ndarray, "A A"], *, scaled: bool) -> GraphMatrix:
    """Generalised inverse of D - W, by connected components, and its eigenvalues.

    Scaled, each component's variances have a geometric mean of one. A lone area has variance one.
    """
    covariance, eigenvalues = np.zeros_like(W), np.zeros(len(W))
    for members in components(W):
        own = np.ones((1, 1)), np.ones(1)
        if len(members) > 1:
            own = _of_component(W[np.ix_(members, members)], scaled)
        covariance[np.ix_(members, members)], eigenvalues[members] = own
    return GraphMatrix(covariance, eigenvalues)


def _of_component(
    W: Float[np.ndarray, "members members"], scaled: bool
) -> tuple[Float[np.ndarray, "members members"], Float[np.ndarray, "members"]]:
    values, vectors = np.linalg.eigh(np.diag(W.sum(axis=0)) - W)
    inverse = np.append(0.0, 1 / values[1:])  # the first is zero: the level has no precision
    covariance = (vectors * inverse) @ vectors.T
    scale = np.exp(np.mean(np.log(np.diagonal(covariance)))) if scaled else 1.0
    return covariance / scale, inverse / scale


def components(W: Float[np.ndarray, "A A"]) -> list[Int[np.ndarray, "members"]]:
    """Numbers of the areas of each connected component."""
    from scipy.sparse import csr_array  # takes long to import
    from scipy.sparse.csgraph import connected_components

    number, labels = connected_components(csr_array(W), directed=False)
    return [np.flatnonzero(labels == label) for label in range(number)]


def adjacency_matrix(adjacency: Any, areas: int | None = None) -> Float[np.ndarray, "A A"]:
    """A checked matrix of 0 and 1.

    Args:
        adjacency: matrix, dense or sparse; or pairs of neighbours, if `areas` is given.
        areas: number of areas.

    Raises:
        InputError: an adjacency that is not symmetric, has other entries than 0 and 1, an area as
            its own neighbour or no pair at all; pairs of numbers that are no areas.

    Example:
        >>> adjacency_matrix([(0, 1)], areas=3).tolist()
        [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    dense = adjacency.toarray() if hasattr(adjacency, "toarray") else adjacency
    try:
        given = np.asarray(dense, np.float64)
    except (TypeError, ValueError):
        raise InputError(
            "The adjacency must be a matrix of 0 and 1, or pairs of area numbers with areas=."
        ) from None
    W = _of_matrix(given) if areas is None else _of_pairs(given, areas)
    own = np.flatnonzero(np.diagonal(W))
    if own.size:
        raise InputError(f"Area {own[0]} is its own neighbour in the adjacency; leave that out.")
    if not W.any():
        raise InputError(
            "The adjacency has no pair of neighbours; take White, whose areas are independent."
        )
    return W


def _of_matrix(W: Float[np.ndarray, "*S"]) -> Float[np.ndarray, "A A"]:
    if W.ndim != 2 or W.shape[0] != W.shape[1]:
        raise InputError(
            f"The adjacency must be a square matrix, got shape {W.shape}; give areas=, the number "
            "of areas, with pairs of neighbours."
        )
    wrong = np.argwhere((W != 0) & (W != 1))
    if wrong.size:
        i, j = wrong[0]
        raise InputError(
            f"The adjacency must have entries 0 and 1, got {W[i, j]:g} for areas {i} and {j}; "
            "weights of borders are not taken."
        )
    apart = np.argwhere(W != W.T)
    if apart.size:
        i, j = apart[0]
        raise InputError(
            f"The adjacency is not symmetric: {W[i, j]:g} for areas {i} and {j}, {W[j, i]:g} for "
            f"{j} and {i}; give np.maximum(W, W.T) if one direction is enough."
        )
    return W


def _of_pairs(pairs: Float[np.ndarray, "*S"], areas: int) -> Float[np.ndarray, "A A"]:
    check_count("areas", areas, 2)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise InputError(
            f"Pairs of neighbours must have shape (E, 2), got {pairs.shape}; leave areas= out with "
            "a matrix."
        )
    wrong = (pairs != np.round(pairs)) | (pairs < 0) | (pairs >= areas)
    if np.any(wrong):
        raise InputError(
            f"Pairs of neighbours must be whole numbers from 0 to {areas - 1}, got "
            f"{pairs[wrong.any(axis=1)][0].tolist()}; areas= is the number of all areas."
        )
    W = np.zeros((areas, areas))
    first, second = pairs.T.astype(int)
    W[first, second] = W[second, first] = 1.0
    return W
