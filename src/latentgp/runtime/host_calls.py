"""Calls of functions outside of JAX from compiled programs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from latentgp.errors import InputError
from latentgp.typing import Array


def call_on_host(
    function: Callable[..., tuple[np.ndarray, ...]],
    shapes: tuple[tuple[int, ...], ...],
    dtype: Any,
    *arguments: Any,
) -> tuple[Array, ...]:
    """Results of a NumPy function, as `jax.pure_callback`, with all digits.

    JAX makes the call in a thread of its own, where double precision is switched off: numbers of
    that kind come and go as pairs of integers. The function takes arrays of the dtype, with any
    axes before those given here, the same of all, and gives a tuple of arrays with these axes
    before theirs. Its InputError is raised once a public call has ended (`refusal_in`).
    """
    is_double = np.dtype(dtype) == np.float64

    def packed(array: Any) -> Array:
        array = jnp.asarray(array, dtype)
        return jax.lax.bitcast_convert_type(array, jnp.uint32) if is_double else array

    def call(*packed_arguments: Any) -> tuple[np.ndarray, ...]:
        found = function(*jax.tree.map(_unpacked if is_double else np.asarray, packed_arguments))
        made = (np.asarray(part, dtype, order="C") for part in found)
        return tuple(part[..., None].view(np.uint32) if is_double else part for part in made)

    kind, pair = (jnp.uint32, (2,)) if is_double else (dtype, ())
    likes = tuple(jax.ShapeDtypeStruct((*shape, *pair), kind) for shape in shapes)
    given = jax.tree.map(packed, arguments)
    results = jax.pure_callback(call, likes, *given, vmap_method="broadcast_all")
    if not is_double:
        return tuple(results)
    return tuple(jax.lax.bitcast_convert_type(part, jnp.float64) for part in results)


def refusal_in(error: RuntimeError) -> InputError | None:
    """Error of such a function, of which JAX keeps the message alone."""
    found = re.search(rf"^(?:[\w.]+\.)?{InputError.__name__}: (.+)$", str(error), re.MULTILINE)
    return InputError(found[1]) if found else None


def _unpacked(bits: Any) -> np.ndarray:
    return np.asarray(bits, order="C").view(np.float64)[..., 0]
