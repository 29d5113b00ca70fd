"""Settings inside modules by scikit-learn's names, such as `kernel__parts__0__lengthscale`."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

from latentgp.errors import InputError
from latentgp.modules import Module, as_code


def inside(name: str, value: Any) -> dict[str, Any]:
    """Settings inside a module, by name, under the name of the module.

    Example:
        >>> import latentgp as lgp
        >>> list(inside("kernel", lgp.RBF()))
        ['kernel__lengthscale', 'kernel__variance']
    """
    found: dict[str, Any] = {}
    for part, own in _parts(value).items():
        found[f"{name}__{part}"] = own
        found |= inside(f"{name}__{part}", own)
    return found


def changed(name: str, value: Any, new: Mapping[str, Any]) -> Any:
    """A module with other values inside, by their names in it.

    Raises:
        InputError: it has no such setting.

    Example:
        >>> import latentgp as lgp
        >>> changed("kernel", lgp.RBF() + lgp.RBF(), {"parts__1__lengthscale": 2.0})
        RBF(lengthscale=1.0, variance=1.0) + RBF(lengthscale=2.0, variance=1.0)
    """
    known = _parts(value)
    direct: dict[str, Any] = {}
    deeper: dict[str, dict[str, Any]] = {}
    for setting, own in new.items():
        part, _, rest = setting.partition("__")
        if part not in known:
            has = f"it has {', '.join(known)}" if known else f"give another {name} instead"
            raise InputError(
                f"{name}__{part} cannot be set, as {name} is {as_code(value)}, without a {part}; "
                f"{has}."
            )
        if rest:
            deeper.setdefault(part, {})[rest] = own
        else:
            direct[part] = own
    for part, further in deeper.items():
        direct[part] = changed(f"{name}__{part}", direct.get(part, known[part]), further)
    if isinstance(value, tuple):
        return tuple(direct.get(str(place), part) for place, part in enumerate(value))
    return dataclasses.replace(value, **direct)


def _parts(value: Any) -> dict[str, Any]:
    """Parts of a value by name: fields of a module, modules of a tuple by number."""
    if isinstance(value, Module):
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        if set(fields) <= set(inspect.signature(type(value).__init__).parameters):
            return {name: getattr(value, name) for name in fields}
    if isinstance(value, tuple) and any(isinstance(part, Module) for part in value):
        return {str(place): part for place, part in enumerate(value)}
    return {}
