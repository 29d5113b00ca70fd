"""Site updates to their fixed point: accelerated, and undone if the merit falls."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Int

from latentgp.likelihoods import Likelihood
from latentgp.models import LatentGP
from latentgp.rows.data import Data
from latentgp.site_inference.search.algorithm import (
    SiteInference,
    SiteStep,
    site_form,
    site_program,
)
from latentgp.site_inference.search.anderson import History, accelerated
from latentgp.sites.coupled import Sites
from latentgp.typing import Array, Scalar

_ESTIMATED = 1e-6  # relative change of a bound that iterations find, at least
SETTLED = 1e-4  # relative change of the bound, at most, in the last update
_SHORTEST_STEP = 0.02
_KEPT = 3  # updates; a preconditioner is for the sites near those that it was made at


class FixedPoint(NamedTuple):
    """Result of site updates."""

    best: SiteStep  # the one from the highest merit
    step_size: Scalar  # of the next one; there is none where it is too short
    # how far updates are from standing still, relative to the bound, see `SiteRule.change`
    change: Scalar
    updates: Int[Array, ""]  # how many there were

    @property
    def next_sites(self) -> Sites:
        """Sites from which further updates may start."""
        return self.best.update.sites.damped(self.best.update.target, self.step_size)


class _Ascent(NamedTuple):
    """Site updates so far, and the history of those since the merit last fell."""

    so_far: FixedPoint
    history: History


@site_program
def ascend(algorithm: SiteInference, model: LatentGP, data: Data, sites: Sites) -> FixedPoint:
    """Update sites until the bound changes by less than the tolerance, or often enough.

    Updates are accelerated. One that makes the merit fall is taken back: what past updates said
    is forgotten, and a plain step from the best sites comes in its place, half as long if it
    was a plain step that failed.
    """
    rule, likelihood = algorithm.rule, model.likelihood
    if not rule.reads_variances(likelihood):
        form = dataclasses.replace(site_form(rule, likelihood), means_alone=True)
        means = algorithm.representation.for_sites(form)
        algorithm = eqx.tree_at(lambda a: a.representation, algorithm, means)

    def updates(sites: Sites) -> Callable[[Sites], SiteStep]:
        kept = algorithm.representation.kept(model.kernel, data.X, sites)

        def at(sites: Sites) -> SiteStep:
            return algorithm.sweep(algorithm.resume(model, data, sites, kept), data, 1.0, kept)[1]

        return at

    return ascend_by(updates, algorithm, likelihood, sites)


def ascend_by(
    updates: Callable[[Sites], Callable[[Sites], SiteStep]],
    algorithm: SiteInference,
    likelihood: Likelihood,
    sites: Sites,
) -> FixedPoint:
    """The same by whole updates, made anew after a few with what is kept at the sites by then."""
    rule, tolerance = algorithm.rule, algorithm.tolerance
    full, dtype = rule.step_size, sites.linear.dtype
    if algorithm.representation.traits.estimates_evidence:
        tolerance = jnp.maximum(tolerance, _ESTIMATED)

    def moving(ascent: _Ascent) -> Bool[Array, ""]:
        _, step_size, change, number = ascent.so_far
        left = (number <= algorithm.max_updates) & (step_size >= _SHORTEST_STEP)
        return left & (change > tolerance)

    def update(at: Callable[[Sites], SiteStep], ascent: _Ascent) -> _Ascent:
        (best, step_size, _, number), history = ascent
        first = jnp.isneginf(best.merit)
        if rule.accelerates(likelihood):
            signed = rule.signed(likelihood)
            after = at(accelerated(history, best.update, step_size, signed=signed))
        else:
            after = at(best.update.sites.damped(best.update.target, step_size))
        scale = jnp.maximum(jnp.abs(after.bound), 1.0)
        rise = (after.merit - best.merit) / scale
        fell = ~(first | (rise >= -tolerance))
        failed = fell & (history.count == 0)
        shorter = jnp.where(failed, 0.5, jnp.where(fell, 1.0, 1.5)) * step_size
        # Where even a short step fails, this is what the bound fell by in it.
        highest = jnp.where(fell, best.merit, after.merit) / scale
        change = rule.change(highest, rise, step_size)
        change = jnp.where(first, jnp.inf, jnp.abs(change))
        goes_on = fell & (shorter >= _SHORTEST_STEP)
        longer = history.between(best.update, after.update)
        # Signed sites of other hyper-parameters may leave no proper posterior; proper ones of rows
        # of huge weight may lead too far from the prior that they were made at, and say a tenth.
        known: Any = best.update.sites
        proper = known.proper()
        signed = jnp.any(proper.precision != known.precision)
        nearer = proper.damped(algorithm.no_sites(known.linear), jnp.where(signed, 0.0, 0.9))
        best = _where(first, start_at(nearer), best)
        best = _where(fell | (first & jnp.isnan(after.merit)), best, after)
        empty = History.empty(sites)
        change = jnp.where(goes_on, jnp.inf, change)
        so_far = FixedPoint(best, jnp.minimum(full, shorter), change, number + 1)
        return _Ascent(so_far, _where(fell | first, empty, longer))

    like = jax.eval_shape(lambda sites: updates(sites)(sites), sites)
    nowhere = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), like)

    def start_at(sites: Sites) -> SiteStep:
        """Initial state of the iteration, its bound not yet known."""
        stay = nowhere.update._replace(sites=sites, target=sites)
        unknown = jnp.full_like(nowhere.bound, jnp.nan)
        least = jnp.full_like(nowhere.merit, -jnp.inf)
        return nowhere._replace(bound=unknown, merit=least, update=stay)

    def some(ascent: _Ascent) -> _Ascent:
        first = ascent.so_far
        step = partial(update, updates(first.next_sites))

        def moving_on(ascent: _Ascent) -> Bool[Array, ""]:
            return moving(ascent) & (ascent.so_far.updates < first.updates + _KEPT)

        return jax.lax.while_loop(moving_on, step, ascent)

    step_size, change = jnp.asarray(full, dtype), jnp.asarray(jnp.inf, dtype)
    start = FixedPoint(start_at(sites), step_size, change, jnp.zeros((), jnp.int32))
    return jax.lax.while_loop(moving, some, _Ascent(start, History.empty(sites))).so_far


def _where(condition: Bool[Array, ""], one: Any, other: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), one, other)
