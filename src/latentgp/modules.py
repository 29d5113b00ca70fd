"""Base of models, methods and their parts: printed as code, with checked arguments.

A module is written out by its fields: `RBF(lengthscale=[1.9, 92.0], variance=1.0)`.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import operator
from collections.abc import Callable, Iterable
from typing import Any, Self, TypeVar

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer

from latentgp.errors import InputError

_MOST_NUMBERS = 6  # of an array that is written out in full
# Classes that files may hold, by name.
STORED: dict[str, type] = {}
StoredT = TypeVar("StoredT", bound=type)


def stored(cls: StoredT) -> StoredT:
    """Let files hold a class of latentgp under its name, wherever it is defined.

    Subclasses of `Module` are among them without it.
    """
    known = STORED.setdefault(cls.__name__, cls)
    assert known.__module__ == cls.__module__, f"{cls} and {known} have one name in files"
    return cls


def stored_as(*former: str) -> Callable[[StoredT], StoredT]:
    """Let files hold a class under its name, and earlier files under names that it had."""

    def register(cls: StoredT) -> StoredT:
        STORED.update(dict.fromkeys(former, cls))
        return stored(cls)

    return register


class Module(eqx.Module):
    """Base of models, methods and their parts.

    `__repr__` writes it as code; a class that is written in another way overrides it.

    Raises:
        InputError: an argument that the class does not have.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = cls.__dict__.get("__orig_bases__", ())
        if own and isinstance(own[0], _Fields):
            own[0].put_into(cls)
        elif cls.__module__.partition(".")[0] == "latentgp" and cls.__qualname__ == cls.__name__:
            STORED.setdefault(cls.__name__, cls)
        elif cls.__module__ == "__main__" or "<locals>" in cls.__qualname__:
            cls.__orig_bases__ = (_Fields(cls),)

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        check_argument_names(cls, kwargs)
        return super().__new__(cls, *args, **kwargs)

    def __repr__(self) -> str:
        arguments: list[str] = []
        positional = True
        # As a call is written: what has to be named comes last.
        for field in sorted(dataclasses.fields(self), key=lambda field: field.kw_only is True):
            value = getattr(self, field.name, None)
            if not field.init or _goes_without_saying(value, field):
                positional = False
                continue
            positional = positional and isinstance(value, Module) and not field.kw_only
            text = as_code(value)
            arguments.append(text if positional else f"{field.name}={text}")
        return as_call(type(self), arguments)


class _Fields:
    """Bases and fields of a class of a script or notebook, by which another process makes it.

    cloudpickle, of joblib and Ray, makes an empty class there, of what `__orig_bases__` holds, and
    fills it afterwards. Equinox looks at the fields while a class is made.
    """

    def __init__(self, cls: type):
        self._cls, self._has_init = cls, "__init__" in cls.__dict__

    def __getstate__(self) -> dict[str, Any]:
        cls: Any = self.__dict__.get("_cls")
        if cls is None:  # which has come from another process
            return self.__dict__
        own = {f.name: f for f in dataclasses.fields(cls) if f.name in cls.__annotations__}
        return {"_bases": cls.__bases__, "_has_init": self._has_init, "_own": own}

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return self.__getstate__()["_bases"]

    def put_into(self, cls: Any) -> None:
        """Put the fields into the class that is being made."""
        own: dict[str, Any] = self.__getstate__()["_own"]
        cls.__annotations__ = {name: field.type for name, field in own.items()}
        for name, field in own.items():
            for slot in "default", "default_factory":  # what is missing comes as another object
                if isinstance(getattr(field, slot), type(dataclasses.MISSING)):
                    setattr(field, slot, dataclasses.MISSING)
            setattr(cls, name, field)
        if self._has_init:  # which comes later
            cls.__init__ = _to_come


def _to_come(self: Any) -> None: ...


def forwarded(path: str) -> Any:
    """Property of a class that is an attribute of an instance's, such as "base.targets"."""
    return property(operator.attrgetter(path))


def as_call(kind: type, arguments: Iterable[str]) -> str:
    """A call with arguments that are code already."""
    return f"{kind.__name__}({', '.join(arguments)})"


def as_code(value: Any) -> str:
    """A value as code: numbers to four significant digits, large arrays by their size.

    Example:
        >>> as_code(np.array([0.123456, 2.0]))
        '[0.1235, 2.0]'
        >>> as_code(np.arange(100.0)), as_code(np.zeros((50, 2)))
        ('[0.0, 1.0, 2.0, ..., 99.0 (100 numbers)]', '<50 x 2 array>')
    """
    if isinstance(value, jax.Array) and (
        isinstance(value, Tracer) or not value.is_fully_addressable
    ):
        return f"<{value.dtype}{list(value.shape)}>"
    if isinstance(value, np.ndarray | jax.Array | np.generic) and value.dtype != object:
        return _array_as_code(np.asarray(value))
    if isinstance(value, float):
        return repr(float(f"{value:.4g}"))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        pairs = zip(value._fields, value, strict=True)  # pyright: ignore
        return as_call(type(value), [f"{name}={as_code(part)}" for name, part in pairs])
    if isinstance(value, tuple | list):
        inside = ", ".join(map(as_code, value))
        if isinstance(value, list):
            return f"[{inside}]"
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if isinstance(value, Callable) and not isinstance(value, eqx.Module):
        return getattr(value, "__name__", repr(value))
    return repr(value)


def check_argument_names(kind: type, given: Iterable[str]) -> None:
    """Raise InputError, with the name that was meant, if a class has no such argument.

    Example:
        >>> from latentgp import RBF
        >>> RBF(length_scale=2.0)
        Traceback (most recent call last):
            ...
        latentgp.errors.InputError: RBF has no argument length_scale: did you mean lengthscale?
    """
    for name in given:
        known = _arguments(kind)
        if known is None or name in known:
            continue
        near = difflib.get_close_matches(name, known, n=1)
        hint = f": did you mean {near[0]}?" if near else f"; it has {', '.join(known) or 'none'}."
        raise InputError(f"{kind.__name__} has no argument {name}{hint}")


@functools.cache
def _arguments(kind: type) -> tuple[str, ...] | None:
    """Names of the arguments of a class, None where it takes any."""
    arguments = list(inspect.signature(kind.__init__).parameters.values())[1:]
    if any(argument.kind is inspect.Parameter.VAR_KEYWORD for argument in arguments):
        return None
    by_name = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    return tuple(argument.name for argument in arguments if argument.kind in by_name)


def takes(function: Callable, number: int) -> bool:
    """Whether a function can be called with so many arguments, as far as can be known."""
    try:
        inspect.signature(function).bind(*range(number))
    except TypeError:
        return False
    except ValueError:  # of those that are not written in Python
        return True
    return True


def _goes_without_saying(value: Any, field: dataclasses.Field) -> bool:
    """Whether a field has its default, and is neither a number that is learned nor a module."""
    if isinstance(value, np.ndarray | jax.Array | eqx.Module):
        return False
    return value is field.default or (value == field.default) is True


def _array_as_code(array: np.ndarray) -> str:
    if array.size <= _MOST_NUMBERS:
        return as_code(array.tolist())
    if array.ndim > 1:
        return f"<{' x '.join(map(str, array.shape))} array>"
    first, last = as_code(array[:3].tolist()), as_code(array[-1].item())
    return f"{first[:-1]}, ..., {last} ({array.size} numbers)]"
