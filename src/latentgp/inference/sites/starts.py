"""Several starts of site updates, where log p(y | f) is not concave and an ascent has many ends.

From the prior mean, sites of what is even in f never leave f = 0: the bound is level there, or a
local maximum. Others start where each row alone has its mode, and where modes of rows that tell
each other of their latents agree.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from latentgp.inference.sites.algorithm import SiteInference, prior_mean, rows_of
from latentgp.inference.sites.fixed_point import Ascended, ascend
from latentgp.inference.sites.profiled_bound import Converged, converge, initial_sites
from latentgp.likelihoods.base import AnyMarginals, JointMarginals, Marginals
from latentgp.likelihoods.row_modes import is_concave, row_modes
from latentgp.models import LatentGP
from latentgp.representations.latent_axis import latent_diagonals
from latentgp.rows.data import Data
from latentgp.runtime.programs import Program
from latentgp.sites.coupled import Sites
from latentgp.typing import Array

GAIN = 0.01  # nats, of another end that is taken
_ROUNDS = 32
# Shares of the prior variance below which others tell of a row's latents, at first and in the end.
_WELL_TOLD, _TOLD = 0.1, 0.5


def has_several_ends(algorithm: SiteInference, model: LatentGP) -> bool:
    """Whether updates may end in several places, of which the objective tells the better one."""
    rule, likelihood = algorithm.rule, model.likelihood
    climbs = rule.is_variational or rule.at_the_mode() is not None
    return climbs and not rule.sites_are_fixed(likelihood) and not is_concave(likelihood)


def starting_sites(algorithm: SiteInference, model: LatentGP, data: Data) -> Sites:
    """Sites that a search starts from: the first ones, or those that others lead to."""
    first = initial_sites(algorithm, model, data)
    if not has_several_ends(algorithm, model):
        return first
    usual = converge(algorithm, model, data, first)
    higher = raised(algorithm, model, data, usual)
    return first if higher is usual else higher.sites


def raised(algorithm: SiteInference, model: LatentGP, data: Data, reached: Converged) -> Converged:
    """What updates have reached, or another end that is higher; at fixed hyper-parameters."""
    if not has_several_ends(algorithm, model):
        return reached
    for rounds in (0, _ROUNDS):
        sites = sites_at_modes(algorithm, model, data, rounds)
        other = converge(algorithm, model, data, sites)
        if not is_higher(other.bound, reached.bound):
            break
        reached = other
    return reached


def best_latents(
    algorithm: SiteInference, model: LatentGP, data: Data
) -> Float[Array, "N Q"] | None:
    """Posterior means of f at the rows at an end above that from the first sites; None if none is.

    Where other methods than by sites start.
    """
    if not has_several_ends(algorithm, model):
        return None
    usual = converge(algorithm, model, data, initial_sites(algorithm, model, data))
    higher = raised(algorithm, model, data, usual)
    return None if higher is usual else means_at_rows(algorithm, model, data, higher.sites)


@Program
def means_at_rows(
    algorithm: SiteInference, model: LatentGP, data: Data, sites: Sites
) -> Float[Array, "N Q"]:
    """Posterior means of f at the rows given sites."""
    offset = prior_mean(model, data)
    return offset + _marginals(algorithm, model, data, sites.about(offset)).mean


def _marginals(algorithm: SiteInference, model: LatentGP, data: Data, about: Sites) -> AnyMarginals:
    """Marginals of g at the rows given sites that are functions of g."""
    posterior = algorithm.representation.condition(model.kernel, data.X, about)
    return algorithm.representation.pull_back(posterior, data.X, about).marginals


def is_higher(other: Any, reached: Any) -> bool:
    """Whether a bound is clearly above another one, or takes the place of one that is none."""
    return bool(np.isfinite(other) & ~(other <= reached + GAIN))


def ascended_from_best(algorithm: SiteInference, model: LatentGP, data: Data) -> Ascended:
    """The ascent from the first sites, or the higher one from the modes of rows; traceable."""
    usual = ascend(algorithm, model, data, algorithm.first_sites(model, data))
    if not has_several_ends(algorithm, model):
        return usual
    for rounds in (0, _ROUNDS):
        sites = sites_at_modes(algorithm, model, data, rounds)
        other = ascend(algorithm, model, data, sites)
        higher = other.best.merit > usual.best.merit + GAIN
        usual = jax.tree.map(partial(jnp.where, higher), other, usual)
    return usual


@partial(Program, static_argnums=(3,))
def sites_at_modes(algorithm: SiteInference, model: LatentGP, data: Data, rounds: int) -> Sites:
    """Sites at each row's likeliest latents, given what the sites of others say of these.

    The row that gains most by its mode is the first to have a site; those whose latents others then
    tell of follow, a round after another, so that of modes that are alike neighbours take those
    that go on smoothly. In the end rows that nobody tells of take their own.

    Args:
        algorithm: with its rule.
        model: with the hyper-parameters.
        data: the rows.
        rounds: how many; without any each row is by itself.
    """
    offset, rows, likelihood = prior_mean(model, data), rows_of(data), model.likelihood
    variance = jnp.broadcast_to(latent_diagonals(model.kernel, data.X).T, offset.shape)
    prior = Marginals(offset, variance)

    def at_modes(marginals: Marginals) -> tuple[Sites, Marginals]:
        modes = row_modes(likelihood, rows.y, marginals, rows.side)
        own = JointMarginals.independent(modes) if algorithm.rule.coupled else modes
        return algorithm.sites_alone(model, rows, own), modes

    def log_prob(f: Float[Array, "N Q"]) -> Float[Array, "N"]:
        return likelihood._along_nodes(likelihood.log_prob, rows.y, rows.side)(f[:, None])[:, 0]

    alone, modes = at_modes(prior)
    if not rounds:
        return alone
    none = algorithm.no_sites(offset)
    gain = log_prob(modes.mean) - log_prob(offset)
    gain = jnp.where(jnp.isnan(gain) | (gain == jnp.inf), -jnp.inf, gain)
    if data.weights is not None:
        gain = jnp.where(data.weights > 0, gain, -jnp.inf)
    first = jnp.arange(len(offset)) == jnp.argmax(gain)

    def told(sites: Sites) -> tuple[Sites, Float[Array, "N"]]:
        found = _marginals(algorithm, model, data, sites.about(offset))
        known = Marginals(found.mean + offset, found.variance)
        return at_modes(known)[0], jnp.max(known.variance / variance, axis=1)

    def round_(number: Any, state: tuple[Sites, Array]) -> tuple[Sites, Array]:
        sites, chosen = state
        new, share = told(sites)
        chosen = chosen | (share < jnp.where(number < rounds // 2, _WELL_TOLD, _TOLD))
        return _of_rows(chosen, new, none), chosen

    begun = _of_rows(first, alone, none), first
    sites, chosen = jax.lax.fori_loop(0, rounds, round_, begun)
    return _of_rows(chosen, sites, alone)


def _of_rows(chosen: Bool[Array, "N"], sites: Sites, others: Sites) -> Any:
    """Sites of the chosen rows, and others of the rest."""

    def of_part(one: Array, other: Array) -> Array:
        return jnp.where(chosen.reshape(-1, *[1] * (one.ndim - 1)), one, other)

    return jax.tree.map(of_part, sites, others)
