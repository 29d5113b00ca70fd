"""Where each row alone has its latents: starts for log densities that are not concave."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from latentgp.likelihoods.base import Likelihood, Marginals, SideInformation
from latentgp.numerics.quadrature import latents_at, training_nodes
from latentgp.runtime.row_scan import scan_rows
from latentgp.typing import Array

_NARROW = 1e-2  # the variance around a mode, in those of the law that it is sought under
_PREFERRED = 1e-6  # nats by which the larger of two equal modes is preferred


def is_concave(likelihood: Likelihood) -> bool:
    """Whether log p(y | f) is concave in the latents of a row together: ascents have one end."""
    alone = likelihood.latent_size == 1 and likelihood.is_log_concave
    return alone or likelihood.is_jointly_log_concave


def row_modes(
    likelihood: Likelihood, y: Float[Array, "N *P"], marginals: Marginals, side: SideInformation
) -> Marginals:
    """Narrow laws around each row's likeliest latents, among the nodes of bounds.

    Of modes that are alike, as f and -f are of what is even in f, all rows take the same one: that
    of the larger first latent, then the second one. Marginals are laws of the latents without the
    row's own likelihood.
    """
    nodes = training_nodes(likelihood.latent_size)
    points = nodes[0]
    preference = _PREFERRED * points @ 0.5 ** np.arange(likelihood.latent_size)
    prior = preference - 0.5 * np.sum(points**2, axis=1)

    def chunk(carry: None, part: Any, real: Bool[Array, "B"]) -> tuple[None, Array]:
        y, (mean, variance), side = part
        f = latents_at(mean, variance, nodes)[0]
        values = likelihood._along_nodes(likelihood.log_prob, y, side)(f)
        worth = values + jnp.asarray(prior, f.dtype)
        highest = jnp.argmax(jnp.where(jnp.isfinite(worth), worth, -jnp.inf), axis=1)
        return carry, jnp.take_along_axis(f, highest[:, None, None], axis=1)[:, 0]

    parts = y, marginals, dict(side)
    mode = scan_rows(chunk, None, parts, columns=points.size, in_cache=True)[1]
    return Marginals(mode, _NARROW * marginals.variance)
