"""Several processes that compute together: started, synchronised, ended together."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import PyTree

from latentgp.errors import InputError
from latentgp.runtime.mesh import ROWS, shard_own_rows, summed_rows


def leave(code: Any = 1) -> NoReturn:
    """End with a code after an error, one of several processes without JAX's wait at its end.

    It waits minutes for the others, which wait for this one.
    """
    if jax.process_count() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)
    sys.exit(code)


def broadcast_from_first(values: PyTree) -> PyTree:
    """Broadcast the first process's values to all: clocks, callbacks and roundings differ.

    Values other than numbers and arrays stay as each process has them.
    """
    if jax.process_count() == 1:
        return values
    numbers, rest = eqx.partition(values, eqx.is_array_like)
    leaves, structure = jax.tree.flatten(jax.tree.map(np.asarray, numbers))
    said = np.frombuffer(b"".join(leaf.tobytes() for leaf in leaves), np.uint8)
    told = _told(said if is_first_process() else np.zeros_like(said)).tobytes()
    ends = np.cumsum([leaf.nbytes for leaf in leaves], dtype=int)
    heard = [
        np.frombuffer(told[end - leaf.nbytes : end], leaf.dtype).reshape(leaf.shape)
        for leaf, end in zip(leaves, ends, strict=True)
    ]
    return eqx.combine(jax.tree.unflatten(structure, heard), rest)


def _told(said: np.ndarray) -> np.ndarray:
    """Sum of the processes' values, each on a device of its own."""
    devices = {device.process_index: device for device in reversed(jax.devices())}
    with jax.set_mesh(Mesh([devices[i] for i in sorted(devices)], (ROWS,))):
        return np.asarray(summed_rows(shard_own_rows(said[None])).addressable_data(0))


def of_first_process(read: Callable[[], bytes]) -> bytes:
    """Read in the first process and broadcast the result, or the `InputError` raised."""
    if jax.process_count() == 1:
        return read()
    found, refusal = b"", b""
    if is_first_process():
        try:
            found = read()
        except InputError as error:
            refusal = str(error).encode()
    lengths = broadcast_from_first(np.array([len(found), len(refusal)]))
    found, refusal = (
        broadcast_from_first(np.frombuffer(content.ljust(length), np.uint8)).tobytes()
        if length
        else b""
        for content, length in zip((found, refusal), lengths, strict=True)
    )
    if refusal:
        raise InputError(refusal.decode())
    return found


def is_first_process() -> bool:
    """Whether this is the first process, which writes files and progress."""
    return jax.process_index() == 0
