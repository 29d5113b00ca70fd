"""Support of a parameter under its prior: the intersection of both supports."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions.constraints import Constraint
from numpyro.distributions.transforms import ComposeTransform, biject_to

from latentgp.errors import InputError

_DRAWS = 101
_WRAPPERS = dist.ExpandedDistribution, dist.Independent, dist.MaskedDistribution


def support_under(prior: dist.Distribution, own: Constraint) -> Constraint:
    """The values that a parameter whose own support is `own` can have under a prior.

    Example:
        >>> from numpyro.distributions import Uniform, constraints
        >>> support_under(Uniform(-1.0, 2.0), constraints.positive)
        Interval(lower_bound=0.0, upper_bound=2.0)
    """
    support = _of_entries(prior.support)
    known, asked = _ends(own), _ends_of(prior)
    if asked is None:  # of vectors or matrices, or not known
        known_one = isinstance(support, Constraint) and support is not dist.constraints.dependent
        return support if known_one and type(support) is not type(own) else own
    if known is None or asked == (-np.inf, np.inf):
        return own
    lower, upper = np.maximum(known[0], asked[0]), np.minimum(known[1], asked[1])
    if np.array_equal(lower, known[0]) and np.array_equal(upper, known[1]):
        return own
    if np.all(np.isinf(upper)):
        return dist.constraints.greater_than(lower)
    if np.all(np.isinf(lower)):
        return dist.constraints.less_than(upper)
    return dist.constraints.interval(lower, upper)


def unconstrained(value: Any, support: Constraint) -> np.ndarray:
    """Value of a parameter on the real line, in double precision."""
    if support is dist.constraints.positive:  # by far the most, and nothing to compile
        return np.asarray(np.log(np.asarray(value, np.float64)))
    with jax.enable_x64(True):
        return np.asarray(biject_to(support).inv(jnp.asarray(value, jnp.float64)))


def check_prior(path: str, prior: Any, own: Constraint, value: np.ndarray) -> None:
    """Raise InputError unless a law can be the prior of a parameter with such a value."""
    if not isinstance(prior, dist.Distribution):
        raise InputError(
            f"The prior of {path} must be a distribution of NumPyro, such as "
            f"LogNormal(0.0, 1.0), or None for no prior, got {prior!r}."
        )
    name = type(prior).__name__
    if _of_entries(prior.support).is_discrete:
        raise InputError(
            f"The prior of {path} is discrete ({name}), but the parameter is not; give a "
            "continuous law."
        )
    try:
        fits = np.broadcast_shapes(prior.shape(), np.shape(value)) == np.shape(value)
    except ValueError:
        fits = False
    if not fits:
        raise InputError(
            f"The prior of {path} is of shape {prior.shape()}, but the parameter of shape "
            f"{np.shape(value)}; give a law of one number, or of as many."
        )
    ends = _ends(support_under(prior, own))
    if ends is not None and np.any(np.asarray(ends[0]) >= ends[1]):
        raise InputError(
            f"The support of the prior of {path} ({name}) holds no value that the parameter can "
            "have; give a law that does."
        )


def with_arrays(prior: dist.Distribution) -> dist.Distribution:
    """The same law with arrays where its parameters were given as lists, which NumPyro keeps."""
    values = {name: getattr(prior, name) for name in prior.arg_constraints}
    if not any(isinstance(value, list | tuple) for value in values.values()):
        return prior
    return type(prior)(**{name: np.asarray(value, np.float64) for name, value in values.items()})


def moved_inside(prior: dist.Distribution, support: Constraint, value: np.ndarray) -> np.ndarray:
    """A value inside a support: the given one where it is inside, else one typical of the prior.

    Where no draw of the prior is inside, it is the middle, or an end that is finite plus or less 1.
    """
    ends = _ends(support)
    if ends is None:
        if np.all(np.asarray(support(jnp.asarray(value)))):
            return value
        draws = np.asarray(prior.sample(jax.random.key(0), (_DRAWS,)))
        return np.broadcast_to(draws.mean(axis=0), value.shape)
    # Not on the edge, where unconstrained values are infinite.
    inside = (ends[0] < value) & (value < ends[1])
    if np.all(inside):
        return value
    draws = np.asarray(prior.sample(jax.random.key(0), (_DRAWS,)), np.float64)
    fits = (ends[0] < draws) & (draws < ends[1])
    with jax.enable_x64(True):
        middle = np.asarray(biject_to(support)(jnp.zeros(draws.shape[1:])))
    draws = np.where(np.any(fits, axis=0), np.where(fits, draws, np.nan), middle)
    return np.where(inside, value, np.nanmedian(draws, axis=0))


def _of_entries(support: Any) -> Any:
    """The support of one entry, where entries are independent."""
    while isinstance(support, dist.constraints.independent):
        support = support.base_constraint
    return support


def _ends_of(prior: dist.Distribution) -> tuple[Any, Any] | None:
    """Ends of the interval that a law is on; None where it is on something else."""
    while isinstance(prior, _WRAPPERS):
        prior = prior.base_dist
    ends = _ends(_of_entries(prior.support))
    if ends is None or type(prior) is not dist.TransformedDistribution:
        return ends
    # What NumPyro says of it is the codomain of its last transform alone.
    base = _ends_of(prior.base_dist)
    if base is None or prior.event_dim:
        return ends
    transform = ComposeTransform(prior.transforms)
    images = [np.asarray(transform(jnp.asarray(end))) for end in base]
    lower, upper = np.minimum(*images), np.maximum(*images)
    return np.fmax(lower, ends[0]), np.fmin(upper, ends[1])


def _ends(support: Any) -> tuple[Any, Any] | None:
    """Lower and upper end of an interval; None for what is none."""
    if isinstance(support, dist.constraints.interval):
        return np.asarray(support.lower_bound), np.asarray(support.upper_bound)
    if isinstance(support, dist.constraints.greater_than):
        return np.asarray(support.lower_bound), np.inf
    if isinstance(support, dist.constraints.less_than):
        return -np.inf, np.asarray(support.upper_bound)
    return (-np.inf, np.inf) if isinstance(support, type(dist.constraints.real)) else None
