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

from latentgp.errors import InputError, ProcessLost
from latentgp.runtime.hashing import digest
from latentgp.runtime.mesh import ROWS, shard_own_rows, summed_rows

_SECONDS_TO_MEET, _SECONDS_OF_SILENCE = 60, 30


def join_processes(
    coordinator: str | None = None, processes: int | None = None, process: int | None = None
) -> None:
    """Join this process to a joint fit of several; call before JAX is first used.

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
            f"{_SECONDS_TO_MEET} s ({' '.join(str(error).split())[:200]}); start all of them, with "
            "one address."
        ) from error
    show = sys.excepthook

    def show_and_leave(*error: Any) -> None:
        show(*error)
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


def spans_processes() -> bool:
    """Whether rows are spread over devices of every process."""
    mesh = jax.sharding.get_mesh()
    over = set() if mesh.empty else {device.process_index for device in mesh.devices.flat}
    return len(over) == jax.process_count()


def is_same_everywhere(describe: Callable[[], str]) -> bool:
    """Whether `describe` gives the same on all processes; all get the same answer."""
    if jax.process_count() == 1:
        return True
    from jax.experimental.multihost_utils import process_allgather

    own = np.frombuffer(bytes.fromhex(digest(describe())), np.uint8)
    return bool(np.ptp(np.asarray(process_allgather(own)), axis=0).max() == 0)


def is_first_process() -> bool:
    """Whether this is the first process, which writes files and progress."""
    return jax.process_index() == 0
