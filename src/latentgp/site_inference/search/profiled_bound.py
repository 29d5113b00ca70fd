"""The bound with the sites profiled out, its gradient in the hyper-parameters, and posteriors.

At the sites' optimum the derivative in the kernel's parameters is that of the evidence with the
sites held, so nothing is differentiated through the updates (the dual parameterisation: Adam et
al. 2021, 3). One compiled ascent serves every evaluation and the final posterior.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Int

from latentgp.hyperparameters.space import ParameterSpace
from latentgp.likelihoods.base import Marginals
from latentgp.models import LatentGP
from latentgp.representations.base import LatentPosterior
from latentgp.representations.evidence import log_evidence_and_posterior
from latentgp.representations.learned_points import moved
from latentgp.representations.summary import RowsAsSums, row_sums
from latentgp.rows.data import Data
from latentgp.runtime.programs import Program
from latentgp.site_inference.search.algorithm import (
    SiteInference,
    prior_mean,
    rows_of,
    site_program,
)
from latentgp.site_inference.search.anderson import Update
from latentgp.site_inference.search.fixed_point import FixedPoint, ascend
from latentgp.site_inference.search.gradients import slope_of_sites, with_kernel
from latentgp.site_inference.search.laplace_evidence import (
    Mode,
    about_the_mean,
    mode_of,
    slope_at_mode,
)
from latentgp.sites.coupled import Sites
from latentgp.typing import Array, HyperVector, Scalar


class Evaluation(NamedTuple):
    """The bound with sites profiled out, at one vector of hyper-parameters."""

    value: Scalar  # bound plus log prior of the hyper-parameters, in nats
    bound: Scalar  # the (lower bound on the) log evidence alone, in nats
    gradient: HyperVector  # of `value` in the unconstrained vector, exact at the sites' optimum
    sites: Sites  # where the next evaluation starts
    updates: Int[Array, ""]  # how many site updates were made
    change: Scalar  # of the bound in the last update, relative


initial_sites = site_program(SiteInference.first_sites)


@site_program
def spread_sites(
    algorithm: SiteInference, model: LatentGP, known: Data, known_sites: Sites, data: Data
) -> Sites:
    """Sites for rows, from the posterior given sites of other rows."""
    posterior = algorithm.resume(model, known, known_sites).posterior
    offset = prior_mean(model, data)

    def update(rows, marginals, sites, offset):
        target = algorithm.sites_alone(model, rows, marginals.shifted(offset))
        return target, target.log_constant

    empty = algorithm.no_sites(offset)
    return algorithm.representation.update_sites(
        posterior, data.X, rows_of(data), empty, offset, update
    )[0]


def placed(algorithm: SiteInference, space: ParameterSpace, vector: HyperVector) -> SiteInference:
    """The algorithm with the inducing points that a vector has behind its hyper-parameters."""
    if len(vector) == space.size:
        return algorithm
    own = moved(algorithm.representation, vector[space.size :])
    return eqx.tree_at(lambda a: a.representation, algorithm, own)


def evaluate(
    algorithm: SiteInference, space: ParameterSpace, vector: HyperVector, data: Data, sites: Sites
) -> Evaluation:
    """The bound and its gradient at a vector of hyper-parameters, sites profiled out.

    Steps of inducing points may follow these.
    """
    if algorithm.rule.sites_are_fixed(space.model.likelihood):
        if (sums := row_sums(algorithm.representation)) is not None:
            return _evaluate_sums(sums, space, vector, sites)
        return _evaluate_exact(algorithm, space, vector, data, sites)[0]
    there, model = placed(algorithm, space, vector), model_at(space, vector)
    ascended = ascend(there, model, data, sites)
    rule = there.rule.at_the_mode()
    # By a program that makes the posterior too.
    mode = None if rule is None else mode_of(there, rule, model, data, ascended)
    return _evaluate_ascended(algorithm, space, vector, data, ascended, mode)


@Program
def model_at(space: ParameterSpace, vector: HyperVector) -> LatentGP:
    """The model whose free parameters are those of the unconstrained vector."""
    return space.to_model(vector)


@site_program
def _evaluate_ascended(
    algorithm: SiteInference,
    space: ParameterSpace,
    vector: HyperVector,
    data: Data,
    ascended: FixedPoint,
    mode: Mode | None = None,
) -> Evaluation:
    """The bound where an ascent has ended, and its gradient; the mode there may be at hand."""
    there, model = placed(algorithm, space, vector), space.to_model(vector)
    bound, in_model, in_own = _slopes_at(there, model, data, ascended, mode)
    value, gradient = _with_prior(space, vector, bound, in_model)
    if there is not algorithm:

        def numbers(vector: HyperVector) -> Any:
            own = placed(algorithm, space, vector).representation
            return eqx.filter(own, eqx.is_inexact_array)

        gradient = gradient + jax.vjp(numbers, vector)[1](in_own)[0]
    end = ascended.next_sites, ascended.updates, ascended.change
    return Evaluation(value, bound, gradient, *end)


def slope_at(
    algorithm: SiteInference, model: LatentGP, data: Data, ascended: FixedPoint
) -> tuple[Scalar, LatentGP]:
    """The bound where an ascent has ended, in nats, and its derivative in the model."""
    return _slopes_at(algorithm, model, data, ascended)[:2]


def _slopes_at(
    algorithm: SiteInference,
    model: LatentGP,
    data: Data,
    ascended: FixedPoint,
    mode: Mode | None = None,
) -> tuple[Scalar, LatentGP, Any]:
    """The same, and the derivative in the representation, None at the mode."""
    at_the_mode = algorithm.rule.at_the_mode()
    if at_the_mode is not None:
        there = mode or mode_of(algorithm, at_the_mode, model, data, ascended)
        return *slope_at_mode(algorithm, at_the_mode, model, data, there), None
    # Else it is stationary in the sites.
    posterior, bound, _, update = ascended.best
    offset, pull_offset = jax.vjp(lambda mean: prior_mean(mean, data), model)
    pullback = algorithm.representation.pull_back(posterior, data.X, update.sites.about(offset))
    marginals = pullback.marginals.shifted(offset)
    rows = rows_of(data), marginals, update.sites
    (through_mean,) = pull_offset(update.sites.slope(marginals.mean))
    in_model = jax.tree.map(jnp.add, slope_of_sites(algorithm, model, rows), through_mean)
    return bound, with_kernel(in_model, pullback.kernel), pullback.representation


class ConvergedPosterior(NamedTuple):
    """Posterior whose sites have converged."""

    posterior: LatentPosterior  # given the sites
    sites: Sites  # as functions of f
    bound: Scalar  # the posterior's (lower bound on the) log evidence, in nats
    updates: Int[Array, ""]  # how many were made
    change: Scalar  # of the bound in the last update, relative
    # how many rows kept their sites as their cavities are improper
    improper_cavities: Int[Array, ""]
    # of a row's mean from the mode, at most, in posterior deviations; NaN if it could not be moved
    moved: Scalar | float = 0.0


def converge_at(
    algorithm: SiteInference, space: ParameterSpace, vector: HyperVector, data: Data, sites: Sites
) -> ConvergedPosterior:
    """The posterior at a vector of hyper-parameters, by the programs that `evaluate` has run."""
    if _is_one_program(algorithm, space):
        return _evaluate_exact(algorithm, space, vector, data, sites)[1]
    return converge(algorithm, model_at(space, vector), data, sites)


def _is_one_program(algorithm: SiteInference, space: ParameterSpace) -> bool:
    fixed = algorithm.rule.sites_are_fixed(space.model.likelihood)
    return fixed and row_sums(algorithm.representation) is None


def evaluate_and_converge(
    algorithm: SiteInference, space: ParameterSpace, vector: HyperVector, data: Data, sites: Sites
) -> tuple[Evaluation, ConvergedPosterior]:
    """The bound with its gradient, and the posterior, at once where one program makes both."""
    if _is_one_program(algorithm, space):
        return _evaluate_exact(algorithm, space, vector, data, sites)
    own = algorithm, space, vector, data, sites
    return evaluate(*own), converge_at(*own)


def converge(
    algorithm: SiteInference, model: LatentGP, data: Data, sites: Sites
) -> ConvergedPosterior:
    """The posterior at fixed hyper-parameters."""
    if algorithm.rule.sites_are_fixed(model.likelihood):
        return _converge_exact(algorithm, model, data)
    ascended = ascend(algorithm, model, data, sites)
    posterior, bound, _, update = ascended.best
    sites = update.sites
    improper = _improper_cavities(algorithm, update, data)
    at_the_mode: Any = algorithm.rule.at_the_mode()
    moved = 0.0
    if at_the_mode is not None:
        mode = mode_of(algorithm, at_the_mode, model, data, ascended)
        if at_the_mode.corrected:
            known = not algorithm.representation.traits.estimates_variances
            mode, moved = about_the_mean(algorithm, model, data, mode) if known else (mode, jnp.nan)
        sites, posterior, bound = mode[:3]
    steps = ascended.updates, ascended.change
    return ConvergedPosterior(posterior, sites, bound, *steps, improper, moved)


@site_program
def _improper_cavities(algorithm: SiteInference, update: Update, data: Data) -> Int[Array, ""]:
    """Number of rows whose cavity is improper, so that their sites were kept."""
    current = update.sites.unweighted(data.weights)
    return jnp.sum(algorithm.rule.improper_cavities(update.marginals, current))


@site_program
def _evaluate_exact(
    algorithm: SiteInference, space: ParameterSpace, vector: HyperVector, data: Data, sites: Sites
) -> tuple[Evaluation, ConvergedPosterior]:
    """Sites that are the likelihood itself: differentiate the evidence straight through them."""

    def objective(vector):
        settled = _exact(placed(algorithm, space, vector), space.to_model(vector), data)
        return settled.bound + space.log_prior(vector), settled

    (value, settled), gradient = jax.value_and_grad(objective, has_aux=True)(vector)
    end = settled.updates, settled.change
    return Evaluation(value, settled.bound, gradient, sites, *end), settled


def _evaluate_sums(
    sums: RowsAsSums, space: ParameterSpace, vector: HyperVector, sites: Sites
) -> Evaluation:
    """The same from sums over rows, whatever their number.

    The long program knows nothing of priors, so that others compile next to nothing.
    """
    bound, in_model = _slope_of_sums(sums, model_at(space, vector))
    value, gradient = _with_prior(space, vector, bound, in_model)
    return Evaluation(value, bound, gradient, sites, *_one_update(bound))


@Program
def _slope_of_sums(sums: RowsAsSums, model: LatentGP) -> tuple[Scalar, LatentGP]:
    """The bound from sums, and its derivative in the model."""
    return jax.value_and_grad(sums.evidence)(model)


@Program
def _with_prior(
    space: ParameterSpace, vector: HyperVector, bound: Scalar, in_model: LatentGP
) -> tuple[Scalar, HyperVector]:
    """Bound plus log prior, and its derivative in the unconstrained vector."""
    _, pull_model = jax.vjp(space.to_model, vector)
    log_prior, in_prior = jax.value_and_grad(space.log_prior)(vector)
    return bound + log_prior, pull_model(in_model)[0] + in_prior


def exact_log_evidence(algorithm: SiteInference, model: LatentGP, data: Data) -> Scalar:
    """The log evidence (or its collapsed bound) where sites are the likelihood itself, in nats."""
    return _exact(algorithm, model, data).bound


def _exact(algorithm: SiteInference, model: LatentGP, data: Data) -> ConvergedPosterior:
    """Where sites are the likelihood itself; only the bound has derivatives, and not of sums."""
    offset = prior_mean(model, data)
    none, anywhere = algorithm.no_sites(offset), Marginals(offset, jnp.ones_like(offset))
    sites = algorithm.new_sites(model, rows_of(data), anywhere, none)
    sums = row_sums(algorithm.representation)
    if sums is not None:
        posterior, bound = sums.posterior(model)
    else:
        bound, posterior = log_evidence_and_posterior(
            algorithm.representation, model.kernel, data.X, sites.about(offset)
        )
    none_improper = jnp.zeros((), jnp.int32)
    return ConvergedPosterior(posterior, sites, bound, *_one_update(bound), none_improper)


_converge_exact = site_program(_exact)


def _one_update(bound: Scalar) -> tuple[Int[Array, ""], Scalar]:
    """Number of updates and change in the last one, where sites are the likelihood itself."""
    return jnp.ones((), jnp.int32), jnp.zeros_like(bound)
