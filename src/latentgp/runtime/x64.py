"""Double precision at the public entry points, without touching a global flag."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import equinox as eqx
import jax
import numpy as np

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def double_precision(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Run a public entry point in JAX's x64 context; what it returns should be NumPy arrays.

    Modules among the arguments (models, posteriors, data) come to it with arrays of their own.
    """

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Result:
        args = tuple(fresh(a) if isinstance(a, eqx.Module) else a for a in args)
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return run


def fresh(tree: Any) -> Any:
    """The same tree with views in place of its NumPy arrays.

    JAX keeps the constant that it once made of an array under the array's identity. A program of
    the user's that closes over an array in single precision would leave a narrowed one behind,
    which programs in double precision then take.
    """
    return jax.tree.map(lambda leaf: leaf.view() if isinstance(leaf, np.ndarray) else leaf, tree)
