"""Laplace's log evidence; its gradient has the implicit term of the mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_derivatives import linear_call
from jaxtyping import Float

from latentgp.likelihoods.base import AnyMarginals, Marginals
from latentgp.models import LatentGP
from latentgp.representations.base import LatentPosterior
from latentgp.rows.data import Data
from latentgp.site_inference.rules.base import SiteRule
from latentgp.site_inference.rules.variational import MeanRule
from latentgp.site_inference.search.algorithm import (
    SiteInference,
    SiteStep,
    prior_mean,
    rows_of,
    site_program,
)
from latentgp.site_inference.search.anderson import Update
from latentgp.site_inference.search.fixed_point import SETTLED, FixedPoint, ascend_by
from latentgp.site_inference.search.gradients import slope_of_rows, with_kernel
from latentgp.sites.coupled import Sites
from latentgp.sites.gaussian import Rows
from latentgp.typing import Array, RowLatents, Scalar

_MISSED = 1e-6  # of a residual, relative


class Mode(NamedTuple):
    """Laplace's approximation: the posterior given sites of the true curvature at the mode."""

    sites: Any
    posterior: LatentPosterior
    evidence: Scalar
    pullback: Any  # of the posterior
    marginals: AnyMarginals  # of f at the rows


@site_program
def mode_of(
    algorithm: SiteInference, rule: SiteRule, model: LatentGP, data: Data, ascended: FixedPoint
) -> Mode:
    """Laplace's approximation where an ascent has ended; `rule` is that of `at_the_mode`."""
    exact = eqx.tree_at(lambda a: a.rule, algorithm, rule)
    update = ascended.best.update
    sites = exact.new_sites(model, rows_of(data), update.marginals, update.sites)
    offset = prior_mean(model, data)
    about = sites.about(offset)
    posterior = algorithm.representation.condition(model.kernel, data.X, about)
    evidence = posterior.log_evidence + jnp.sum(about.log_constant)
    # Short of the mode that holds what a whole Newton step would gain if the density were Gaussian,
    # which can be much more than there is.
    pullback = algorithm.representation.pull_back(posterior, data.X, about)
    marginals = pullback.marginals.shifted(offset)
    step = marginals.mean - update.marginals.mean
    before, after = (s.slope(update.marginals.mean) for s in (update.sites, sites))
    evidence = evidence - 0.5 * jnp.sum(step * (after - before))
    return Mode(sites, posterior, evidence, pullback, marginals)


@site_program
def about_the_mean(
    algorithm: SiteInference, model: LatentGP, data: Data, mode: Mode
) -> tuple[Mode, Scalar]:
    """The mode moved to the mean that maximises the bound, and the move of a row's mean at most.

    Precisions are held, so that variances are, and a step is one solve. The move is in posterior
    standard deviations; NaN where updates do not settle, and the mode stays.
    """
    by_bound = eqx.tree_at(lambda a: a.rule, algorithm, MeanRule(coupled=algorithm.rule.coupled))
    offset, rows = prior_mean(model, data), rows_of(data)
    own = mode.sites.about(offset)
    move = algorithm.representation.linearised(mode.posterior, data.X, own)
    unread: Any = None  # more of the posterior than means

    def at(sites: Sites) -> SiteStep:
        shift = move(sites.linear - mode.sites.linear)[1]
        of_f = mode.marginals._replace(mean=mode.marginals.mean + shift)
        target = by_bound.new_sites(model, rows, of_f, sites)
        of_g = of_f._replace(mean=of_f.mean - offset)
        terms = by_bound.rule.terms(sites, target, of_g, offset)
        bound = by_bound.rule.objective(terms, mode.posterior)
        return SiteStep(unread, bound, bound, Update(sites, target, of_f))

    end = ascend_by(lambda _: at, by_bound, model.likelihood, mode.sites)
    best = end.best.update
    settled = jnp.isfinite(end.best.bound) & (end.change <= SETTLED)
    sites = jax.tree.map(lambda new, old: jnp.where(settled, new, old), best.sites, mode.sites)
    posterior = algorithm.representation.condition(model.kernel, data.X, sites.about(offset))
    variance = mode.marginals.variance
    moves = jnp.abs(best.marginals.mean - mode.marginals.mean) / jnp.sqrt(variance)
    most = jnp.max(jnp.where(variance > 0, moves, 0.0), initial=0.0)
    most = jnp.where(settled, most, jnp.nan)
    return mode._replace(sites=sites, posterior=posterior), most


def slope_at_mode(
    algorithm: SiteInference, rule: SiteRule, model: LatentGP, data: Data, mode: Mode
) -> tuple[Scalar, LatentGP]:
    """Laplace's evidence and its derivative, with the implicit term of the mode.

    The mode moves with the hyper-parameters as the posterior mean does while the sites are held,
    and the evidence with the mode through the curvature alone (Rasmussen & Williams 2006, 5.5.1).
    So the implicit term is a derivative, along s = d evidence / d mode, of the gradient with the
    sites held in their linear terms.
    """
    exact = eqx.tree_at(lambda a: a.rule, algorithm, rule)
    offset, pull_offset = jax.vjp(lambda mean: prior_mean(mean, data), model)
    rows, representation = rows_of(data), algorithm.representation
    own = mode.sites.about(offset)
    marginals = mode.marginals
    mean, variance = marginals  # covariances, where sites couple latents
    move = representation.linearised(mode.posterior, data.X, own)

    def half_weighted_curvature(f: RowLatents) -> Scalar:
        own = exact.new_sites(model, rows, type(marginals)(f, variance), mode.sites)
        return -0.5 * jnp.sum(own.precision * jax.lax.stop_gradient(variance))

    along = jax.grad(half_weighted_curvature)(mean)
    if mean.shape[1] > 1 and not rule.coupled:
        _, shifted = jax.linearize(lambda s: move(s)[1], along)  # the rest is done once
        along = _with_ties(exact, model, rows, mode.sites, mean, shifted, along)
    in_kernel, shift = move(along)

    def pull(linear: RowLatents, mean: RowLatents) -> RowLatents:
        return mode.sites._replace(linear=linear).slope(mean)

    held, moved = jax.jvp(pull, (mode.sites.linear, mean), (along, shift))

    def terms(model: LatentGP, rows: Any) -> Float[Array, "B"]:
        rows, marginals, shift, sites = rows
        target = exact.new_sites(model, rows, marginals, sites)
        moved = jnp.sum(shift * target.slope(marginals.mean), axis=1)
        return target.expected(marginals) + moved

    in_model = slope_of_rows(terms, model, (rows, marginals, shift, mode.sites))
    (through_mean,) = pull_offset(held + moved)
    in_model = jax.tree.map(jnp.add, in_model, through_mean)
    return mode.evidence, with_kernel(in_model, mode.pullback.kernel_with(in_kernel))


def _with_ties(
    exact: SiteInference,
    model: LatentGP,
    rows: Rows,
    sites: Any,
    mean: RowLatents,
    move: Callable[[RowLatents], RowLatents],
    along: RowLatents,
) -> RowLatents:
    """Direction of the linear terms where the likelihood couples the latents of a row.

    The mode then moves by (I + K H)^-1 with the whole second derivative -H of log p(y | f), while
    sites know the diagonal W of H: s is replaced by the solution of s' = s - (H - W) S s', S the
    posterior covariance given the sites. Where iterations miss it the gradient is not a number.
    """

    def slope(f: RowLatents) -> RowLatents:
        linear, precision, _ = exact.new_sites(model, rows, Marginals(f, jnp.ones_like(f)), sites)
        return linear - precision * f

    _, curve = jax.linearize(slope, mean)

    def by_covariance(_: Any, direction: RowLatents) -> RowLatents:
        return move(direction)

    def untied(direction: RowLatents) -> RowLatents:
        # S is its own transpose, which representations that iterate cannot be asked for.
        moved = linear_call(by_covariance, by_covariance, (), direction)
        return direction - (curve(moved) + sites.precision * moved)

    # Restarts lose rows of huge weight; "incremental" ends within a cycle, where it is done.
    solution, _ = jax.scipy.sparse.linalg.gmres(
        untied, along, tol=1e-12, restart=100, maxiter=10, solve_method="incremental"
    )
    missed = jnp.linalg.norm(along - untied(solution)) > _MISSED * jnp.linalg.norm(along)
    return jnp.where(missed, jnp.nan, solution)
