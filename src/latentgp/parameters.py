"""Constraints, priors and freezing by path; a model as an unconstrained vector and back.

Fields of modules hold constrained values (a variance is a variance, not its logarithm) and
declare their support. `ParameterSpace` is the one place that knows how to leave that space.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.transforms import Transform, biject_to

from latentgp.arrays import Array, in_double_precision
from latentgp.errors import InputError
from latentgp.modules import Module, as_call
from latentgp.networks import Network, with_networks
from latentgp.supports import check_prior, moved_inside, support_under, with_arrays

Role = Literal[
    "lengthscale",
    "variance",
    "noise_variance",
    "noise_scale",
    "noise_precision",
    "degrees_of_freedom",
    "factor",
    "loading",
    "other",
]
ModuleT = TypeVar("ModuleT", bound=eqx.Module)

_MOST_SHOWN = 6
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
            user's units follow from it. A "lengthscale" has the units of the inputs, a
            "variance" or "noise_variance" those of the latent function squared, a "noise_scale"
            those of the latent function, a "noise_precision" one over their square; a "factor"
            multiplies a variance and has none, as have "degrees_of_freedom" and a "loading",
            which says how much of a latent function is in an output.
        default: the value when the constructor is given none.

    Example:
        >>> class Decay(Parametrised):
        ...     rate: Array = parameter(constraints.positive, default=1.0)
        >>> Decay(rate=2.0).rate
        array(2.)
    """
    settings: dict[str, Any] = {"metadata": {_SUPPORT: support, _ROLE: role}}
    if default is not dataclasses.MISSING:
        settings["default"] = default
    return eqx.field(converter=_as_value, **settings)


def _as_value(value: Any) -> Any:
    try:
        return in_double_precision(value)
    except (TypeError, ValueError):
        return value  # placeholders that JAX's tree functions put in leaves


def _check_value(name: str, value: Any, support: constraints.Constraint) -> None:
    if isinstance(value, str | list | tuple | dict):
        raise InputError(
            f"{name} must be a number or an array of numbers, got {value!r}; give numbers."
        )
    if isinstance(value, np.ndarray) and not np.all(np.asarray(support(value))):
        raise InputError(
            f"{name} must satisfy {_describe(support)}, got {value.tolist()}; "
            "give a value inside that range."
        )


class Parametrised(Module):
    """Base of everything that holds parameters; checks values against their supports.

    A field with a network of `equinox.nn` becomes a `Network`, whose arrays are parameters too.
    """

    def __check_init__(self) -> None:
        for field in dataclasses.fields(self):
            if not field.metadata.get("static", False) and not declared(field):
                # As Equinox does for the converters of fields.
                object.__setattr__(self, field.name, with_networks(getattr(self, field.name)))
        for field in _parameter_fields(self):
            name = f"{type(self).__name__}.{field.name}"
            _check_value(name, getattr(self, field.name), field.metadata[_SUPPORT])


class SeesColumns(Parametrised):
    """A module whose parts see only some input columns, which scales their parameters."""

    dimensions: eqx.AbstractVar[tuple[int, ...]]


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
    """One parameter of a model: where it is, what it is, what it may be.

    Attributes:
        path: names of fields from the model down, such as "kernel.lengthscale".
        value: as it stands, inside its support.
        support: where it lives.
        role: what it measures.
        dimensions: the input columns that its module sees, None for all.
        latent: the latent function that it belongs to, counted from 0, None for all.
    """

    path: str
    value: Any
    support: constraints.Constraint
    role: Role
    dimensions: tuple[int, ...] | None
    latent: int | None = None


def parameters(model: eqx.Module) -> dict[str, ParameterInfo]:
    """All parameters of a model by path, in the order of its fields.

    Example:
        >>> from latentgp import RBF
        >>> [p.path for p in parameters(2.0 * RBF()).values()]
        ['kernel.lengthscale', 'kernel.variance', 'scale']
    """
    return {info.path: info for info in _walk(model, "", None)}


def replace(model: ModuleT, values: Mapping[str, Any]) -> ModuleT:
    """The model with the parameters at the given paths changed.

    Raises:
        InputError: a path names no parameter, or a value is outside its support.

    Example:
        >>> from latentgp import RBF
        >>> float(replace(RBF(), {"lengthscale": 3.0}).lengthscale)
        3.0
    """
    if not values:
        return model
    known = parameters(model)
    for path, value in values.items():
        if path not in known:
            raise InputError(_no_such_path(path, known))
        _check_value(path, _as_value(value), known[path].support)
    return replace_unchecked(model, values)


def replace_unchecked(model: ModuleT, values: Mapping[str, Any]) -> ModuleT:
    """The same without a look at paths and values, which may be traced."""
    if not values:
        return model
    paths = list(values)
    return eqx.tree_at(
        lambda m: [parameters(m)[path].value for path in paths],
        model,
        [_as_value(values[path]) for path in paths],
    )


class ParameterSpace(eqx.Module):
    """The free parameters of a model as one unconstrained vector.

    Args:
        model: any module; its values are kept for parameters that are frozen.
        frozen: paths (or their beginnings, such as `"kernel"`) that are not learned.
        priors: a NumPyro distribution by path; None for a path means no prior.

    Raises:
        InputError: a path in `frozen` or `priors` names no parameter; a prior is no distribution,
            or none that the parameter can have.

    Example:
        >>> from latentgp import RBF
        >>> space = ParameterSpace(RBF(lengthscale=2.0), frozen=("variance",))
        >>> space.to_vector().round(3)
        array([0.693])
    """

    model: Any
    _priors: tuple["_InOrder", ...]
    _narrowed: dict[str, constraints.Constraint]
    prior_paths: tuple[str, ...] = eqx.field(static=True)
    paths: tuple[str, ...] = eqx.field(static=True)

    def __init__(
        self,
        model: eqx.Module,
        *,
        frozen: Sequence[str] = (),
        priors: Mapping[str, Distribution | None] | None = None,
    ):
        wanted = dict(priors or {})
        known = parameters(model)
        for path, prior in wanted.items():
            if path not in known:
                raise InputError(_no_such_path(path, known))
            if prior is not None:
                check_prior(path, prior, known[path].support, known[path].value)
        for path in frozen:
            if not any(_is_under(name, path) for name in known):
                raise InputError(_no_such_path(path, known))
        self.model = model
        self.paths = tuple(p for p in known if not any(_is_under(p, f) for f in frozen))
        chosen = {p: with_arrays(prior) for p in self.paths if (prior := wanted.get(p)) is not None}
        self.prior_paths = tuple(chosen)
        self._priors = tuple(_InOrder(prior) for prior in chosen.values())
        under = {p: support_under(prior, known[p].support) for p, prior in chosen.items()}
        self._narrowed = {p: s for p, s in under.items() if s is not known[p].support}

    @property
    def priors(self) -> tuple[Distribution, ...]:
        """One for each of `prior_paths`."""
        return tuple(prior.distribution for prior in self._priors)

    @property
    def supports(self) -> dict[str, constraints.Constraint]:
        """Where each free parameter lives, its prior considered, by path."""
        known = parameters(self.model)
        return {path: self._narrowed.get(path, known[path].support) for path in self.paths}

    @property
    def narrowed(self) -> tuple[str, ...]:
        """Paths of free parameters whose support is smaller for their prior."""
        return tuple(self._narrowed)

    def inside(self) -> tuple[Any, tuple[str, ...]]:
        """The model with all values in the supports of their priors; what was moved, in words."""
        known, supports = parameters(self.model), self.supports
        values, said = {}, []
        for path, prior in zip(self.prior_paths, self.priors, strict=True):
            value = np.asarray(known[path].value)
            moved = moved_inside(prior, supports[path], value)
            if not np.array_equal(moved, value):
                values[path] = moved
                said.append(
                    f"{path} was {_shown(value)}, outside the support of its prior "
                    f"({type(prior).__name__}): the search started at {_shown(moved)} instead."
                )
        return replace_unchecked(self.model, values), tuple(said)

    @property
    def size(self) -> int:
        """How many numbers the unconstrained vector has."""
        return sum(math.prod(shape) for _, _, shape in self._layout())

    def to_vector(self, model: eqx.Module | None = None) -> np.ndarray:
        """The free parameters of `model` (default: the one given) as a vector, shape (P,)."""
        known = parameters(self.model if model is None else model)
        with jax.enable_x64(True):
            parts = [
                np.ravel(biject_to(support).inv(jnp.asarray(known[path].value)))
                for path, support in self.supports.items()
            ]
        return np.concatenate([np.zeros(0), *parts])

    def to_model(self, vector: Float[Array, "P"]) -> Any:
        """The model whose free parameters are those of the unconstrained vector."""
        values = {path: value for path, value, _, _ in self._constrained(vector)}
        return replace_unchecked(self.model, values)

    def log_prior(self, vector: Float[Array, "P"]) -> Float[Array, ""]:
        """Log density of the priors at the unconstrained vector, in nats.

        The change of variables is included, so its mode does not depend on how a support was
        mapped onto the real line for log-normal priors: it is the median.
        """
        prior_of = dict(zip(self.prior_paths, self.priors, strict=True))
        total = jnp.zeros((), vector.dtype)
        for path, value, raw, transform in self._constrained(vector):
            if path in prior_of:
                total = total + jnp.sum(prior_of[path].log_prob(value))
                total = total + jnp.sum(transform.log_abs_det_jacobian(raw, value))
        return total

    def entries(self) -> list[tuple[str, ParameterInfo]]:
        """A label for every entry of the vector (indexed where it is an array), and whose it is."""
        known = parameters(self.model)
        return [
            (path if shape == () else f"{path}[{i}]", known[path])
            for path, _, shape in self._layout()
            for i in range(math.prod(shape))
        ]

    def _layout(self) -> Iterator[tuple[str, Transform, tuple[int, ...]]]:
        known = parameters(self.model)
        for path, support in self.supports.items():
            transform = biject_to(support)
            yield path, transform, tuple(transform.inverse_shape(np.shape(known[path].value)))

    def _constrained(
        self, vector: Float[Array, "P"]
    ) -> Iterator[tuple[str, Array, Array, Transform]]:
        start = 0
        for path, transform, shape in self._layout():
            stop = start + math.prod(shape)
            raw = vector[start:stop].reshape(shape)
            yield path, jnp.asarray(transform(raw)), raw, transform
            start = stop


@jax.tree_util.register_pytree_node_class
class _InOrder:
    """A distribution whose leaves come in the same order in every process.

    NumPyro flattens one in the order of a set of names; a program that takes a prior would differ
    from process to process, and could not be taken over from another.
    """

    def __init__(self, distribution: Distribution):
        self.distribution = distribution

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        kind = type(self.distribution)
        if kind.tree_flatten is not Distribution.tree_flatten:
            return (self.distribution,), None
        values, settings = self.distribution.tree_flatten()
        parts = dict(zip(kind.gather_pytree_data_fields(), values, strict=True))
        fixed = dict(zip(kind.gather_pytree_aux_fields(), settings, strict=True))
        names = tuple(sorted(parts))
        ordered = (parts[name] for name in names)
        inner = tuple(_InOrder(p) if isinstance(p, Distribution) else p for p in ordered)
        return inner, (kind, names, tuple((name, fixed[name]) for name in sorted(fixed)))

    @classmethod
    def tree_unflatten(cls, structure: Any, inner: tuple[Any, ...]) -> "_InOrder":
        if structure is None:
            return cls(*inner)
        kind, names, fixed = structure[0], structure[1], dict(structure[2])
        ordered = (p.distribution if isinstance(p, _InOrder) else p for p in inner)
        parts = dict(zip(names, ordered, strict=True))
        values = tuple(parts[name] for name in kind.gather_pytree_data_fields())
        settings = tuple(fixed[name] for name in kind.gather_pytree_aux_fields())
        return cls(kind.tree_unflatten(settings, values))


def lengthscales(model: eqx.Module, inputs: int) -> Float[np.ndarray, "D"]:
    """The length-scale of each input: the shortest of those that are about it, infinity for none.

    Args:
        model: a kernel, or a model with one.
        inputs: number of input columns D.

    Example:
        >>> from latentgp import RBF
        >>> lengthscales(RBF(lengthscale=[0.5, 2.0]).on(0, 2) + RBF(1.0).on(0), 3)
        array([0.5, inf, 2. ])
    """
    shortest = np.full(inputs, np.inf)
    for info in parameters(model).values():
        seen = list(range(inputs) if info.dimensions is None else info.dimensions)
        value = np.asarray(info.value)
        if info.role == "lengthscale" and value.shape in ((), (len(seen),)):
            shortest[seen] = np.minimum(shortest[seen], value)
    return shortest


def summary(model: eqx.Module, space: ParameterSpace | None = None) -> str:
    """A readable table of a model's parameters, a line each: path, value, support.

    Of more than six numbers, and of matrices, it says how many there are and their range.

    Args:
        model: any module.
        space: adds a column with each parameter's prior in it, or "frozen".

    Example:
        >>> from latentgp import RBF
        >>> print(summary(RBF()))
        parameter    value  support
        lengthscale  1      positive
        variance     1      positive
    """
    rows = [("parameter", "value", "support")]
    rows += [(i.path, _shown(i.value), _describe(i.support)) for i in parameters(model).values()]
    if space is not None:
        named = zip(space.prior_paths, map(_name_of, space.priors), strict=True)
        states = dict.fromkeys(space.paths, "-") | dict(named)
        states = ["prior", *(states.get(path, "frozen") for path, *_ in rows[1:])]
        rows = [(*row, state) for row, state in zip(rows, states, strict=True)]
    return aligned(rows)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Cells of text as a table, a line a row."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _shown(value: Any) -> str:
    """A parameter's value on one line."""
    value = np.asarray(value)
    if value.ndim > 1 or value.size > _MOST_SHOWN:
        sizes = " x ".join(map(str, value.shape))
        return f"{sizes} values from {value.min():.4g} to {value.max():.4g}"
    line = np.array2string(value, precision=4, separator=", ", max_line_width=10**6)
    return line.rstrip(".")


def declared(field: dataclasses.Field) -> bool:
    """Whether a field was declared by `parameter`."""
    return _SUPPORT in field.metadata


def _parameter_fields(module: eqx.Module) -> list[dataclasses.Field]:
    return [field for field in dataclasses.fields(module) if declared(field)]


def _walk(node: Any, prefix: str, dimensions: tuple[int, ...] | None) -> Iterator[ParameterInfo]:
    if isinstance(node, Network):
        for path, value in node.by_path():
            yield ParameterInfo(prefix + path, value, constraints.real, "other", dimensions)
    elif isinstance(node, eqx.Module):
        if isinstance(node, SeesColumns):
            seen = node.dimensions
            dimensions = seen if dimensions is None else tuple(dimensions[d] for d in seen)
        for field in dataclasses.fields(node):
            value = getattr(node, field.name)
            path = f"{prefix}.{field.name}" if prefix else field.name
            if declared(field):
                meta = field.metadata
                yield ParameterInfo(path, value, meta[_SUPPORT], meta[_ROLE], dimensions)
            elif isinstance(node, MultipliesParts) and field.name == "parts":
                for index, part in enumerate(node.parts):
                    for info in _walk(part, f"{path}[{index}]", dimensions):
                        unitless = index > 0 and info.role == "variance"
                        yield info._replace(role="factor") if unitless else info
            elif isinstance(node, OwnParts) and field.name == "parts":
                for latent, part in enumerate(node.parts):
                    for info in _walk(part, f"{path}[{latent}]", dimensions):
                        yield info._replace(latent=latent)
            else:
                yield from _walk(value, path, dimensions)
    elif isinstance(node, tuple | list):
        for index, child in enumerate(node):
            yield from _walk(child, f"{prefix}[{index}]", dimensions)


def _is_under(path: str, beginning: str) -> bool:
    return path == beginning or path.startswith((f"{beginning}.", f"{beginning}["))


def _no_such_path(path: str, known: Mapping[str, Any]) -> str:
    names = ", ".join(known) or "none"
    return f'The model has no parameter "{path}"; its parameters are: {names}.'


def _describe(support: constraints.Constraint) -> str:
    if support is constraints.positive:
        return "positive"
    if support is constraints.real:
        return "real"
    return repr(support)


def _name_of(prior: Distribution) -> str:
    values = (np.asarray(getattr(prior, name)) for name in prior.arg_constraints)
    return f"{type(prior).__name__}({', '.join(np.array2string(v, precision=3) for v in values)})"
