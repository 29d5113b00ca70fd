"""The expectation of y given the latent functions, at values of these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
from jaxtyping import Float

from latentgp.errors import InputError
from latentgp.likelihoods import Likelihood
from latentgp.posteriors.posterior import Posterior
from latentgp.typing import Array, Latents


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


def expected(likelihood: Likelihood, f: Latents, side: Mapping[str, Any]) -> Float[Array, "*P"]:
    """The expectation of one target; of two classes the probability of the second."""
    if likelihood.targets == "class":
        return likelihood.class_probabilities(f, side)[1]
    return likelihood.conditional_moments(f, side)[0]


@jax.jit
def expectations(
    likelihood: Likelihood, f: Float[Array, "S N Q"], side: Mapping[str, Any]
) -> Float[Array, "S N *P"]:
    """The same at draws of the latent functions at rows."""
    rows = jax.vmap(expected, (None, 0, 0))
    return jax.vmap(rows, (None, 0, None))(likelihood, f, dict(side))
