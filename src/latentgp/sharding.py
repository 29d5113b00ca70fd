"""Rows spread over devices, of one process or of several: the mesh, and what lies where on it.

While a mesh is set, `linalg.streaming.scan_rows` sums over each device's own rows and then over
the devices. Arrays of N rows are cut along their first axis; what has no rows is on every device.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Float, PyTree, Shaped

from latentgp.arrays import Array
from latentgp.digests import digest
from latentgp.errors import InputError, ProcessLost

ROWS = "rows"
_SIGNS_OF_LOSS = "Gloo", "gloo", "UNAVAILABLE", "DEADLINE_EXCEEDED", "coordination service"
_SECONDS_TO_MEET, _SECONDS_OF_SILENCE = 60, 30
ALIGNMENT = 64  # bytes; what XLA asks of memory on a CPU


@contextmanager
def rows_over(devices: Sequence[Any] | None) -> Iterator[None]:
    """Spread the rows of what is computed inside over devices; None leaves all as it is.

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
        if jax.process_count() == 1 or not any(sign in str(error) for sign in _SIGNS_OF_LOSS):
            raise
        raise ProcessLost(
            "Another of the processes has ended or cannot be reached "
            f"({' '.join(str(error).split())[:200]}); look at its messages and start all of them "
            "again: the search goes on from its checkpoint, if it has one."
        ) from error


def join_processes(
    coordinator: str | None = None, processes: int | None = None, process: int | None = None
) -> None:
    """Make this process one of several that compute together; before JAX is first used.

    What is None is asked of Slurm, Open MPI or Kubernetes, as JAX finds them. An error that nobody
    catches then ends this process at once, for the others to know.

    Args:
        coordinator: host and port of process 0, such as "10.0.0.1:4000".
        processes: how many there are.
        process: which of them this is, from 0.

    Raises:
        InputError: an address without a port, a number that is not one of theirs, a cluster that
            is not found; JAX has been used already.
        ProcessLost: the others cannot be reached within a minute.
    """
    if coordinator is not None and not coordinator.rpartition(":")[2].isdigit():
        raise InputError(
            f"coordinator must be host and port of process 0, such as 10.0.0.1:4000, got "
            f"{coordinator!r}."
        )
    if processes is not None and processes < 1:
        raise InputError(f"processes must be at least 1, got {processes}.")
    if processes is not None and process is not None and not 0 <= process < processes:
        raise InputError(
            f"process must be from 0 to {processes - 1}, one less than their number, got {process}."
        )
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(
            coordinator,
            processes,
            process,
            initialization_timeout=_SECONDS_TO_MEET,
            heartbeat_timeout_seconds=_SECONDS_OF_SILENCE,
        )
    except (RuntimeError, ValueError) as error:
        if "must be called before" in str(error):
            raise InputError(
                "JAX has been used in this process already; join the others before anything else."
            ) from error
        if "must be defined" in str(error) or "should be defined" in str(error):
            raise InputError(
                "JAX finds no Slurm, Open MPI or Kubernetes here; give the coordinator's address, "
                "the number of processes and which of them this is."
            ) from error
        raise ProcessLost(
            f"The processes did not meet at {coordinator or 'their address'} within "
            f"{_SECONDS_TO_MEET} s "
            f"({' '.join(str(error).split())[:200]}); start all of them, with one address."
        ) from error
    show = sys.excepthook

    def show_and_leave(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        show(kind, error, trace)
        leave()

    sys.excepthook = show_and_leave


def leave(code: Any = 1) -> NoReturn:
    """End with a code after an error, one of several processes without JAX's wait at its end.

    It waits minutes for the others, which wait for this one.
    """
    if jax.process_count() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)
    sys.exit(code)


def number_of_shards() -> int:
    """Over how many devices rows are spread; one without a mesh, and in what each device does."""
    mesh = jax.sharding.get_abstract_mesh()
    return 1 if ROWS in mesh.manual_axes else mesh.shape.get(ROWS, 1)


def summed(parts: PyTree) -> PyTree:
    """Sums over the devices of what each of them has, in one message; inside what each does."""
    vector, unpack = ravel_pytree(parts)
    if jax.process_count() == 1 or jax.default_backend() != "cpu":
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


_summed_rows = jax.jit(sum_over_rows)


def summed_in_pairs(vector: Float[Array, "K"]) -> Float[Array, "K"]:
    """The sum over devices of which partners swap what they have, at doubling distances.

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


def place(rows: PyTree, axis: int = 0, *, shared: bool = False) -> PyTree:
    """Arrays of rows on the devices, cut along an axis whose length the devices divide.

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


def place_own(rows: PyTree, axis: int = 0, *, shared: bool = False) -> PyTree:
    """Arrays on the devices of which every process gives the rows of its own devices."""
    if jax.process_count() == 1:
        return place(rows, axis, shared=shared)
    sharding = _sharding(axis)
    return jax.tree.map(
        lambda a: jax.make_array_from_process_local_data(sharding, np.asarray(a)), rows
    )


def whole(values: PyTree) -> PyTree:
    """NumPy arrays of all there is, on every process; all of them have to ask."""

    def fetch(array: Any) -> np.ndarray:
        if isinstance(array, jax.Array) and not array.is_fully_addressable:
            if array.is_fully_replicated:
                return np.asarray(array.addressable_data(0))
            from jax.experimental.multihost_utils import process_allgather

            return np.asarray(process_allgather(array, tiled=True))
        return np.asarray(array)

    return jax.tree.map(fetch, values)


def agreed(values: PyTree) -> PyTree:
    """What the first process says, on all of them: clocks, callbacks and roundings differ.

    What is no number, nor an array of them, stays as each process has it.
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
    """The sum of what the processes say, each on a device of its own."""
    devices = {device.process_index: device for device in reversed(jax.devices())}
    with jax.set_mesh(Mesh([devices[i] for i in sorted(devices)], (ROWS,))):
        return np.asarray(_summed_rows(place_own(said[None])).addressable_data(0))


def of_first_process(read: Callable[[], bytes]) -> bytes:
    """What the first process reads, on all of them; so is the `InputError` it may raise."""
    if jax.process_count() == 1:
        return read()
    found, refusal = b"", b""
    if is_first_process():
        try:
            found = read()
        except InputError as error:
            refusal = str(error).encode()
    lengths = agreed(np.array([len(found), len(refusal)]))
    found, refusal = (
        agreed(np.frombuffer(content.ljust(length), np.uint8)).tobytes() if length else b""
        for content, length in zip((found, refusal), lengths, strict=True)
    )
    if refusal:
        raise InputError(refusal.decode())
    return found


def spans_processes() -> bool:
    """Whether rows are spread over devices of every process."""
    mesh = jax.sharding.get_mesh()
    over = set() if mesh.empty else {device.process_index for device in mesh.devices.flat}
    return len(over) == jax.process_count()


def is_same_everywhere(describe: Callable[[], str]) -> bool:
    """Whether all processes say the same of something; all of them get the same answer."""
    if jax.process_count() == 1:
        return True
    from jax.experimental.multihost_utils import process_allgather

    own = np.frombuffer(bytes.fromhex(digest(describe())), np.uint8)
    return bool(np.ptp(np.asarray(process_allgather(own)), axis=0).max() == 0)


def is_first_process() -> bool:
    """Whether this process is the one that writes and shows."""
    return jax.process_index() == 0


def _sharding(axis: int) -> NamedSharding:
    return NamedSharding(jax.sharding.get_mesh(), PartitionSpec(*[None] * axis, ROWS))
