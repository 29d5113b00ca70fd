"""Methods: settings as a value, capabilities, and `run`."""

from __future__ import annotations

import inspect
import types
from abc import abstractmethod
from dataclasses import replace
from functools import cache
from numbers import Integral, Real
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    Protocol,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

import equinox as eqx
import numpy as np

from latentgp.errors import InputError, lacks, refuse
from latentgp.methods.problem import Problem
from latentgp.methods.result import Fit
from latentgp.models import LatentGP
from latentgp.modules import Module
from latentgp.representations.inducing.selection import Selection
from latentgp.representations.needs import Needs
from latentgp.representations.summary import DataSummary

if TYPE_CHECKING:
    from latentgp.site_inference.methods.base import SiteMethod


class Method(Module):
    """An inference algorithm with its settings; it holds no data.

    A new method is a subclass with a `run`, and one line in `latentgp.choosing.registry`. What it
    can do is stated by attributes; its type is never tested.

    Attributes:
        needs_augmentation: only likelihoods with an augmentation can be fitted.
        works_in_batches: `Stochastic` can make its sites from a batch of rows at a time.
        reads_batches: rows may come from a source such as `FileRows`, a batch at a time.
        takes_restarts: the search can be run again from random starts.
        makes_sites: the posterior is that of Gaussian sites, whose log evidence can be
            differentiated.
        samples_hyperparameters: the posterior holds draws of the hyper-parameters.
        takes_layers: models may have hidden layers.
    """

    needs_augmentation: ClassVar[bool] = False
    works_in_batches: ClassVar[bool] = False
    reads_batches: ClassVar[bool] = False
    takes_restarts: ClassVar[bool] = False
    makes_sites: ClassVar[bool] = False
    samples_hyperparameters: ClassVar[bool] = False
    takes_layers: ClassVar[bool] = False

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        own = super().__new__(cls, *args, **kwargs)  # names first
        _check_settings(cls, args, kwargs)
        return own

    @abstractmethod
    def run(self, problem: Problem) -> Fit:
        """Fit the problem's model to its rows.

        Raises:
            InputError: the method cannot be used on the model.
        """

    @property
    def needs(self) -> Needs:
        """Needs of the likelihood, without which the method is refused."""
        return Needs()

    @property
    def spreads_rows(self) -> bool:
        """Whether rows can be spread over devices."""
        return False

    @property
    def subsamples_classes(self) -> bool:
        """Whether a step on a batch may look at some of the classes only."""
        return False

    @property
    def streaming_prior(self) -> DataSummary | None:
        """Summary of the data seen so far that the fit starts from; None without any.

        That of the method that makes the sites, unless overridden.
        """
        return None if self.site_method is None else self.site_method.streaming_prior

    @property
    def site_method(self) -> "SiteMethod | None":
        """The method whose rule makes the sites of the posterior; None without sites."""
        return None

    @property
    def all_rows_at_once(self) -> "Method":
        """The method that one in batches or over hyper-parameters wraps; itself for all others."""
        return self

    def continued(self, batch_size: int | None, epochs: int | None) -> Any:
        """The same method, one that reads batches, for a search that goes on from a fitted model.

        Args:
            batch_size: rows of a batch; None keeps the method's own.
            epochs: at most so many passes over the rows; None keeps the method's own.
        """
        asked = {"batch_size": batch_size, "epochs": epochs}
        return replace(self, **{name: v for name, v in asked.items() if v is not None})

    def through_points(
        self,
        remembered: DataSummary | None,
        number: int | None,
        usual: int,
        selection: Selection = "greedy-variance",
    ) -> "SiteMethod":
        """The same method through inducing points, for streams and batches.

        Args:
            remembered: summary of the data seen so far; None for none.
            number: at most so many points; None keeps the method's own number.
            usual: the number where it has none.
            selection: how points are chosen among rows and earlier points.

        Raises:
            InputError: a method without sites.
        """
        lacks(
            self,
            "no sites, which further rows could be added to; use VariationalInference, AugmentedVI "
            "or CollapsedVI",
        )


_NUMBERS: dict[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool, np.bool_), "True or False"),
    int: ((Integral,), "a whole number"),
    float: ((Real,), "a number"),
    str: ((str,), "a name in quotes"),
}
_OBJECTS = eqx.Module, tuple, type(None)
_EXAMPLES = {
    "Representation": "a representation such as Dense()",
    "SiteMethod": "a method by sites",
}


def _check_settings(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise InputError unless the settings of a method are of the kinds that it declares."""
    signature, kinds = _settings_of(cls)
    if len(args) >= len(signature.parameters):
        raise InputError(
            f"{cls.__name__} takes at most {len(signature.parameters) - 1} settings, got "
            f"{len(args)}; give them by name."
        )
    try:
        given = signature.bind(None, *args, **kwargs).arguments
    except TypeError as error:
        raise InputError(f"{cls.__name__}: {error}.") from None
    for name, kind in kinds.items():
        if name not in given or _is_of(given[name], kind):
            continue
        value = given[name]
        named = [
            other
            for other, its in kinds.items()
            if _is_of(value, its) and not _is_of(object(), its)
        ]
        telling = named and isinstance(value, Module | Integral)
        hint = f"; write {cls.__name__}({named[0]}=...)" if telling else ""
        raise InputError(f"{cls.__name__}.{name} must be {_in_words(kind)}, got {value!r}{hint}.")


@cache
def _settings_of(cls: type) -> tuple[inspect.Signature, dict[str, Any]]:
    signature = inspect.signature(cls.__init__)
    try:
        hints = get_type_hints(cls)
    except NameError:  # a class of a user's, whose annotations name what is not there
        hints = {}
    return signature, {n: hints[n] for n in list(signature.parameters)[1:] if n in hints}


def _is_of(value: Any, kind: Any) -> bool:
    """Whether a value is of a kind of settings; of kinds that are not known it is."""
    if get_origin(kind) in (Union, types.UnionType):
        return any(_is_of(value, part) for part in get_args(kind))
    if get_origin(kind) is Literal:
        return isinstance(value, str) and value in get_args(kind)
    kind = get_origin(kind) or kind
    if not isinstance(kind, type) or not issubclass(kind, (*_NUMBERS, *_OBJECTS)):
        return True  # arrays among them, whose shapes the class looks at
    if kind in _NUMBERS:
        if isinstance(value, bool | np.bool_):
            return kind is bool
        number = kind is float and np.shape(value) == () and hasattr(value, "dtype")
        return number or isinstance(value, _NUMBERS[kind][0])
    return isinstance(value, kind)


def _in_words(kind: Any) -> str:
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(map(_in_words, get_args(kind)))
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(str, get_args(kind)))
    if kind is type(None):
        return "None"
    if kind in _NUMBERS:
        return _NUMBERS[kind][1]
    return _EXAMPLES.get(kind.__name__, f"of class {kind.__name__}")


@runtime_checkable
class StandsForMethod(Protocol):
    """A value that `fit` takes in place of a method, such as a Gaussian approximation."""

    def as_method(self) -> Method:
        """The method that it stands for."""
        ...


def check_is_method(method: Any) -> None:
    """Raise InputError unless something is a method."""
    if not isinstance(method, Method):
        raise InputError(f'method must be "auto" or a method such as ExactGP(), got {method!r}.')


def check_method(
    method: Any, model: LatentGP, from_source: bool, restarts: int, on_devices: bool
) -> None:
    """Raise InputError unless a method can do what is asked.

    Args:
        method: what was given as the method.
        model: to be fitted.
        from_source: rows are read from a source.
        restarts: further runs of the search.
        on_devices: rows are spread over devices.
    """
    check_is_method(method)
    name = type(method).__name__
    method.needs.check(name, likelihood=model.likelihood)
    sentences = {
        f"{name} has no hidden layers, but the model has {model.depth - 1}; use RandomFeatureVI(), "
        "or a LatentGP.": model.depth > 1 and not method.takes_layers,
        f"{name} needs all rows in memory; give them as Data, or use Stochastic(...) to read them "
        "in batches.": from_source and not method.reads_batches,
        f"{name} cannot spread rows over devices; leave devices out, or use ExactGP(), or a method "
        "with Inducing(...).": on_devices and not method.spreads_rows,
        f"{name} takes no restarts; leave them out.": restarts and not method.takes_restarts,
    }
    refuse(sentences)
