"""Runs in the background: started, watched, paused, aborted, and asked for their result."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from inspect import signature
from pathlib import Path
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypeVar, overload

import jax

from latentgp._version import __version__
from latentgp.methods.options import completed, sections
from latentgp.runtime.run_log import current_log, log_runs
from latentgp.runtime.switch import RunProgress, Switch, obeying, within_a_fit
from latentgp.runtime.x64 import fresh_module, interruptible, refusing_host_calls

__all__ = ["BackgroundRun", "run_in_background"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Options = TypeVar("Options")
Given = TypeVar("Given", covariant=True)
Model = TypeVar("Model", contravariant=True)
Rows = TypeVar("Rows", contravariant=True)


class BackgroundRun(Generic[Result]):
    """A call that runs in a thread of its own.

    What it fits, predicts or compares can be paused and aborted at the end of every step: an
    evaluation of a search, a round of batches, 50 draws of each chain, at most 4,096 rows of a
    prediction. A process that ends aborts it and waits for that.

    Args:
        call: what is run, without contexts of the calling thread, such as JAX's default device.
    """

    def __init__(self, call: Callable[[], Result]):
        self._switch, self._ended = Switch(), threading.Event()
        self._started = time.perf_counter()
        self._last: RunProgress | None = None
        self._result: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(
            target=self._run, args=(call,), name="latentgp run", daemon=True
        )
        atexit.register(self._leave)
        self._thread.start()

    def _run(self, call: Callable[[], Result]) -> None:
        try:
            with obeying(self._switch):
                self._switch.check()
                self._result = call()
        except BaseException as error:  # whoever asks for the result is told
            self._error = error
        finally:
            self._last = self.progress
            self._ended.set()
            atexit.unregister(self._leave)

    def _leave(self) -> None:
        self.abort()
        self._thread.join()

    def pause(self) -> None:
        """Hold the run at the end of its step, until `resume`; a checkpoint is written there."""
        self._switch.pause()

    def resume(self) -> None:
        """Let the run go on."""
        self._switch.resume()

    def abort(self) -> None:
        """End the run at the end of its step; `result` gives what there is by then."""
        self._switch.abort()

    @property
    def done(self) -> bool:
        """Whether it has ended: with a result, an error, or aborted."""
        return self._ended.is_set()

    @property
    def paused(self) -> bool:
        """Whether it waits to be resumed."""
        return self._switch.waits

    @property
    def progress(self) -> RunProgress:
        """Progress: phase, step, total, seconds gone and left."""
        if self._last is not None:
            return self._last
        seconds = self._switch.clock() - self._started
        return self._switch.told or RunProgress("getting ready", 0, None, seconds, None)

    def result(self, timeout: float | None = None) -> Result:
        """Wait for the result and return it, or raise what the run raised.

        An interrupt while waiting ends the wait; the run goes on.

        Args:
            timeout: seconds to wait at most; None waits as long as it takes.

        Raises:
            TimeoutError: the run has not ended by then. It goes on.
            RunAborted: it was aborted before there was anything that could be its result.
        """
        if not self._ended.wait(timeout):
            raise TimeoutError(
                f"The run has not ended within {timeout:g} s; ask again later, or abort it."
            )
        if self._error is not None:
            raise self._error
        return self._result

    def __repr__(self) -> str:
        told = self.progress
        total = "" if told.total is None else f" of {told.total:,}"
        state = "done" if self.done else "paused" if self.paused else "running"
        return f"BackgroundRun({state}, {told.phase}: {told.step:,}{total}, {told.seconds:.0f} s)"


def run_in_background(
    function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
) -> BackgroundRun[Result]:
    """Call a function in a thread of its own, such as the `fit` of an estimator.

    Args:
        function: that fits, predicts or compares.
        args: its arguments by position.
        kwargs: its arguments by name.

    Example:
        >>> import latentgp as lgp, numpy as np
        >>> X = np.linspace(0, 6, 30)[:, None]
        >>> run = lgp.run_in_background(lgp.GPRegressor(random_state=0).fit, X, np.sin(X[:, 0]))
        >>> run.result().predict(X[:2]).shape
        (2,)
    """
    return BackgroundRun(partial(function, *args, **kwargs))


class SupervisedFunction(Protocol[Model, Rows, Parameters, Given]):  # pyright: ignore
    """A function that fits, here or in the background, and has its options as keywords.

    The handle is `Any` to type checkers: settings that are unpacked from a dict, of which they do
    not know whether `blocking` is among them, are then taken to give the result.
    """

    @overload
    def __call__(
        self, model: Model, data: Rows, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Given: ...

    @overload
    def __call__(
        self, model: Any, data: Any, *, blocking: Literal[False], key: Any, **settings: Any
    ) -> Any: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result, or a handle on the run where `blocking` is false."""
        ...


def supervised(
    options: Callable[Parameters, Options],
) -> Callable[
    [Callable[[Model, Rows, Options], Result]], SupervisedFunction[Model, Rows, Parameters, Result]
]:
    """A function that fits, in double precision, with its options, `blocking` and `log`."""
    kind: Any = options

    @interruptible
    def logged(call: Callable[[], Result], log: str | Path | None) -> Result:
        with log_runs(log), within_a_fit(), _logging() as results, jax.enable_x64(True):
            results.append(call())
        return results[0]

    def decorate(function: Any) -> Any:
        @wraps(function)
        def run(model: Any, data: Any, **given: Any) -> Any:
            own = kind(**given)
            call = partial(function, fresh_module(model), fresh_module(data), own)
            call = partial(logged, call, own.log)
            return call() if own.blocking else BackgroundRun(call)

        kind.__init__.__qualname__ = function.__qualname__  # by which Python's messages call it
        run.__doc__ = completed(function.__doc__ or "", kind.__mro__)
        taken = signature(function)
        known = {**taken.parameters, **signature(kind).parameters}
        order = sections(run.__doc__).get("Args") or known  # `python -OO` has no docstrings
        run.__dict__["__signature__"] = taken.replace(parameters=[known[name] for name in order])
        return run

    return decorate


@contextmanager
def _logging() -> Iterator[list[Any]]:
    """Context that logs how a fit begins and ends, by the result that is put into the list."""
    log, results = current_log(), []
    if log is None:
        yield results
        return
    log.add("begin", latentgp=__version__)
    try:
        with refusing_host_calls():
            yield results
    except BaseException as error:
        log.add("error", kind=type(error).__name__, message=str(error))
        raise
    (result,) = results
    told = result.diagnostics
    for event, messages in ("note", told.remarks), ("warning", told.warnings):
        for message in messages:
            log.add(event, message=message)
    evidence = result.posterior.evidence
    log.add(
        "end",
        converged=told.converged,
        stopped_as_meant=told.stopped_as_meant,
        ending=getattr(told, "ending", None),
        seconds=told.seconds,
        method=type(told.method).__name__,
        reason=told.reason,
        log_evidence=None if evidence is None else [evidence.value, evidence.kind],
    )
