"""Eigenvectors, one matrix after another."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Float

from latentgp.numerics.devices import one_after_another
from latentgp.typing import Array


@one_after_another
def eigenvectors(A: Float[Array, "M M"]) -> tuple[Float[Array, "M"], Float[Array, "M M"]]:
    """Eigenvalues of a symmetric matrix, rising, and its eigenvectors in columns.

    Example:
        >>> eigenvectors(jnp.diag(jnp.array([2.0, 1.0])))[0].tolist()
        [1.0, 2.0]
    """
    return jnp.linalg.eigh(A)
