"""Several processes that begin to compute together."""

from __future__ import annotations

import sys
from typing import Any

import jax

from latentgp.errors import InputError, ProcessLost
from latentgp.runtime.processes import leave

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
