"""Checks of what a model is given and its posterior asked, shared by all that take them."""

from typing import Any

import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError
from latentgp.likelihoods import Likelihood
from latentgp.rows.arrays import as_inputs, as_rows, as_targets
from latentgp.rows.data import Data, check_outputs, check_side_information


def check_data(likelihood: Likelihood, data: Data) -> None:
    """Raise InputError, saying what and where, if a likelihood could not have given these rows."""
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
            f"y has no number in column(s) {empty.tolist()}, counted from 0; leave them out."
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


def checked_levels(probabilities: Any) -> Float[np.ndarray, "K"]:
    """Probabilities in (0, 1)."""
    levels = np.atleast_1d(np.asarray(probabilities, np.float64))
    if np.any((levels <= 0) | (levels >= 1)):
        raise InputError(f"probabilities must be strictly between 0 and 1, got {levels.tolist()}.")
    return levels


def interval_levels(level: Any) -> list[float]:
    """Where the central interval of a probability ends, as probabilities."""
    if np.ndim(level):
        raise InputError(
            f"level must be one number, got {level}; ask once for each, or for quantiles, which "
            "take several probabilities."
        )
    if not 0 < level < 1:
        raise InputError(f"level must be strictly between 0 and 1, got {level}.")
    return [(1 - level) / 2, (1 + level) / 2]
