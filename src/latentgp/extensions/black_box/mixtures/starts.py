"""Where components start, and mixtures made of components that were found one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentgp.extensions.black_box.mixtures.bound import MixtureBound
from latentgp.extensions.black_box.mixtures.family import GaussianMixture
from latentgp.extensions.black_box.mixtures.natural import profiled
from latentgp.extensions.black_box.mixtures.own_points import whitening_of
from latentgp.extensions.black_box.mixtures.search import SearchState
from latentgp.likelihoods.base import Marginals
from latentgp.likelihoods.row_modes import is_concave, row_modes
from latentgp.models import LatentGP
from latentgp.numerics.cholesky import cholesky
from latentgp.numerics.triangular import solve_lower
from latentgp.representations.latent_axis import latent_diagonals, vmap_latents
from latentgp.rows.arrays import check_shape
from latentgp.runtime.programs import Program
from latentgp.typing import Array, PerRow, RandomKey

_NEAR = 0.5  # deviations by which components that are one and the same are moved apart
_SAME = 0.1  # nats between them
_IMPROBABLE = 7.0  # nats below the best, where a component would weigh 1e-3
_SPARE = 4
_MOST_STEPS = 200  # of an ascent

_End = tuple[float, GaussianMixture]  # of an ascent: bound and mixture


def started(
    method: Any, bound: MixtureBound, model: LatentGP, origin: Int[np.ndarray, "N"], key: RandomKey
) -> list[GaussianMixture]:
    """Single components at their starts: the prior mean, and draws of the prior.

    Every draw comes with its opposite. There are four more than components where log p(y | f) is
    not concave, and one where each row alone has its mode: the prior mean can be a saddle there,
    from which no step leads away, and an ascent from a draw ends in the next mode. `origin` is the
    merged row of each given one, -1 for one that is gone.
    """
    lower, prior_precision = _prior(bound, model)
    latents, size, dtype = model.likelihood.latent_size, lower.shape[1], lower.dtype
    number = method.components
    spare = 0 if is_concave(model.likelihood) else _SPARE
    draws = jax.random.normal(key, ((number + spare) // 2, latents, size), dtype)
    both = jnp.stack([draws, -draws], axis=1).reshape(-1, latents, size)
    white = jnp.concatenate([jnp.zeros((1, latents, size), dtype), both])[: number + spare]
    if method.start_means is not None:
        white = _white_of(method, bound, model, lower, origin)
    means, precision = white, jnp.ones((latents, size), dtype)
    if bound.coordinates == "values":
        means = jnp.stack([vmap_latents(lambda L, v: L @ v, lower, own) for own in white])
        precision = jnp.broadcast_to(vmap_latents(jnp.diagonal, prior_precision), (latents, size))
    if method.covariance != "diagonal":
        precision = jnp.broadcast_to(prior_precision, (latents, size, size))
    precision = precision / method.start_variance
    parts = [GaussianMixture(jnp.zeros(1, dtype), m[None], precision[None]) for m in means]
    data = bound.data
    likely = model.likelihood.latent_start(data.y, dict(data.side_information))
    if method.start_means is not None:
        return parts
    usual = parts[0]
    if likely is not None:
        parts[0] = _opened(bound, model, usual, jnp.asarray(likely), None)
    if spare:
        parts.append(_opened(bound, model, usual, None, _modes(bound, model)))
    return parts


@Program
def _modes(bound: MixtureBound, model: LatentGP) -> Marginals:
    """Where each row alone has its latents under the prior."""
    data, offset = bound.data, bound.basis(model).offset
    variance = jnp.broadcast_to(latent_diagonals(model.kernel, data.X).T, offset.shape)
    side = dict(data.side_information)
    return row_modes(model.likelihood, data.y, Marginals(offset, variance), side)


@Program
def _opened(
    bound: MixtureBound,
    model: LatentGP,
    start: GaussianMixture,
    likely: PerRow | None,
    modes: Marginals | None,
) -> GaussianMixture:
    """After a whole step from where the latents of every row are likely to be.

    From elsewhere, where log p(y | f) is exponentially steep, steps would be tiny or go astray.
    `likely` is the first latent, `modes` are laws of all.
    """
    basis = bound.basis(model)
    means, variances = start.factorised().marginals(basis)
    if likely is not None:
        means = means.at[0, :, 0].set(likely)
    if modes is not None:
        means, variances = modes.mean[None], modes.variance[None]
    marginals = Marginals(means, variances)
    rows = bound.expected(model.likelihood, marginals, jax.random.key(0))
    bend = jnp.maximum(-2 * rows.in_variance[0], 0.0)
    linear = bound.counts * (rows.in_mean[0] + bend * (means[0] - basis.offset)).T
    precision = bound.curvatures(basis, rows)[0]

    def of_latent(A: Array, precision: Array, linear: Array) -> Array:
        return cholesky(precision).inverse_of_product() @ (A @ linear)

    mean = vmap_latents(of_latent, basis.features, precision, linear)
    if start.is_diagonal:
        precision = vmap_latents(jnp.diagonal, precision)
    return start._replace(mean=mean[None], precision=precision[None])


def _white_of(
    method: Any,
    bound: MixtureBound,
    model: LatentGP,
    lower: Float[Array, "#Q M M"],
    origin: Int[np.ndarray, "N"],
) -> Float[Array, "K Q M"]:
    given, size, latents = method.start_means, lower.shape[1], model.likelihood.latent_size
    by_rows = bound.representation.traits.one_coefficient_a_row
    wanted, axes = len(origin) if by_rows else size, "components, rows or points, and latents"
    given = np.asarray(given, float)
    check_shape("BlackBoxVI.start_means", given, (method.components, wanted, latents), axes)
    if by_rows:  # of rows that are merged the first
        merged, first = np.unique(origin, return_index=True)
        given = given[:, first[merged >= 0]]
    centres = whitening_of(bound.representation, model.kernel, bound.data.X).centres
    each = [centres] * latents if centres.ndim == 2 else centres
    means = [jnp.broadcast_to(model.mean(own), (size, latents)) for own in each]
    offset = jnp.stack([own[:, latent] for latent, own in enumerate(means)], axis=1)
    return jnp.stack([vmap_latents(solve_lower, lower, (f - offset).T) for f in given])


@Program
def _prior(bound: MixtureBound, model: LatentGP) -> tuple[Array, Array]:
    """The factor of K at the centres, and the coefficients' prior precision."""
    basis = bound.basis(model)
    return basis.lower, basis.precision


def combined(parts: Sequence[GaussianMixture], weights: Any = None) -> GaussianMixture:
    """One mixture of single components, alike in weight unless weights are given."""
    joined = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)
    weights = jnp.ones(len(parts)) if weights is None else jnp.asarray(weights)
    return joined._replace(log_weights=jnp.log(weights / jnp.sum(weights)))


def best_of(
    bound: MixtureBound,
    found: SearchState,
    starts: Sequence[GaussianMixture],
    key: RandomKey,
    most: int = _MOST_STEPS,
) -> None:
    """Start a search at the best of single Gaussians, from a few starts."""
    if len(starts) > 1:
        ends = [_climbed(bound, found, start, key, most) for start in starts]
        found.mixture = max(ends, key=lambda end: end[0])[1]


def _climbed(
    bound: MixtureBound, found: SearchState, start: GaussianMixture, key: RandomKey, at_most: int
) -> _End:
    """Bound and mixture at the end of an ascent; minus infinity if it is not finite."""
    vector, enough, most = jnp.asarray(found.vector), jnp.asarray(1e-3), jnp.asarray(at_most)
    climb = profiled(bound, vector, start, enough, most, key).climb
    found.steps += int(climb.steps)
    value = float(climb.at.terms.bound)
    return (value if np.isfinite(value) else -np.inf), climb.at.mixture


def several(
    bound: MixtureBound,
    found: SearchState,
    starts: Sequence[GaussianMixture],
    number: int,
    key: RandomKey,
    most: int = _MOST_STEPS,
) -> None:
    """Find further components from their starts, and mix so many of them by their bounds.

    Each is first the best single Gaussian from its start, or, where there are starts to spare, from
    the mirror image about the prior mean of another's end; of those that are apart the best are
    taken, with their evidences as weights. Where there are too few they are repeated, half a
    deviation away: the bound is the same along components that are one and the same.
    """
    ends = [_climbed(bound, found, start, key, most) for start in (found.mixture, *starts)]
    if len(starts) >= number:
        opposites = [end._replace(mean=-end.mean) for _, end in _distinct(ends, number)]
        ends += [_climbed(bound, found, start, key, most) for start in opposites]
    chosen = _distinct(ends, number)
    for place in range(number - len(chosen)):
        value, mixture = chosen[place]
        chosen.append((value, _moved(mixture, jax.random.fold_in(key, place))))
    values = np.array([value for value, _ in chosen])
    found.mixture = combined([mixture for _, mixture in chosen], np.exp(values - values[0]))


def _distinct(ends: Sequence[_End], number: int) -> list[_End]:
    """So many ends at most, the highest first, that are apart and probable enough to matter."""
    chosen: list[_End] = []
    for value, mixture in sorted(ends, key=lambda end: -end[0]):
        probable = not chosen or value > chosen[0][0] - _IMPROBABLE
        if probable and all(_apart(mixture, other) > _SAME for _, other in chosen):
            chosen.append((value, mixture))
    return chosen[:number]


def _apart(one: GaussianMixture, other: GaussianMixture) -> float:
    """Squared distance of the means in the precision of the first, halved."""
    apart = (one.mean - other.mean)[0]
    if one.is_diagonal:
        return float(0.5 * jnp.sum(one.precision[0] * apart**2))
    return float(0.5 * jnp.einsum("qi,qij,qj->", apart, one.precision[0], apart))


def _moved(one: GaussianMixture, key: RandomKey) -> GaussianMixture:
    draw = one.factorised().draws(key, 1)[:, 0]
    return one._replace(mean=one.mean + _NEAR * (draw - one.mean) / np.sqrt(draw[0].size))
