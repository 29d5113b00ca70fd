"""Laws of the latents at rows, from the sites that the other rows have without them.

A cavity holds the other rows' sites, which moves the answer by up to some tenths of a nat where
rows are few and tell much. Here these sites converge anew, from where they were, at the same
hyper-parameters: what a fit without the row would say.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from latentgp.likelihoods.base import AnyMarginals
from latentgp.models import LatentGP
from latentgp.representations.base import LatentPosterior
from latentgp.rows.data import Data, padded_size
from latentgp.runtime.mesh import number_of_shards
from latentgp.site_inference.search.algorithm import SiteInference, prior_mean
from latentgp.site_inference.search.profiled_bound import converge
from latentgp.sites.coupled import Sites

_WORK = 3e10  # multiplications in all: a second or two
_UPDATES = 15  # of the sites, about, from where they were
_ALIKE = 1e-4  # in deviations: a posterior of these sites is the one that is asked about


def affordable(data: Data, latents: int, components: int = 1) -> int:
    """Number of rows that can be left out by converging anew."""
    each = 2.0 * _UPDATES * padded_size(data.size) ** 3 * latents * components
    return int(min(_WORK // each, data.size))


def without_rows(
    algorithm: SiteInference,
    model: LatentGP,
    latent: LatentPosterior,
    data: Data,
    sites: Sites,
    chosen: Int[np.ndarray, "chosen"],
) -> AnyMarginals | None:
    """Law of f at each chosen row, without one copy of it, shape (chosen, Q).

    `sites` are of the merged rows as functions of f, with row weights; hyper-parameters stay. None
    where the sites do not give the posterior again, or updates do not converge.
    """
    given = data.X, data.weights, model.kernel
    ready = algorithm.representation.initialise(*given, jax.random.key(0))
    rows = data.padded(number_of_shards()).to_device()
    ready = ready.for_rows(rows.X, rows.weights, model.kernel)
    algorithm = dataclasses.replace(algorithm.until_converged(), representation=ready)
    held = [np.zeros((rows.size, *np.shape(part)[1:])) for part in sites]
    for whole, part in zip(held, sites, strict=True):
        whole[: data.size] = part
    if not _same(algorithm, model, latent, rows, type(sites)(*map(jnp.asarray, held)), data):
        return None
    weights = np.asarray(rows.weights)
    found = []
    for n in chosen:
        left = weights.copy()
        left[n] -= min(1.0, weights[n])
        own = [part.copy() for part in held]
        for part in own:
            part[n] *= left[n] / weights[n]
        others = rows.reweighted(left).to_device()
        start = type(sites)(*map(jnp.asarray, own))
        converged = converge(algorithm, model, others, start)
        if not np.isfinite(converged.bound):
            return None
        at = data.select(np.array([n]))
        marginals = converged.posterior.marginals(at.X)
        found.append(marginals.shifted(prior_mean(model, at)))
    together: Any = map(np.concatenate, zip(*found, strict=True))
    return type(found[0])(*together)


def _same(
    algorithm: SiteInference,
    model: LatentGP,
    latent: LatentPosterior,
    rows: Data,
    sites: Sites,
    data: Data,
) -> bool:
    """Whether these sites give this posterior."""
    again = algorithm.resume(model, rows, sites).posterior.marginals(data.X)
    before = latent.marginals(data.X)
    spread = before.variance
    return bool(
        np.all(np.abs(again.mean - before.mean) <= _ALIKE * np.sqrt(spread) + 1e-9)
        and np.all(np.abs(again.variance - spread) <= _ALIKE * spread + 1e-9)
    )
