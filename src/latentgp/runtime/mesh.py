"""Rows sharded over devices of one process or several: the mesh and collectives.

While a mesh is set, `runtime.row_scan.scan_rows` sums over each device's own rows and then over
the devices. Arrays of N rows are cut along their first axis; what has no rows is on every device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Float, PyTree, Shaped

from latentgp.errors import ProcessLost
from latentgp.runtime.devices import on_processor
from latentgp.typing import Array

ROWS = "rows"
SIGNS_OF_LOSS = "Gloo", "gloo", "UNAVAILABLE", "DEADLINE_EXCEEDED", "coordination service"
ALIGNMENT = 64  # bytes; what XLA asks of memory on a CPU


@contextmanager
def rows_over(devices: Sequence[Any] | None) -> Iterator[None]:
    """Context in which rows are sharded over devices; None changes nothing.

    `latentgp.fit(devices=...)` does it for a fit; for predictions put them inside. Of several
    processes each gives all rows, and has all answers.

    Raises:
        ProcessLost: another process has ended.

    Example:
        >>> import jax, latentgp as lgp
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(noise_variance=0.1))
        >>> fit = lgp.fit(model, lgp.Data([0.0, 1.0], [0.0, 0.8]), key=jax.random.key(0))
        >>> with lgp.rows_over(jax.devices()):
        ...     fit.posterior.predict_f([0.5, 1.5]).mean.shape
        (2,)
    """
    if devices is None or len(devices) < 2:
        yield
        return
    kinds = (jax.sharding.AxisType.Auto,)
    try:
        with jax.set_mesh(Mesh(np.asarray(devices), (ROWS,), axis_types=kinds)):
            yield
    except (ValueError, RuntimeError) as error:
        if jax.process_count() == 1 or not any(sign in str(error) for sign in SIGNS_OF_LOSS):
            raise
        raise ProcessLost(
            "Another of the processes has ended or cannot be reached "
            f"({' '.join(str(error).split())[:200]}); look at its messages and start all of them "
            "again: the search goes on from its checkpoint, if it has one."
        ) from error


def number_of_shards() -> int:
    """Number of devices that rows are sharded over; 1 without a mesh or inside a shard."""
    mesh = jax.sharding.get_abstract_mesh()
    return 1 if ROWS in mesh.manual_axes else mesh.shape.get(ROWS, 1)


def summed(parts: PyTree) -> PyTree:
    """Sums over devices in one message, inside a sharded computation."""
    vector, unpack = ravel_pytree(parts)
    if jax.process_count() == 1 or not on_processor():
        return unpack(jax.lax.psum(vector, ROWS))
    return unpack(summed_in_pairs(vector))


def sum_over_rows(values: Shaped[Array, "N ..."]) -> Shaped[Array, "..."]:
    """The sum over the first axis, cut over the devices; left to XLA it goes round Gloo's ring."""
    if number_of_shards() == 1:
        return jnp.sum(values, axis=0)
    cut = PartitionSpec(ROWS)
    return jax.shard_map(
        lambda own: summed(jnp.sum(own, axis=0, dtype=own.dtype)),
        in_specs=cut,
        out_specs=PartitionSpec(),
        check_vma=False,
    )(values)


summed_rows = jax.jit(sum_over_rows)


def summed_in_pairs(vector: Float[Array, "terms"]) -> Float[Array, "terms"]:
    """Sum over devices by recursive doubling: partners exchange at doubling distances.

    Gloo's own sum goes round a ring; this takes log2 of the devices' number times the latency,
    for a third to a tenth of the time with two to four processes and up to 50,000 numbers, and
    sends all of them every time, where a ring sends two parts in all. Devices beyond a power of two
    hand theirs to a partner first, and are told (Thakur, Rabenseifner & Gropp 2005, 4.1).
    """
    devices = jax.lax.axis_size(ROWS)
    paired = 1 << (devices.bit_length() - 1)
    beyond = [(device, device - paired) for device in range(paired, devices)]
    if beyond:
        vector = vector + jax.lax.ppermute(vector, ROWS, beyond)
    for distance in (1 << power for power in range(paired.bit_length() - 1)):
        swapped = [(device, device ^ distance) for device in range(paired)]
        vector = vector + jax.lax.ppermute(vector, ROWS, swapped)
    if beyond:
        told = jax.lax.ppermute(vector, ROWS, [(to, back) for back, to in beyond])
        vector = jnp.where(jax.lax.axis_index(ROWS) < paired, vector, told)
    return vector


def shard_rows(rows: PyTree, axis: int = 0, *, shared: bool = False) -> PyTree:
    """Shard arrays of rows over the devices, along an axis whose length they divide.

    Every process gives all rows, and keeps those of its own devices. On a CPU arrays that are
    `shared`, because nobody will write to them, are taken as they are where their memory begins
    at a multiple of `ALIGNMENT` bytes.
    """
    if number_of_shards() == 1:
        return jax.tree.map(jax.device_put if shared else jnp.asarray, rows)
    sharding = _sharding(axis)

    def put(array: Any) -> jax.Array:
        array = np.asarray(array)
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    return jax.tree.map(put, rows)


def shard_own_rows(rows: PyTree, axis: int = 0, *, shared: bool = False) -> PyTree:
    """Shard arrays of which every process gives the rows of its own devices."""
    if jax.process_count() == 1:
        return shard_rows(rows, axis, shared=shared)
    put = partial(jax.make_array_from_process_local_data, _sharding(axis))
    return jax.tree.map(lambda a: put(np.asarray(a)), rows)


def gather(values: PyTree) -> PyTree:
    """Gather sharded arrays as NumPy on every process; all processes must call it."""

    def fetch(array: Any) -> np.ndarray:
        if isinstance(array, jax.Array) and not array.is_fully_addressable:
            if array.is_fully_replicated:
                return np.asarray(array.addressable_data(0))
            from jax.experimental.multihost_utils import process_allgather

            return np.asarray(process_allgather(array, tiled=True))
        return np.asarray(array)

    return jax.tree.map(fetch, values)


def on_host(array: Any) -> np.ndarray | jax.Array:
    """The array in NumPy; as it is where devices have different parts of it."""
    if isinstance(array, jax.Array) and not array.is_fully_replicated:
        return array
    return np.asarray(array)


def _sharding(axis: int) -> NamedSharding:
    return NamedSharding(jax.sharding.get_mesh(), PartitionSpec(*[None] * axis, ROWS))
