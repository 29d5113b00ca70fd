"""Digests that are the same in every process that holds equal values."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from types import CodeType, MethodType, ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_PLAIN = str, bytes, int, float, complex, type(None), type(...)
_ADDRESS = re.compile(" at 0x[0-9a-f]+")


def digest(*values: Any) -> str:
    """A digest of arrays, of modules by their fields, and of functions by what they do.

    A function stands for its code, its defaults and the values that it closes over; what it calls
    by a global name stands for that name.

    Example:
        >>> digest(lambda f: f + 1) == digest(lambda f: f + 2)
        False
    """
    found = hashlib.sha256()
    for part in _parts(values, frozenset()):
        found.update(f"{len(part)} ".encode())
        found.update(part)
    return found.hexdigest()


def _parts(value: Any, inside: frozenset[int]) -> Iterator[bytes]:
    """Parts of a value, down to its bytes; `inside` are those that it is a part of."""
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = np.asarray(jax.random.key_data(value))
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        array = np.asarray(value)
        yield f"{array.dtype} {array.shape}".encode()
        if not array.dtype.hasobject:
            yield array.tobytes()
            return
        value = array.tolist()
    if isinstance(value, _PLAIN):
        yield repr(value).encode()
        return
    if id(value) in inside:
        yield b"itself"
        return
    within = list(_within(value))
    yield f"{type(value).__module__}.{type(value).__qualname__} {len(within)}".encode()
    for part in within:
        yield from _parts(part, inside | {id(value)})


def _within(value: Any) -> Iterator[Any]:
    """The values that one consists of, in an order of its own; not what files leave out."""
    declared = fields(value) if is_dataclass(value) else ()
    unsaved = {field.name for field in declared if not field.metadata.get("saved", True)}
    if isinstance(value, Mapping):
        yield from sorted(value.items(), key=lambda item: repr(item[0]))
    elif isinstance(value, set | frozenset):
        yield from sorted(value, key=repr)
    elif isinstance(value, list | tuple):
        yield from value
    elif isinstance(value, type):
        yield f"{value.__module__}.{value.__qualname__}"
    elif isinstance(value, ModuleType):
        yield value.__name__
    elif isinstance(value, partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, CodeType):
        arguments = value.co_varnames[: value.co_argcount + value.co_kwonlyargcount]
        yield from (value.co_code, value.co_names, value.co_consts, value.co_freevars, arguments)
    elif callable(value) and hasattr(inspect.unwrap(value), "__code__"):
        # What wraps another function has code of its own, unless it is compiled.
        function: Any = value if hasattr(value, "__code__") else inspect.unwrap(value)
        yield from (function.__code__, function.__defaults__, function.__kwdefaults__)
        yield from (cell.cell_contents for cell in function.__closure__ or ())
    elif is_dataclass(value) and value.__dataclass_params__.frozen:  # pyright: ignore
        names = (field.name for field in fields(value))
        yield from ((name, getattr(value, name, None)) for name in names if name not in unsaved)
    elif hasattr(value, "__dict__"):
        yield from sorted(item for item in vars(value).items() if item[0] not in unsaved)
    else:
        yield _ADDRESS.sub("", repr(value))
