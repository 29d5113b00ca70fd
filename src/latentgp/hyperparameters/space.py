"""Learned hyper-parameters as one vector of unconstrained values, and their log prior."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Key
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.transforms import AffineTransform, Transform, biject_to

from latentgp.errors import InputError
from latentgp.hyperparameters.base import (
    ParameterInfo,
    _is_under,
    _no_such_path,
    _shown,
    entry_labels,
    parameters,
    replace_unchecked,
)
from latentgp.hyperparameters.blocks import block_axes, blocks_given
from latentgp.hyperparameters.supports import (
    check_prior,
    moved_inside,
    support_under,
    unconstrained,
    with_arrays,
)
from latentgp.typing import Array, HyperVector

_PRIOR_DRAWS = 4096


class ParameterSpace(eqx.Module):
    """The free parameters of a model as one unconstrained vector.

    Those at paths (or below their beginnings, such as `"kernel"`) that are frozen are kept; those
    on the real line may have `units` that the vector has them in. `known` is the table of the
    parameters, where it has been made. InputError of a path that names no parameter, or a prior
    that is no distribution of NumPyro, or none that the parameter can have.

    Example:
        >>> from latentgp import RBF
        >>> space = ParameterSpace(RBF(lengthscale=2.0), frozen=("variance",))
        >>> space.to_vector().round(3)
        array([0.693])
    """

    model: Any
    _priors: tuple["_InOrder", ...]
    _narrowed: dict[str, constraints.Constraint]
    _units: dict[str, Float[Any, ""]]
    prior_paths: tuple[str, ...] = eqx.field(static=True)
    paths: tuple[str, ...] = eqx.field(static=True)

    def __init__(
        self,
        model: eqx.Module,
        *,
        frozen: Sequence[str] = (),
        priors: Mapping[str, Distribution | None] | None = None,
        units: Mapping[str, float] | None = None,
        known: dict[str, ParameterInfo] | None = None,
    ):
        wanted = dict(priors or {})
        known = parameters(model) if known is None else known
        vars(self)["known"] = known  # where the cached property looks
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
        real = (p for p, support in self.supports.items() if support is constraints.real)
        self._units = {p: np.asarray(unit) for p in real if (unit := (units or {}).get(p))}

    @cached_property
    def known(self) -> dict[str, ParameterInfo]:
        """All parameters of the model by path."""
        return parameters(self.model)

    @property
    def priors(self) -> tuple[Distribution, ...]:
        """One for each of `prior_paths`."""
        return tuple(prior.distribution for prior in self._priors)

    @property
    def prior_of(self) -> dict[str, Distribution | None]:
        """The prior of each free parameter by path, None of one without."""
        return dict.fromkeys(self.paths) | dict(zip(self.prior_paths, self.priors, strict=True))

    @property
    def supports(self) -> dict[str, constraints.Constraint]:
        """Support of each free parameter, its prior considered, by path."""
        return {path: self._narrowed.get(path, self.known[path].support) for path in self.paths}

    @property
    def narrowed(self) -> tuple[str, ...]:
        """Paths of free parameters whose support is smaller for their prior."""
        return tuple(self._narrowed)

    def inside(self) -> tuple[Any, tuple[str, ...]]:
        """Model with all values inside the supports of their priors; changes in words."""
        supports, values, said = self.supports, {}, []
        for path, prior in zip(self.prior_paths, self.priors, strict=True):
            value = np.asarray(self.known[path].value)
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
        """Length of the unconstrained vector."""
        return sum(math.prod(shape) for _, _, shape in self._layout())

    def to_vector(self, model: eqx.Module | None = None) -> np.ndarray:
        """The free parameters of `model` (default: the one given) as a vector, shape (H,)."""
        known = self.known if model is None else parameters(model)
        parts = [np.zeros(0)]
        for path, support in self.supports.items():
            value = unconstrained(known[path].value, support) / self._units.get(path, 1.0)
            parts.append(np.ravel(value))
        return np.concatenate(parts)

    def to_model(self, vector: Float[Array, "H"]) -> Any:
        """The model whose free parameters are those of the unconstrained vector."""
        values = {path: value for path, value, _, _ in self._constrained(vector)}
        return replace_unchecked(self.model, values)

    def log_prior(self, vector: Float[Array, "H"]) -> Float[Array, ""]:
        """Log density of the priors at the unconstrained vector, in nats.

        With the Jacobian; the mode of a log-normal prior is then its median.
        """
        prior_of = dict(zip(self.prior_paths, self.priors, strict=True))
        total = jnp.zeros((), vector.dtype)
        for path, value, raw, transform in self._constrained(vector):
            if path in prior_of:
                total = total + jnp.sum(prior_of[path].log_prob(value))
                total = total + jnp.sum(transform.log_abs_det_jacobian(raw, value))
        return total

    def prior_draws(
        self, key: Key[Array, ""], number: int = _PRIOR_DRAWS
    ) -> dict[str, Float[np.ndarray, "S ..."]]:
        """Draws of each parameter from its prior, by path; none of a prior without a sampler."""
        drawn = _prior_draws(self, key, number)
        return {path: np.asarray(values) for path, values in drawn.items()}

    def prior_vectors(
        self, key: Key[Array, ""], number: int = _PRIOR_DRAWS
    ) -> Float[np.ndarray, "S H"]:
        """Draws of the unconstrained vector from the priors; NaN where there are none."""
        drawn, columns = self.prior_draws(key, number), [np.zeros((number, 0))]
        for path, transform, shape in self._layout():
            nothing = np.full((number, *shape), np.nan)
            values = transform.inv(drawn[path]) if path in drawn else nothing
            columns.append(np.reshape(values, (number, -1)))
        return np.concatenate(columns, axis=1)

    def blocks(self) -> Bool[np.ndarray, "blocks H"]:
        """Entries of the vector that each block has, of the priors that can be drawn from.

        A block is what a prior draws at once: an entry, or an event of a joint law.
        """
        rows, start, prior_of = [np.zeros((0, self.size), bool)], 0, self.prior_of
        for path, transform, shape in self._layout():
            stop, prior = start + math.prod(shape), prior_of[path]
            if prior is not None and _can_be_drawn(prior, self.known[path].value):
                axes, joint = block_axes(prior), transform.domain.event_dim
                axes = axes if joint <= len(prior.event_shape) else joint
                number = math.prod(shape[: len(shape) - axes])
                held = np.zeros((number, self.size), bool)
                held[:, start:stop] = np.repeat(np.eye(number), (stop - start) // number, axis=1)
                rows.append(held)
            start = stop
        return np.concatenate(rows)

    def drawn_anew(self, vector: HyperVector, key: Key[Array, ""]) -> HyperVector:
        """The unconstrained vector with every block drawn from its prior given the other blocks.

        Any one of the new blocks beside the old others has the prior as its law, if the old had.
        """
        prior_of, columns = self.prior_of, [vector[:0]]
        for number, (path, value, raw, transform) in enumerate(self._constrained(vector)):
            prior = prior_of[path]
            if prior is not None and _can_be_drawn(prior, value):
                raw = transform.inv(blocks_given(prior, value, jax.random.fold_in(key, number)))
            columns.append(jnp.ravel(raw).astype(vector.dtype))
        return jnp.concatenate(columns)

    def entries(self) -> list[tuple[str, ParameterInfo]]:
        """Label and parameter of every entry of the vector."""
        return [
            (label, self.known[path])
            for path, _, shape in self._layout()
            for label in entry_labels(path, shape).values()
        ]

    def _layout(self) -> Iterator[tuple[str, Transform, tuple[int, ...]]]:
        for path, support in self.supports.items():
            unit = self._units.get(path)
            transform = biject_to(support) if unit is None else AffineTransform(0.0, unit)
            yield path, transform, tuple(transform.inverse_shape(np.shape(self.known[path].value)))

    def _constrained(self, vector: HyperVector) -> Iterator[tuple[str, Array, Array, Transform]]:
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


def _can_be_drawn(prior: Distribution, value: Any) -> bool:
    try:
        jax.eval_shape(lambda key: blocks_given(prior, value, key), jax.random.key(0))
    except NotImplementedError:
        return False
    return True


@partial(jax.jit, static_argnames="number")
def _prior_draws(
    space: ParameterSpace, key: Key[Array, ""], number: int
) -> dict[str, Float[Array, "S ..."]]:
    drawn = {}
    keys = jax.random.split(key, len(space.prior_paths) + 1)
    for path, prior, own in zip(space.prior_paths, space.priors, keys, strict=False):
        shape = np.shape(space.known[path].value)
        each = shape[: len(shape) - len(prior.batch_shape) - len(prior.event_shape)]
        try:
            drawn[path] = prior.sample(own, (number, *each))
        except NotImplementedError:
            continue
    return drawn
