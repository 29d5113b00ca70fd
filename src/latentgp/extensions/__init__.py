"""Capabilities beside the core, each one folder; the core knows none of them."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING, Any

from latentgp.errors import InputError
from latentgp.extension import Extension, at

if TYPE_CHECKING:  # what editors and type checkers see of them
    from latentgp.extensions.areas import *
    from latentgp.extensions.batches import *
    from latentgp.extensions.black_box import *
    from latentgp.extensions.chains import *
    from latentgp.extensions.deep import *
    from latentgp.extensions.fields import *
    from latentgp.extensions.flows import *
    from latentgp.extensions.groups import *
    from latentgp.extensions.integrated import *
    from latentgp.extensions.inter_domain import *
    from latentgp.extensions.iterative import *
    from latentgp.extensions.neighbours import *
    from latentgp.extensions.sharded import *
    from latentgp.extensions.state_space import *


@cache
def present() -> dict[str, Extension]:
    """The extensions that are there with all that they require, by name."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    found: dict[str, Extension] = {
        name: importlib.import_module(f"{__name__}.{name}").EXTENSION for name in names
    }
    while lacking := [n for n, own in found.items() if not found.keys() >= {*own.requires}]:
        for name in lacking:
            del found[name]
    return found


def offers(asked: str) -> list[Any]:
    """Functions of the extensions that answer what is asked for, such as "batches"."""
    return [at(own.offers[asked]) for own in present().values() if asked in own.offers]


def shown_in(room: str, name: str) -> Any:
    """A public name that an extension shows in a package of the core, for its `__getattr__`."""
    for own in present().values():
        if name in own.names.get(own.rooms.get(room, ""), "").split():
            return own.attribute(name)
    raise AttributeError(f"module {room!r} has no attribute {name!r}")


def answer(asked: str) -> Any:
    """The function of the one extension that can do what is asked for; InputError without any."""
    found = offers(asked)
    if not found:
        raise InputError(f"No part of this installation does {asked}; install latentgp whole.")
    return found[0]
