"""Workers: processes that answer requests at their own pace, any of which may die. Ray's actors."""

from __future__ import annotations

import logging
import os
import pickle
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from latentgp.errors import InputError, ProcessLost
from latentgp.runtime.apart import search_path

_MOST_DEATHS = 3
_STATISTICS = "RAY_USAGE_STATS_ENABLED"


class Answer(NamedTuple):
    """Outcome of a request."""

    label: Any  # given with the request
    value: Any  # the answer; None if the worker died over it
    lost: bool  # whether it did


class Workers:
    """Processes that answer requests, each at its own pace and on one thread of a CPU.

    A Ray that runs in this process already (`ray.init`) is used, and left running. Otherwise one is
    started on this machine, and ended by `close`. A worker that has died is started anew, and left
    out after its third death. Each has a copy of the function, which may remember things.

    Raises:
        InputError: Ray is not installed, or cannot hand the function to another process.
    """

    def __init__(self, number: int, function: Callable[[Any], Any]):
        try:
            import ray
        except ImportError as error:
            raise InputError(
                "workers need Ray, which is not installed: `pip install latentgp[ray]`, or leave "
                "workers out."
            ) from error
        self._ray, self._owns_ray = ray, not ray.is_initialized()
        if self._owns_ray:
            _start_quietly(ray, number)
        self.lost = 0  # number of deaths
        self._asked: dict[Any, tuple[int, Any]] = {}
        self._free: deque[int] = deque()
        try:
            self._function = ray.put(function)
        except (TypeError, pickle.PicklingError, AttributeError) as error:
            self.close()
            raise InputError(
                f"Workers cannot be given the model or the rows ({str(error).splitlines()[0]}); "
                "define classes at the top of a module, or leave workers out."
            ) from error
        self._actors = [self._started() for _ in range(number)]
        self._deaths = [0] * number
        self._free.extend(range(number))

    @property
    def free(self) -> bool:
        """Whether a worker waits for a request."""
        return bool(self._free)

    @property
    def busy(self) -> int:
        """Number of requests without an answer yet."""
        return len(self._asked)

    def ask(self, request: Any, label: Any) -> None:
        """Hand a copy of a request to a free worker; the label comes back with the answer."""
        place = self._free.popleft()
        self._asked[self._actors[place].answer.remote(request)] = place, label

    def answer(self) -> Answer:
        """Wait for the next answer, or death.

        Raises:
            ProcessLost: nothing is asked, as all workers have died too often.
            Exception: what the function raised.
        """
        errors = self._ray.exceptions
        (done,), _ = self._ray.wait(list(self._asked))
        place, label = self._asked.pop(done)
        try:
            value = self._ray.get(done)
        except errors.RayActorError as error:
            self._bury(place, str(error))
            return Answer(label, None, True)
        except errors.RayTaskError as error:
            raise (error.cause or error) from None
        self._free.append(place)
        return Answer(label, value, False)

    def _bury(self, place: int, said: str) -> None:
        """Count a death, and start the worker anew unless it has died too often."""
        self.lost += 1
        self._deaths[place] += 1
        self._ray.kill(self._actors[place])  # it may be unreachable only
        if self._deaths[place] < _MOST_DEATHS:
            self._actors[place] = self._started()
            self._free.append(place)
        elif not self._free and not self._asked:
            lines = [line.strip() for line in said.splitlines() if line.strip()]
            raise ProcessLost(
                f"all workers have died {_MOST_DEATHS} times (the last one: {lines[-1][:200]})"
            )

    def _started(self) -> Any:
        """A new actor."""
        there = {
            "JAX_PLATFORMS": "cpu",
            "NPROC": "1",  # threads of XLA
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": search_path(),
            "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false",
        }
        actor = self._ray.remote(_Worker).options(
            runtime_env={"env_vars": there}, scheduling_strategy="SPREAD"
        )
        return actor.remote(self._function)

    def close(self) -> None:
        """End the workers, and Ray if it was started for them."""
        if self._owns_ray:
            self._ray.shutdown()
            return
        for actor in getattr(self, "_actors", []):
            self._ray.kill(actor)


class _Worker:
    """A function in a process of its own."""

    def __init__(self, function: Callable[[Any], Any]):
        self._function = function

    def answer(self, request: Any) -> Any:
        return self._function(request)


def _start_quietly(ray: Any, number: int) -> None:
    """Start Ray on this machine alone, without dashboard, logs or statistics of its use."""
    before = os.environ.get(_STATISTICS)
    os.environ[_STATISTICS] = "0"
    try:
        with warnings.catch_warnings():
            # Of JAX, about forks; Ray's are followed by another program at once.
            warnings.simplefilter("ignore", RuntimeWarning)
            ray.init(
                address="local",
                num_cpus=number,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
    finally:
        if before is None:
            del os.environ[_STATISTICS]
        else:
            os.environ[_STATISTICS] = before
