"""Checks of data and of the arguments of predictions."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Key

from latentgp.errors import InputError, refuse
from latentgp.likelihoods import Likelihood
from latentgp.models import LatentGP
from latentgp.rows import RowSource
from latentgp.rows.arrays import as_inputs, as_rows, as_targets, check_not_traced
from latentgp.rows.data import Data, MergedRows, check_outputs, check_side_information
from latentgp.typing import Array


def check_data(likelihood: Likelihood, data: Data) -> None:
    """Raise InputError if the likelihood cannot have generated these rows."""
    side, name = data.side_information, type(likelihood).__name__
    check_side_information(side, likelihood.side_information, name)
    likelihood.check_side_information(side)
    check_outputs(data.y, likelihood.output_shape, name)
    likelihood.check_targets(data.y)
    likelihood.check_rows(data.y, side)


def check_outputs_seen(data: Data) -> None:
    """Raise InputError if an output has no target at all."""
    empty = np.flatnonzero(np.all(np.isnan(data.y), axis=0))
    if empty.size:
        raise InputError(
            f"y is missing in all rows of column(s) {empty.tolist()}, from 0; leave them out."
        )


def checked_inputs(X: Any, columns: int) -> Float[np.ndarray, "N D"]:
    """Inputs with the columns of the fit; an empty table is none too few."""
    if np.shape(X)[:1] == (0,):
        return np.zeros((0, columns))
    X = as_inputs(X)
    if X.shape[1] != columns:
        raise InputError(
            f"X has {X.shape[1]} columns but the model was fitted to {columns}; "
            "give the same columns as for the fit."
        )
    return X


def checked_side(
    likelihood: Likelihood, given: dict[str, Any], size: int
) -> dict[str, Float[np.ndarray, "N"]]:
    """Side information that the likelihood reads, one number a row."""
    check_side_information(given, likelihood.side_information, type(likelihood).__name__)
    side = {name: as_rows(name, values, size) for name, values in given.items()}
    likelihood.check_side_information(side)
    return side


def checked_targets(likelihood: Likelihood, y: Any, size: int) -> Float[np.ndarray, "N *P"]:
    """Targets that the likelihood could give."""
    y = as_targets(y, size)
    check_outputs(y, likelihood.output_shape, type(likelihood).__name__)
    likelihood.check_targets(y)
    return y


def checked_levels(probabilities: Any) -> Float[np.ndarray, "levels"]:
    """Probabilities in (0, 1)."""
    levels = np.atleast_1d(np.asarray(probabilities, np.float64))
    if np.any((levels <= 0) | (levels >= 1)):
        raise InputError(f"probabilities must be strictly between 0 and 1, got {levels.tolist()}.")
    return levels


def interval_levels(level: Any) -> list[float]:
    """Probabilities at the ends of the central interval of a level."""
    if np.ndim(level):
        raise InputError(
            f"level must be one number, got {level}; ask once for each, or for quantiles, which "
            "take several probabilities."
        )
    if np.asarray(level).dtype.kind not in "fiu" or not 0 < level < 1:
        raise InputError(f"level must be strictly between 0 and 1, got {level}.")
    return [(1 - level) / 2, (1 + level) / 2]


def check_arguments(model: Any, data: Any, priors: Any) -> None:
    """Raise unless arguments are of the kinds that they should be."""
    if not isinstance(model, LatentGP):
        raise InputError(f"model must be a LatentGP(kernel, likelihood), got {_kind(model)}.")
    check_not_traced("model", model)
    if not isinstance(data, Data | MergedRows | RowSource):
        raise InputError(f"data must be Data(X, y), or FileRows(...), got {_kind(data)}.")
    if not (priors is None or priors == "weak" or isinstance(priors, Mapping)):
        raise InputError(
            f'priors must be "weak", None, or a mapping of paths to distributions, got {priors!r}.'
        )


def check_bounds(options: Any) -> None:
    """Raise InputError where an option is below the smallest value that its class names."""
    for name, (least, advice) in options.least.items():
        value = getattr(options, name)
        if value is not None and not value >= least:
            raise InputError(f"{name} must be at least {least}, got {value}; {advice}.")


def _kind(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def as_key(key: Any) -> Key[Array, ""]:
    """A random key of the usual generator from any key of JAX's; InputError of anything else."""
    dtype, shape = getattr(key, "dtype", None), getattr(key, "shape", None)
    if dtype is not None and shape == () and jnp.issubdtype(dtype, jax.dtypes.prng_key):
        data = jax.random.key_data(key)
        if len(data) == 2:
            return key
        key = jax.random.wrap_key_data(data[:2])  # of another generator: it seeds the usual one
        return functools.reduce(jax.random.fold_in, data[2:], key)
    if dtype == np.uint32 and shape == (2,):
        return jax.random.wrap_key_data(jnp.asarray(key))
    raise InputError(f"key must be a random key such as jax.random.key(0), got {key!r}.")


def is_whole(value: Any, least: int) -> bool:
    """Whether a value is one whole number, no less than another."""
    return np.isscalar(value) and np.asarray(value).dtype.kind in "iu" and value >= least  # pyright: ignore


def check_count(name: str, value: Any, least: int) -> None:
    """Raise InputError unless a value, by its name, is a whole number from `least`."""
    said = f"{name} must be a whole number from {least}, got {value!r}."
    refuse({said: not is_whole(value, least)})


def key_of_draws(key: Any, number: Any) -> Key[Array, ""]:
    """The random key of so many draws, as `as_key`; InputError too of fewer than one."""
    check_count("number", number, 1)
    return as_key(key)


def check_streaming_prior(remembered: Any, likelihood: Likelihood) -> None:
    """Raise unless a summary of data seen so far can be about the latent functions."""
    latents, wanted = remembered.latents, likelihood.latent_size
    if latents != wanted:
        raise InputError(
            f"The stored summary has {latents} latent function(s), but the likelihood has "
            f"{wanted}; continue with the posterior's own model."
        )
    if not np.isfinite(remembered.constant):
        raise InputError(
            "The stored summary has no log evidence, because the posterior belongs to an "
            "unfinished search; use the posterior of the finished fit."
        )
