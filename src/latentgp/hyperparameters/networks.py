"""Networks of `equinox.nn` inside a model, for kernels and prior means on learned features.

A network holds functions beside its arrays, which JAX's transformations do not take as leaves:
arrays stay leaves of the model, everything else becomes a part of its structure.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from latentgp.modules import Module
from latentgp.typing import in_double_precision

_LIBRARY = "equinox.nn"


class Network(Module):
    """A network whose arrays are learned; it is called, and shows its parts, as the original."""

    weights: Any  # the network with None in place of everything that is no array of real numbers
    others: Any  # the same of other arrays
    rest: Any = eqx.field(static=True)  # the network with None in place of its arrays

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.original()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        # Fields are missing of an object in the making.
        if name.startswith("__") or name in ("weights", "others", "rest"):
            raise AttributeError(name)
        return getattr(self.original(), name)

    def __repr__(self) -> str:
        numbers = sum(jnp.size(value) for value in jax.tree.leaves(self.weights))
        return f"<{type(self.rest).__name__} of {numbers} numbers>"

    def __reduce__(self) -> tuple[Callable[..., "Network"], tuple[Any, ...]]:
        # JAX's functions cannot be pickled, their names can.
        def named(part: Any) -> Any:
            return _NamedFunction(name) if (name := name_of(part)) else part

        return _unpickled, (self.weights, self.others, jax.tree.map(named, self.rest))

    def original(self) -> Any:
        """The network as it was given, in the present precision."""
        return eqx.combine(self.weights, self.others, self.rest)

    def by_path(self) -> Iterator[tuple[str, Any]]:
        """Every array that is learned after its path, such as `.layers[0].weight`."""
        for path, value in jax.tree_util.tree_leaves_with_path(self.weights):
            yield jax.tree_util.keystr(path), value


def with_networks(value: Any) -> Any:
    """A field's value with a `Network` in place of each network in it."""
    if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
        return type(value)(with_networks(part) for part in value)
    is_network = isinstance(value, eqx.Module) and not isinstance(value, Module)
    if not is_network or not _holds(value):
        return value
    arrays, rest = eqx.partition(value, lambda part: isinstance(part, jax.Array | np.ndarray))
    weights, others = eqx.partition(arrays, lambda part: jnp.issubdtype(part.dtype, jnp.floating))
    return Network(jax.tree.map(in_double_precision, weights), others, rest)


@functools.cache
def named_functions() -> dict[str, Callable]:
    """Functions of networks that files may name: those of `jax.nn`, and defaults of layers."""
    named = {f"jax.nn:{name}": value for name, value in vars(jax.nn).items() if callable(value)}
    for name, layer in vars(eqx.nn).items():
        if isinstance(layer, type):
            for argument in inspect.signature(layer.__init__).parameters.values():
                if inspect.isfunction(argument.default):
                    named[f"equinox.nn:{name}.{argument.name}"] = argument.default
    return named


def name_of(function: Any) -> str | None:
    """The name of such a function, None of anything else."""
    return next((name for name, known in named_functions().items() if known is function), None)


@dataclass
class _NamedFunction:
    name: str


def _unpickled(weights: Any, others: Any, rest: Any) -> Network:
    known = named_functions()
    rest = jax.tree.map(lambda p: known[p.name] if isinstance(p, _NamedFunction) else p, rest)
    return Network(weights, others, rest)


def _holds(module: Any) -> bool:
    """Whether a module is of the library of networks, or has a part that is."""

    def is_layer(node: Any) -> bool:
        return type(node).__module__.startswith(_LIBRARY)

    return any(map(is_layer, jax.tree.leaves(module, is_leaf=is_layer)))
