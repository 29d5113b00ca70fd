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
_IMPROBABLE = 7.0  # nats below the best, where a component would weigh 1e-3
TRIED, TRIED_FOR_ONE = 8, 4  # climbs besides that from the prior mean, of several and of one
_MOST_STEPS = 200  # of each

_End = tuple[GaussianMixture, float]  # of a climb, and the bound there


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
        means = jnp.stack([_values(basis.lower, own) for own in white])
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


def _values(lower: Float[Array, "#Q M M"], white: Float[Array, "Q M"]) -> Float[Array, "Q M"]:
    return vmap_latents(lambda L, v: L @ v, lower, white)


@Program
def _basis(bound: MixtureBound, model: LatentGP) -> Any:
    return bound.basis(model)


def combined(parts: Sequence[GaussianMixture], weights: Any = None) -> GaussianMixture:
    """One mixture of single components, alike in weight unless weights are given."""
    joined = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)
    weights = jnp.ones(len(parts)) if weights is None else jnp.asarray(weights)
    return joined._replace(log_weights=jnp.log(weights / jnp.sum(weights)))


def tries(
    bound: MixtureBound, model: LatentGP, start: GaussianMixture, number: int, key: Key[Array, ""]
) -> list[GaussianMixture]:
    """Further places to climb from, prior draws and their opposites; none where one is enough.

    The bound of one Gaussian has a single maximum if log p(y | f) is concave (Challis & Barber
    2013). Else a start at the prior mean may end at a saddle, between modes that are mirror images.

    Args:
        bound: the bound.
        model: at the hyper-parameters of the climb.
        start: whose precision they have.
        number: of them, even.
        key: random key.
    """
    likelihood = model.likelihood
    if likelihood.is_jointly_log_concave or (
        likelihood.is_log_concave and likelihood.latent_size == 1
    ):
        return []
    lower = _basis(bound, model).lower
    shape = (number // 2, *start.mean.shape[1:])
    half = jax.random.normal(key, shape, start.mean.dtype)
    means = jnp.concatenate([half, -half])
    if bound.coordinates == "values":
        means = jnp.stack([_values(lower, own) for own in means])
    return [start._replace(mean=mean[None]) for mean in means]


def best(
    bound: MixtureBound, found: Found, others: Sequence[GaussianMixture], key: Key[Array, ""]
) -> None:
    """The start, or the end of a climb from another one that is better than its own."""
    if others:
        ends = _ends(bound, found, (found.mixture, *others), key)
        found.mixture = max(ends, key=lambda end: end[1])[0]


def several(
    bound: MixtureBound,
    found: Found,
    others: Sequence[GaussianMixture],
    key: Key[Array, ""],
    number: int | None = None,
) -> None:
    """Find further components from their starts, and mix the best by their bounds.

    Each is first the best single Gaussian from its start, or from the mirror image of one of the
    best ends about the prior mean; weights are their evidences. Ends that are alike count once, and
    those too improbable to matter are left out. If too few are left, some are taken again, moved by
    half a deviation: where they are, the bound would be the same along both.

    Args:
        bound: the bound.
        found: where the first starts, and what is brought up to date.
        others: starts of further ones.
        key: random key.
        number: of components; that of the starts if None.
    """
    number = number or 1 + len(others)
    ends = _ends(bound, found, (found.mixture, *others), key)
    if others:
        opposites = [end._replace(mean=-end.mean) for end, _ in _distinct(ends, number)]
        ends = [*ends, *_ends(bound, found, opposites, key)]
    kept = _distinct(ends, number)
    for place in range(number - len(kept)):
        end, value = kept[place]
        kept.append((_moved(end, jax.random.fold_in(key, place)), value))
    values = np.array([value for _, value in kept])
    found.mixture = combined([end for end, _ in kept], np.exp(values - values[0]))


def _ends(
    bound: MixtureBound, found: Found, starts: Sequence[GaussianMixture], key: Key[Array, ""]
) -> list[_End]:
    """Ends of climbs of single Gaussians with their bounds."""
    enough, most = jnp.asarray(1e-3), jnp.asarray(_MOST_STEPS)
    ends = []
    for start in starts:
        at = profiled(bound, jnp.asarray(found.vector), start, enough, most, key)
        found.steps += int(at.climb.steps)
        value = float(at.climb.at.terms.bound)
        ends.append((at.climb.at.mixture, value if np.isfinite(value) else -np.inf))
    return ends


def _distinct(ends: list[_End], number: int) -> list[_End]:
    """So many ends at most, the highest first, that differ from each other and may matter."""
    kept: list[_End] = []
    for end, value in sorted(ends, key=lambda end: -end[1]):
        matters = not kept or value > kept[0][1] - _IMPROBABLE
        if matters and all(_apart(end, one) >= _SAME for one, _ in kept):
            kept.append((end, value))
    return kept[:number]


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
