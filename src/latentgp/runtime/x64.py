"""Public entry points: double precision without touching a global flag, none after a fork."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import equinox as eqx
import jax
import numpy as np
from jax._src.xla_bridge import backends_are_initialized
from jax.errors import JaxRuntimeError

from latentgp.errors import InputError
from latentgp.runtime.host_calls import refusal_in
from latentgp.runtime.interrupts import raising_interrupts

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# What programs here are written for, whatever the process has set for its own, by JAX's name.
_USUAL = {
    **dict.fromkeys(["debug_nans", "debug_infs"], False),  # a factor that there is not is NaN
    **dict.fromkeys(["check_tracer_leaks", "debug_key_reuse", "disable_jit"], False),
    **{f"transfer_guard_{way}_to_device": "allow" for way in ("host", "device")},
    "transfer_guard_device_to_host": "allow",
    "numpy_rank_promotion": "allow",
    "numpy_dtype_promotion": "standard",
    "default_matmul_precision": None,
    "threefry_partitionable": True,
    "default_prng_impl": "threefry2x32",
}


@contextmanager
def usual_settings() -> Iterator[None]:
    """Context with the settings of JAX that programs here are written for; precision is left.

    Also a decorator, of rules of derivatives that JAX asks after a public call has ended.
    """
    with ExitStack() as changed:
        for name, value in _USUAL.items():
            if getattr(jax.config, f"jax_{name}") not in (None, value):
                changed.enter_context(getattr(jax, name)(value))
        yield


@contextmanager
def refusing_host_calls() -> Iterator[None]:
    """Context in which an error of JAX about a function of the user's is one in words."""
    try:
        yield
    except JaxRuntimeError as error:
        if (refused := refusal_in(error)) is None:
            raise
        raise refused from None


def public(
    function: Callable[Parameters, Result], keeps_results: bool = False
) -> Callable[Parameters, Result]:
    """A public entry point: refused after a fork, under the usual settings, with Ctrl-C at its end.

    `keeps_results` is as for `raising_interrupts`.
    """

    @wraps(function)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with raising_interrupts(keeps_results) as call:
            check_not_forked()
            with usual_settings(), refusing_host_calls():
                call.result = result = function(*args, **kwargs)
        return result

    return run


def interruptible(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A public entry point that Ctrl-C ends early with a result, such as a fit."""
    return public(function, keeps_results=True)


def double_precision(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Run a public entry point in JAX's x64 context; what it returns should be NumPy arrays.

    Modules among the arguments (models, posteriors, data) come to it with arrays of their own.
    """
    return public(in_x64(function))


def in_x64(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Run a function in JAX's x64 context, where public entry points alone call it."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Result:
        args = tuple(map(fresh_module, args))
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return run


def fresh_module(argument: Any) -> Any:
    """`fresh` of a module; anything else as it is."""
    return fresh(argument) if isinstance(argument, eqx.Module) else argument


def fresh(tree: Any) -> Any:
    """The same tree with views in place of its NumPy arrays.

    JAX keeps the constant that it once made of an array under the array's identity. A program of
    the user's that closes over an array in single precision would leave a narrowed one behind,
    which programs in double precision then take.
    """
    return jax.tree.map(lambda leaf: leaf.view() if isinstance(leaf, np.ndarray) else leaf, tree)


class _Fork:
    """Record of forks: set before one, read in the child."""

    was_used = False  # JAX, in the parent
    threads_are_lost = False  # those of JAX, in this process


def check_not_forked() -> None:
    """InputError where JAX was used before this process was forked: it would wait for ever."""
    if _Fork.threads_are_lost:
        raise InputError(
            "This process was forked from one that had used JAX, whose threads do not survive a "
            "fork, so that nothing can be computed here; start workers by "
            'multiprocessing.get_context("spawn") or joblib\'s loky, or fork before anything is '
            "fitted or predicted and load the model in the worker; files of `export` predict "
            "without JAX."
        )


def _before() -> None:
    _Fork.was_used = backends_are_initialized()


def _in_the_child() -> None:
    _Fork.threads_are_lost = _Fork.threads_are_lost or _Fork.was_used


def _forked_earlier() -> bool:
    """Whether the fork was before this import: JAX is in use, and none of its threads is there.

    Of a fork the command is that of its parent.
    """
    try:
        pids = os.getpid(), os.getppid()
        own, parents = (Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids)
        names = [file.read_text() for file in Path("/proc/self/task").glob("*/comm")]
    except OSError:  # another system, or a thread that has just ended
        return False
    return own == parents and backends_are_initialized() and not any("XLA" in n for n in names)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_before, after_in_child=_in_the_child)
    _Fork.threads_are_lost = _forked_earlier()
