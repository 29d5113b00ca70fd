"""The log evidence of Gaussian sites, with its derivatives by one more pass over the rows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from latentgp.kernels import LatentKernel
from latentgp.representations.base import LatentPosterior, Representation
from latentgp.runtime.x64 import usual_settings
from latentgp.sites.coupled import Sites
from latentgp.typing import Inputs, Scalar


def log_evidence(
    representation: Representation, kernel: LatentKernel, X: Inputs, sites: Sites
) -> Scalar:
    """Log of the integral of prior times sites, in nats, the sites' own constants included.

    Differentiable in the kernel, the sites and the representation (inducing points) by one more
    pass over the rows. X is held fixed: its derivative is not computed and reads zero.
    """
    return log_evidence_and_posterior(representation, kernel, X, sites)[0]


def log_evidence_and_posterior(
    representation: Representation, kernel: LatentKernel, X: Inputs, sites: Sites
) -> tuple[Scalar, LatentPosterior]:
    """The log evidence as `log_evidence` gives it, and the posterior, which has no derivative."""
    # Stopped before, so that nothing in there is ever differentiated.
    held: Any = jax.lax.stop_gradient((representation, kernel, X, sites))
    posterior = held[0].condition(*held[1:])
    return _log_evidence_of(posterior, representation, kernel, X, sites), posterior


@jax.custom_vjp
def _log_evidence_of(posterior, representation, kernel, X, sites):
    return posterior.log_evidence + jnp.sum(sites.log_constant)


def _forward(posterior, representation, kernel, X, sites):
    value = _log_evidence_of(posterior, representation, kernel, X, sites)
    return value, (posterior, representation, X, sites)


@usual_settings()
def _backward(residuals, cotangent):
    posterior, representation, X, sites = residuals
    pullback = representation.pull_back(posterior, X, sites)
    in_sites = type(sites).derivatives(pullback.marginals, sites.log_constant)
    kernel, places, in_sites = jax.tree.map(
        lambda leaf: cotangent * leaf, (pullback.kernel, pullback.representation, in_sites)
    )
    return None, places, kernel, jnp.zeros_like(X), in_sites


_log_evidence_of.defvjp(_forward, _backward)
