"""Double precision at the public entry points, without touching a global flag."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import equinox as eqx
import jax
import numpy as np
from jax.errors import JaxRuntimeError

from latentgp.runtime.forks import check_not_forked
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
