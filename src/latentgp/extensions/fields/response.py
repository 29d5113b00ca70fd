"""Quantities of a field: the latent function, and the expectation of y given it."""

from __future__ import annotations

from typing import Any

from latentgp.errors import InputError
from latentgp.likelihoods import Likelihood
from latentgp.posteriors.posterior import Posterior


def posterior_of(given: Any) -> Posterior:
    """The posterior of a fit, or itself."""
    return getattr(given, "posterior", given)


def check_quantity(of: str, likelihood: Likelihood) -> None:
    """InputError unless a quantity is known, and one number a row."""
    several = getattr(likelihood, "classes", 2) if likelihood.targets == "class" else 2
    if of not in ("response", "latent"):
        raise InputError(f'of must be "response" or "latent", got {of!r}.')
    if several > 2 or (of == "latent" and likelihood.latent_size > 1):
        what = "classes" if of == "response" else "latent functions"
        raise InputError(f"One number a row is needed, but {likelihood} has several {what}.")
