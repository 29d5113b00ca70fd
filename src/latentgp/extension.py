"""Extensions: capabilities in a folder each, that the core finds by where they lie."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from latentgp.errors import InputError

if TYPE_CHECKING:
    from latentgp.methods.base import Method
    from latentgp.models import LatentGP
    from latentgp.representations import Representation

    ChooseRepresentation = Callable[[LatentGP, int, int | None], Representation | None]


@dataclasses.dataclass(frozen=True)
class Entry:
    """A method that has a name.

    Attributes:
        made_by: its class, or where that is, "module:name"; it is made with `representation=`, or
            with nothing where there is none.
        data_enter: how the data enter, in a few words.
        likelihoods: which ones it takes, in words.
        chosen_by: gives the representation for a model, a number of rows and a number of inducing
            points that was asked for; itself or where it is.
        compared_for: tasks for which `compare` takes it without being asked.
    """

    made_by: type[Method] | str
    data_enter: str
    likelihoods: str
    chosen_by: ChooseRepresentation | str = "latentgp.choosing.choice:usual_representation"
    compared_for: tuple[str, ...] = ()

    @property
    def method(self) -> type[Method]:
        """Its class."""
        return at(self.made_by)

    @property
    def name(self) -> str:
        """Name of its class, which is not imported for it."""
        return getattr(self.made_by, "__name__", f"{self.made_by}".rpartition(":")[2])

    @property
    def representation(self) -> ChooseRepresentation:
        """What chooses its representation."""
        return at(self.chosen_by)


@dataclasses.dataclass(frozen=True)
class Extension:
    """What a folder of `latentgp.extensions` or `latentgp.surfaces` adds to the package.

    Attributes:
        package: its `__name__`.
        names: public names, by the module of the folder that defines them, separated by spaces.
        methods: entries of its methods by name.
        offers: functions that "auto" asks, by what they are asked for: where each is,
            "module:name".
        requires: names of the extensions whose code it imports.
        apart: public names that are reached through the package alone, such as `lgp.flows.Adam`.
        verbs: what methods of fits and posteriors do, "module:name" by their names.
        rooms: the module whose names a package of the core shows too, by that package, such as
            `latentgp.kernels`; the top does not list them.
    """

    package: str
    names: Mapping[str, str]
    methods: Mapping[str, Entry] = dataclasses.field(default_factory=dict)
    offers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    requires: tuple[str, ...] = ()
    apart: str = ""
    verbs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    rooms: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def places(self) -> dict[str, str]:
        """Module of each public name."""
        return {
            name: f"{self.package}.{module}"
            for module, names in self.names.items()
            for name in names.split()
        }

    @property
    def at_top(self) -> list[str]:
        """Public names that `latentgp` lists."""
        shown = [self.apart, *(self.names[module] for module in self.rooms.values())]
        return [name for name in self.places if name not in " ".join(shown).split()]

    def attribute(self, name: str) -> Any:
        """A public name, imported when it is asked for; `__getattr__` of the package."""
        if name not in self.places:
            raise AttributeError(f"module {self.package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(self.places[name]), name)


def at(place: Any) -> Any:
    """What "module:name" stands for; anything else is itself."""
    if not isinstance(place, str):
        return place
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def verb(name: str) -> Any:
    """What a method of a fit or posterior does that an extension brings, or InputError."""
    present = importlib.import_module("latentgp.extensions").present()
    surfaces = importlib.import_module("latentgp.surfaces").EXTENSION
    for own in (surfaces, *present.values()):
        if name in own.verbs:
            return at(own.verbs[name])
    raise InputError(f"No part of this installation has {name}(); install latentgp whole.")
