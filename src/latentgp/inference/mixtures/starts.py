"""Where components start, and mixtures made of components that were found one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Key

from latentgp.errors import InputError
from latentgp.inference.mixtures.bound import MixtureBound
from latentgp.inference.mixtures.family import GaussianMixture
from latentgp.inference.mixtures.natural import profiled
from latentgp.inference.mixtures.search import Found
from latentgp.models import LatentGP
from latentgp.numerics.triangular import solve_lower
from latentgp.representations.latent_axis import vmap_latents
from latentgp.runtime.programs import Program
from latentgp.typing import Array

_NEAR = 0.5  # deviations by which components that are one and the same are moved apart
_SAME = 0.1  # nats between them


def started(
    method: Any, bound: MixtureBound, model: LatentGP, key: Key[Array, ""]
) -> list[GaussianMixture]:
    """Single components at their starts: the first at the prior mean, others at prior draws."""
    basis = _basis(bound, model)
    latents, size = model.likelihood.latent_size, basis.lower.shape[1]
    dtype = basis.lower.dtype
    white = jax.random.normal(key, (method.components, latents, size), dtype)
    white = white.at[0].set(0.0)
    if method.start_means is not None:
        white = _white_of(method, bound, model, basis, (method.components, size, latents))
    means, precision = white, jnp.ones((latents, size), dtype)
    if bound.coordinates == "values":
        means = jnp.stack([vmap_latents(lambda L, v: L @ v, basis.lower, own) for own in white])
        precision = jnp.broadcast_to(vmap_latents(jnp.diagonal, basis.precision), (latents, size))
    if method.covariance != "diagonal":
        precision = jnp.broadcast_to(basis.precision, (latents, size, size))
    precision = precision / method.start_variance
    return [GaussianMixture(jnp.zeros(1, dtype), m[None], precision[None]) for m in means]


def _white_of(
    method: Any, bound: MixtureBound, model: LatentGP, basis: Any, shape: tuple[int, ...]
) -> Float[Array, "K Q M"]:
    given = np.asarray(method.start_means, float)
    if given.shape != shape:
        raise InputError(
            f"BlackBoxVI.start_means must have shape {shape}, components, centres and latents, got "
            f"{given.shape}."
        )
    centres = bound.representation.whitening(model.kernel, bound.data.X).centres
    offset = jnp.broadcast_to(model.mean(centres), shape[1:])
    return jnp.stack([vmap_latents(solve_lower, basis.lower, (f - offset).T) for f in given])


@Program
def _basis(bound: MixtureBound, model: LatentGP) -> Any:
    return bound.basis(model)


def combined(parts: Sequence[GaussianMixture], weights: Any = None) -> GaussianMixture:
    """One mixture of single components, alike in weight unless weights are given."""
    joined = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)
    weights = jnp.ones(len(parts)) if weights is None else jnp.asarray(weights)
    return joined._replace(log_weights=jnp.log(weights / jnp.sum(weights)))


def several(
    bound: MixtureBound, found: Found, others: Sequence[GaussianMixture], key: Key[Array, ""]
) -> None:
    """Find further components from their starts, and mix all by their bounds.

    Each is first the best single Gaussian from its start; weights are their evidences. One that
    ends where another is would stay there, as the bound is the same along both: it is moved by half
    a deviation.
    """
    enough = jnp.asarray(1e-3)
    ends, bounds = [found.mixture], []
    for start in (found.mixture, *others):
        at = profiled(bound, jnp.asarray(found.vector), start, enough, jnp.asarray(200), key)
        found.steps += int(at.climb.steps)
        bounds.append(float(at.climb.at.terms.bound))
        ends.append(at.climb.at.mixture)
    ends = ends[1:]
    bounds = np.where(np.isfinite(bounds), bounds, -np.inf)
    for place in range(1, len(ends)):
        if any(_apart(ends[place], other) < _SAME for other in ends[:place]):
            ends[place] = _moved(ends[place], jax.random.fold_in(key, place))
            bounds[place] = bounds[0]
    weights = np.maximum(np.exp(bounds - np.max(bounds)), 1e-2)
    found.mixture = combined(ends, weights)


def _apart(one: GaussianMixture, other: GaussianMixture) -> float:
    """Squared distance of the means in the precision of the first, halved."""
    apart = (one.mean - other.mean)[0]
    if one.is_diagonal:
        return float(0.5 * jnp.sum(one.precision[0] * apart**2))
    return float(0.5 * jnp.einsum("qi,qij,qj->", apart, one.precision[0], apart))


def _moved(one: GaussianMixture, key: Key[Array, ""]) -> GaussianMixture:
    known = one.factorised()
    draw = known.draws(key, 1)[:, 0]
    size = draw[0].size
    return one._replace(mean=one.mean + _NEAR * (draw - one.mean) / np.sqrt(size))
