"""Arguments of functions of a field: its posterior, its quantity, and numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError, in_a_line, refuse
from latentgp.likelihoods import Likelihood
from latentgp.posteriors.posterior import Posterior
from latentgp.rows.arrays import as_rows


def posterior_of(given: Any) -> Posterior:
    """The posterior of a fit, or itself; InputError of anything else."""
    found = getattr(given, "posterior", given)
    said = f"posterior must be a fit or its posterior, got {in_a_line(repr(given))}."
    refuse({said: not isinstance(found, Posterior)})
    return found


def as_number(name: str, value: Any) -> float:
    """A finite number; InputError of anything else."""
    own: Any = None if np.iterable(value) else value
    fine = np.asarray(own).dtype.kind in "fiu" and np.isfinite(own)
    refuse({f"{name} must be a finite number, got {value!r}.": not fine})
    return float(own)


def as_numbers(name: str, values: Any) -> Float[np.ndarray, "values"]:
    """Finite numbers, or one, as an array; InputError of anything else."""
    values = values if np.iterable(values) else [values]
    return as_rows(name, values, len(values))


def check_quantity(of: str, likelihood: Likelihood) -> None:
    """InputError unless a quantity is known, and one number a row."""
    several = getattr(likelihood, "classes", 2) if likelihood.targets == "class" else 2
    if of not in ("response", "latent"):
        raise InputError(f'of must be "response" or "latent", got {of!r}.')
    if several > 2 or (of == "latent" and likelihood.latent_size > 1):
        what = "classes" if of == "response" else "latent functions"
        raise InputError(f"One number a row is needed, but {likelihood} has several {what}.")
