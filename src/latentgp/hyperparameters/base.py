# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)
"""Constraints, priors and freezing by path; a model as an unconstrained vector and back.

Fields of modules hold constrained values (a variance is a variance, not its logarithm) and
declare their support. `ParameterSpace` is the one place that knows how to leave that space.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import equinox as eqx
import numpy as np
from numpyro.distributions import Distribution, constraints

from latentgp.errors import InputError
from latentgp.hyperparameters.networks import Network, with_networks
from latentgp.modules import Module, as_call
from latentgp.typing import in_double_precision

Role = Literal[
    "lengthscale",
    "period",
    "variance",
    "level",
    "noise_variance",
    "noise_scale",
    "noise_precision",
    "degrees_of_freedom",
    "factor",
    "loading",
    "correlation",
    "share",
    "other",
]
ModuleT = TypeVar("ModuleT", bound=eqx.Module)

_MOST_SHOWN = 6
IN_UNITS_OF_INPUTS: tuple[Role, ...] = ("lengthscale", "period")
_SUPPORT, _ROLE = "latentgp.support", "latentgp.role"


def parameter(
    support: constraints.Constraint = constraints.real,
    *,
    role: Role = "other",
    default: Any = dataclasses.MISSING,
) -> Any:
    """Declare a field of a module as a parameter that can be learned.

    Args:
        support: where the value lives (a NumPyro constraint).
        role: what the value measures; weak default priors, search bounds and reports in the
            user's units follow from it. A "lengthscale" or "period" has the units of the inputs, a
            "level" those of the latent function, a "variance" or "noise_variance" those of its
            square, a "noise_scale" those of the latent function, a "noise_precision" one over
            their square; a "factor" multiplies a variance and has none, as have
            "degrees_of_freedom", a "correlation", a "share" between 0 and 1, and a "loading", which
            says how much of a latent function is in an output.
        default: the value when the constructor is given none.

    Example:
        >>> from latentgp.typing import Array
        >>> class Decay(Parametrised):
        ...     rate: Array = parameter(constraints.positive, default=1.0)
        >>> Decay(rate=2.0).rate
        array(2.)
    """
    metadata = {_SUPPORT: support, _ROLE: role}
    return eqx.field(converter=_as_value, default=default, metadata=metadata)


def _as_value(value: Any) -> Any:
    try:
        return in_double_precision(value)
    except (TypeError, ValueError):
        return value  # placeholders that JAX's tree functions put in leaves


def _check_value(name: str, value: Any, support: constraints.Constraint) -> None:
    if isinstance(value, str | list | tuple | dict):
        raise InputError(f"{name} must be a number or an array of numbers, got {value!r}.")
    if isinstance(value, np.ndarray) and not np.all(np.asarray(support(value))):
        raise InputError(
            f"{name} must satisfy {_describe(support)}, got {value.tolist()}; "
            "give a value inside that range."
        )


class Parametrised(Module):
    """Base of modules with parameters; checks values against their supports.

    A field with a network of `equinox.nn` becomes a `Network`, whose arrays are parameters too.
    """

    def __check_init__(self) -> None:
        for field in dataclasses.fields(self):
            if not field.metadata.get("static", False) and not declared(field):
                # As Equinox does for the converters of fields.
                object.__setattr__(self, field.name, with_networks(getattr(self, field.name)))
        for field in filter(declared, dataclasses.fields(self)):
            name = f"{type(self).__name__}.{field.name}"
            _check_value(name, getattr(self, field.name), field.metadata[_SUPPORT])

    def weak_prior(self, name: str, latent: float) -> Distribution | None:
        """Weak prior of a field where its role says too little; None unless overridden.

        `latent` is the typical size of the latent function.
        """
        return None


class SeesColumns(Parametrised):
    """A module whose parts see only some input columns, which scales their parameters."""

    dimensions: eqx.AbstractVar[tuple[int, ...]]


class ChangesUnits(Parametrised):
    """A module whose parts have length-scales in other units than those of the inputs.

    Attributes:
        unit: one unit of the inputs in those of the length-scales.
    """

    unit: eqx.AbstractVar[float]


class MultipliesParts(Parametrised):
    """A module that is the product of its parts: only the first one's variances have units."""

    parts: eqx.AbstractVar[tuple[Any, ...]]


class OwnParts(Parametrised):
    """A module with a part of its own for every latent function, in their order.

    Attributes:
        part_type: what every part must be.

    Raises:
        InputError: no part, or one that is something else, or has parts of its own again.
    """

    part_type: ClassVar[type]
    parts: eqx.AbstractVar[tuple[Any, ...]]

    def __check_init__(self) -> None:
        fits = [isinstance(p, self.part_type) and not isinstance(p, OwnParts) for p in self.parts]
        if not all(fits) or not fits:
            raise InputError(
                f"{type(self).__name__} takes one {self.part_type.__name__} for each latent "
                f"function as its arguments, got {self.parts!r}."
            )

    def __repr__(self) -> str:
        return as_call(type(self), map(repr, self.parts))


class ParameterInfo(NamedTuple):
    """Description of one parameter of a model: path, role, support."""

    path: str  # names of fields from the model down, such as "kernel.lengthscale"
    value: Any  # as it stands, inside its support
    support: constraints.Constraint  # where it lives
    role: Role  # what it measures
    dimensions: tuple[int, ...] | None  # the input columns that its module sees, None for all
    # the latent function that it belongs to, counted from 0, None for all
    latent: int | None = None
    unit: float = 1.0  # one unit of the inputs in those of its module's length-scales
    module: Parametrised | None = None  # whose field it is, None for one of a network


def parameters(model: eqx.Module) -> dict[str, ParameterInfo]:
    """All parameters of a model by path, in the order of its fields.

    Example:
        >>> from latentgp import RBF
        >>> [p.path for p in parameters(2.0 * RBF()).values()]
        ['kernel.lengthscale', 'kernel.variance', 'scale']
    """
    return {info.path: info for info in _walk(model, "", _InputColumns())}


def replace(model: ModuleT, values: Mapping[str, Any]) -> ModuleT:
    """The model with the parameters at the given paths changed.

    Raises:
        InputError: a path names no parameter, or a value is outside its support.

    Example:
        >>> from latentgp import RBF
        >>> float(replace(RBF(), {"lengthscale": 3.0}).lengthscale)
        3.0
    """
    known = parameters(model)
    for path, value in values.items():
        if path not in known:
            raise InputError(_no_such_path(path, known))
        _check_value(path, _as_value(value), known[path].support)
    return replace_unchecked(model, values)


def replace_unchecked(model: ModuleT, values: Mapping[str, Any]) -> ModuleT:
    """The same without checks of paths and values, which may be traced."""
    if not values:
        return model
    given = [_as_value(value) for value in values.values()]
    return eqx.tree_at(lambda m: [parameters(m)[path].value for path in values], model, given)


def _shown(value: Any) -> str:
    """A parameter's value on one line."""
    value = np.asarray(value)
    if value.ndim > 1 or value.size > _MOST_SHOWN:
        sizes = " x ".join(map(str, value.shape))
        return f"{sizes} values from {value.min():.4g} to {value.max():.4g}"
    line = np.array2string(value, precision=4, separator=", ", max_line_width=10**6)
    return line.rstrip(".")


def entry_labels(path: str, shape: tuple[int, ...]) -> dict[tuple[int, ...], str]:
    """Labels of the entries of a parameter of a shape, by place.

    Example:
        >>> list(entry_labels("likelihood.loading", (1, 2)).values())
        ['likelihood.loading[0, 0]', 'likelihood.loading[0, 1]']
        >>> entry_labels("kernel.variance", ())
        {(): 'kernel.variance'}
    """
    return {
        place: f"{path}[{', '.join(map(str, place))}]" if place else path
        for place in np.ndindex(shape)
    }


def declared(field: dataclasses.Field) -> bool:
    """Whether a field was declared by `parameter`."""
    return _SUPPORT in field.metadata


def _walk(node: Any, prefix: str, seen: "_InputColumns") -> Iterator[ParameterInfo]:
    if isinstance(node, Network):
        for path, value in node.by_path():
            yield ParameterInfo(prefix + path, value, constraints.real, "other", seen.dimensions)
    elif isinstance(node, eqx.Module):
        seen = seen.inside(node)
        for field in dataclasses.fields(node):
            value = getattr(node, field.name)
            path = f"{prefix}.{field.name}" if prefix else field.name
            if declared(field):
                meta = field.metadata
                info = ParameterInfo(path, value, meta[_SUPPORT], meta[_ROLE], seen.dimensions)
                owner = node if isinstance(node, Parametrised) else None
                yield info._replace(unit=seen.unit, module=owner)
            elif isinstance(node, MultipliesParts | OwnParts) and field.name == "parts":
                for index, part in enumerate(node.parts):
                    for info in _walk(part, f"{path}[{index}]", seen):
                        if isinstance(node, OwnParts):
                            yield info._replace(latent=index)
                        else:
                            unitless = index > 0 and info.role == "variance"
                            yield info._replace(role="factor") if unitless else info
            else:
                yield from _walk(value, path, seen)
    elif isinstance(node, tuple | list):
        for index, child in enumerate(node):
            yield from _walk(child, f"{prefix}[{index}]", seen)


class _InputColumns(NamedTuple):
    """Inputs of a module: its columns and their units."""

    dimensions: tuple[int, ...] | None = None
    unit: float = 1.0

    def inside(self, node: eqx.Module) -> "_InputColumns":
        """The same of the parts of a module."""
        dimensions, unit = self
        if isinstance(node, SeesColumns):
            own = node.dimensions
            dimensions = own if dimensions is None else tuple(dimensions[d] for d in own)
        unit *= node.unit if isinstance(node, ChangesUnits) else 1
        return _InputColumns(dimensions, unit)


def _is_under(path: str, beginning: str) -> bool:
    return path == beginning or path.startswith((f"{beginning}.", f"{beginning}["))


def _no_such_path(path: str, known: Mapping[str, Any]) -> str:
    names = ", ".join(known) or "none"
    return f'The model has no parameter "{path}"; its parameters are: {names}.'


def _describe(support: constraints.Constraint) -> str:
    named = (name for name in ("positive", "real") if support is getattr(constraints, name))
    return next(named, repr(support))


def _name_of(prior: Distribution) -> str:
    values = (np.asarray(getattr(prior, name)) for name in prior.arg_constraints)
    short = partial(np.array2string, precision=3)
    shown = (short(v) if v.size <= _MOST_SHOWN else _shown(v) for v in values)
    return f"{type(prior).__name__}({', '.join(shown)})"
