"""Double precision at the public entry points, without touching a global flag."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import jax

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def double_precision(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Run a public entry point in JAX's x64 context; what it returns should be NumPy arrays."""

    @wraps(function)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return run
