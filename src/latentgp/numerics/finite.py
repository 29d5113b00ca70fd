"""Whether numbers are finite, inside compiled programs."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Bool, PyTree

from latentgp.typing import Array


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """Whether all numbers of a tree are; keys and counts are no numbers of this kind.

    Example:
        >>> bool(all_finite({"a": jnp.ones(2), "b": jnp.array(jnp.inf)}))
        False
    """
    leaves = [leaf for leaf in jax.tree.leaves(tree) if eqx.is_inexact_array(leaf)]
    return jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]).all()
