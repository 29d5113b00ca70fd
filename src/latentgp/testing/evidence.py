"""Log evidences against brute force, on rows so few that the latents can be integrated out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from latentgp.models import LatentGP
from latentgp.numerics.quadrature import hermite_nodes, sobol_nodes
from latentgp.representations.latent_axis import latent_grams
from latentgp.rows.data import Data
from latentgp.runtime.x64 import double_precision
from latentgp.site_inference.methods.base import SiteMethod
from latentgp.site_inference.search.algorithm import prior_mean
from latentgp.testing.methods import converged
from latentgp.testing.numerics import require

_NODES = {1: 400, 2: 120, 3: 60, 4: 24}
_SOBOL_NODES = 1 << 17


@double_precision
def check_evidence(
    method: SiteMethod, model: LatentGP, data: Data, *, closeness: float, tolerance: float = 1e-4
) -> None:
    """Check a method's log evidence against that by quadrature over all latents of all rows.

    Args:
        method: what is checked.
        model: one that it can be used on.
        data: so few rows that there are no more than some six latents in all.
        closeness: how far the evidence may be from the true one, in nats.
        tolerance: by which a lower bound may be above, in nats: the error of the quadrature.

    Raises:
        AssertionError: a lower bound is above the true evidence, or any evidence far from it.
    """
    name = f"{type(method).__name__} of {type(model.likelihood).__name__}"
    truth = log_evidence_by_quadrature(model, data)
    own = float(converged(method, model, data).bound)
    says = f"{name}: the log evidence is {own:.6f} where quadrature gives {truth:.6f}"
    if method.algorithm(model).evidence_kind(model) == "lower bound":
        require(own <= truth + tolerance, f"{says}, so it is no lower bound.")
    require(abs(own - truth) <= closeness, f"{says}, further than {closeness:g}.")


@double_precision
def log_evidence_by_quadrature(model: LatentGP, data: Data) -> float:
    """Log of the integral of p(y | f) p(f), in nats.

    Products of Gauss-Hermite nodes for up to four latents in all, quasi-Monte Carlo for more, and
    where the likelihood has kinks or steps.
    """
    rows, latents = data.size, model.likelihood.latent_size
    numbers = rows * latents
    if numbers in _NODES and model.likelihood.is_smooth:
        nodes, weights = hermite_nodes(numbers, _NODES[numbers])
    else:
        nodes, weights = sobol_nodes(numbers, _SOBOL_NODES)
    white = nodes.reshape(-1, rows, latents)
    grams = np.asarray(latent_grams(model.kernel, data.X, data.X))
    roots = np.linalg.cholesky(np.broadcast_to(grams, (latents, rows, rows)))
    f = np.einsum("qnm,smq->snq", roots, white) + np.asarray(prior_mean(model, data))
    over_rows = jax.vmap(model.likelihood.log_prob)
    log_prob = jax.jit(jax.vmap(lambda f: over_rows(data.y, f, data.side_information)))(f)
    counts = 1.0 if data.weights is None else data.weights
    return float(logsumexp(jnp.sum(counts * log_prob, axis=1), b=weights))
