"""Several starts of site updates, where log p(y | f) is not concave and an ascent has many ends.

From the prior mean, sites of what is even in f never leave f = 0: the bound is level there, or a
local maximum. Others start where each row alone has its mode.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from latentgp.likelihoods.base import JointMarginals, Marginals
from latentgp.likelihoods.row_modes import is_concave, row_modes
from latentgp.models import LatentGP
from latentgp.representations.latent_axis import latent_diagonals
from latentgp.rows.data import Data
from latentgp.runtime.programs import Program
from latentgp.site_inference.rules.laplace import LaplaceRule
from latentgp.site_inference.search.algorithm import SiteInference, prior_mean, rows_of, site_form
from latentgp.site_inference.search.fixed_point import SETTLED, FixedPoint, ascend
from latentgp.site_inference.search.profiled_bound import (
    ConvergedPosterior,
    converge,
    initial_sites,
)
from latentgp.sites.coupled import Sites

GAIN = 0.01  # nats, of another end that is taken


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


def raised(
    algorithm: SiteInference, model: LatentGP, data: Data, reached: ConvergedPosterior
) -> ConvergedPosterior:
    """End of the updates, or a higher one from another start; at fixed hyper-parameters.

    Where no step leads on and yet updates do not stand still, a third start is the mode of all
    rows, with Laplace's sites: marginals of the prior may say nothing of log p(y | f).
    """
    if has_several_ends(algorithm, model):
        other = converge(algorithm, model, data, sites_at_modes(algorithm, model, data))
        reached = other if is_higher(other.bound, reached.bound) else reached
    rule, likelihood = algorithm.rule, model.likelihood
    stopped = reached.updates > algorithm.max_updates and not np.isnan(reached.change)
    if reached.change <= SETTLED or stopped or rule.at_the_mode() is not None:
        return reached
    smooth = likelihood.has_gradient and likelihood.is_smooth
    if is_concave(likelihood) or not (smooth and algorithm.representation.traits.powers):
        return reached
    by_mode = LaplaceRule(coupled=rule.coupled)
    representation = algorithm.representation.for_sites(site_form(by_mode, likelihood))
    newton = dataclasses.replace(algorithm, representation=representation, rule=by_mode)
    mode = converge(newton, model, data, initial_sites(newton, model, data))
    other = converge(algorithm, model, data, mode.sites)
    if not (np.isfinite(other.bound) and other.change <= SETTLED):
        return reached
    return other if not rule.is_variational or is_higher(other.bound, reached.bound) else reached


def is_higher(other: Any, reached: Any) -> bool:
    """Whether a bound is clearly above another one, or takes the place of one that is none."""
    return bool(np.isfinite(other) & ~(other <= reached + GAIN))


def ascended_from_best(algorithm: SiteInference, model: LatentGP, data: Data) -> FixedPoint:
    """The ascent from the first sites, or the higher one from the modes of rows; traceable."""
    usual = ascend(algorithm, model, data, algorithm.first_sites(model, data))
    if not has_several_ends(algorithm, model):
        return usual
    other = ascend(algorithm, model, data, sites_at_modes(algorithm, model, data))
    higher = other.best.merit > usual.best.merit + GAIN
    return jax.tree.map(partial(jnp.where, higher), other, usual)


@Program
def sites_at_modes(algorithm: SiteInference, model: LatentGP, data: Data) -> Sites:
    """Sites at each row's likeliest latents under the prior."""
    offset, rows = prior_mean(model, data), rows_of(data)
    variance = jnp.broadcast_to(latent_diagonals(model.kernel, data.X).T, offset.shape)
    modes = row_modes(model.likelihood, rows.y, Marginals(offset, variance), rows.side)
    own = JointMarginals.independent(modes) if algorithm.rule.coupled else modes
    return algorithm.sites_alone(model, rows, own)
