"""Inference by Gaussian sites: one algorithm for every rule and every representation.

One update reads the marginals of every row, lets the rule make new sites, and conditions the
prior on them. With an augmentation it is coordinate ascent, with quadrature a natural-gradient
step; with a Gaussian likelihood the first sites are exact.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Int

from latentgp.likelihoods.base import AnyMarginals, JointMarginals, Likelihood, Marginals
from latentgp.models import LatentGP
from latentgp.posteriors.evidence import EvidenceKind
from latentgp.representations.base import LatentPosterior, Representation
from latentgp.representations.inducing.representation import coarse
from latentgp.representations.latent_axis import latent_diagonals
from latentgp.representations.needs import check_form
from latentgp.representations.protocols import streaming_prior_of
from latentgp.representations.site_form import SiteForm
from latentgp.rows.data import Data
from latentgp.runtime.programs import Program
from latentgp.site_inference.rules.base import SiteRule
from latentgp.site_inference.search.anderson import Update, residual_norm
from latentgp.sites.coupled import CoupledSites, Sites
from latentgp.sites.gaussian import GaussianSites, Rows
from latentgp.typing import Array, RowLatents, Scalar

# Of the bound, which is flat there: means then are within 1e-4 posterior deviations.
_FINAL_TOLERANCE = 1e-9
_FINAL_UPDATES, _FINAL_UPDATES_COUPLED = 100, 200
_ROUGH_TOLERANCE = 1e-3


class SiteState(NamedTuple):
    """State of site inference."""

    model: LatentGP
    sites: Any
    posterior: LatentPosterior


class SiteStep(NamedTuple):
    """Posterior before one update, its objective, and the new sites."""

    posterior: LatentPosterior  # given the sites that are updated
    bound: Scalar  # the rule's objective at that posterior, in nats
    merit: Scalar  # what updates are to raise, see `SiteRule.merit`
    update: Update  # of its sites


class SiteInference(eqx.Module):
    """The algorithm: a representation (column) and a rule (row) of the design's table."""

    representation: Representation
    rule: SiteRule
    # These two are leaves, so that others compile nothing anew.
    tolerance: float = 1e-5  # relative change of the bound below which site updates stop
    max_updates: int = 4  # an evaluation makes at most so many

    @classmethod
    def of(
        cls,
        model: LatentGP,
        representation: Representation,
        rule: SiteRule,
        tolerance: float = 1e-5,
        max_updates: int = 4,
    ) -> "SiteInference":
        """The algorithm for a model, configured; InputError if the rule cannot be used on it."""
        likelihood = model.likelihood
        rule.check(likelihood)
        form = site_form(rule, likelihood)
        check_form(representation, form, likelihood, at_the_mode=rule.at_the_mode() is not None)
        configured = representation.for_sites(form)
        return cls(configured, rule, tolerance, max_updates)

    def until_converged(self) -> "SiteInference":
        """The same, for the posterior that a fit hands out."""
        most = _FINAL_UPDATES_COUPLED if self.rule.coupled else _FINAL_UPDATES
        return replace(
            self,
            tolerance=min(self.tolerance, _FINAL_TOLERANCE),
            max_updates=max(self.max_updates, most),
        )

    def rough(self) -> "SiteInference":
        """Algorithm whose site updates stop early, for a search that another one refines."""
        if not self.rule.is_variational:
            return self
        return replace(self, tolerance=max(self.tolerance, _ROUGH_TOLERANCE))

    def coarse(self) -> "SiteInference":
        """Rough algorithm with few inducing points, for initial hyper-parameters."""
        return replace(self.rough(), representation=coarse(self.representation))

    def init(self, model: LatentGP, data: Data) -> SiteState:
        """The state with the first sites."""
        return self.resume(model, data, self.first_sites(model, data))

    def first_sites(self, model: LatentGP, data: Data) -> Sites:
        """Sites made from the prior's marginals, or around likely latents."""
        offset = prior_mean(model, data)
        rows = rows_of(data)
        variance = jnp.broadcast_to(latent_diagonals(model.kernel, data.X).T, offset.shape)
        start = self.rule.start(model.likelihood, rows, Marginals(offset, variance))
        own = JointMarginals.independent(start) if self.rule.coupled else start
        sites = self.sites_alone(model, rows, own)
        return self.rule.first(sites, start._replace(variance=variance))

    def resume(self, model: LatentGP, data: Data, sites: Sites, kept: Any = None) -> SiteState:
        """The state of a (new) model with sites already known.

        What the representation has `kept` of the rows under the kernel may be at hand.
        """
        about = sites.about(prior_mean(model, data))
        rows_read = data.X if kept is None else kept
        posterior = self.representation.condition(model.kernel, rows_read, about)
        return SiteState(model, sites, posterior)

    def step(self, state: SiteState, data: Data) -> tuple[SiteState, SiteStep]:
        """One damped update of all sites, block by block, and the posterior they give."""
        return self.sweep(state, data, self.rule.step_size)

    def sweep(
        self, state: SiteState, data: Data, step_size: float, kept: Any = None
    ) -> tuple[SiteState, "SiteStep"]:
        """State after a step, and `SiteStep` of the one before; `kept` as in `resume`."""
        model, sites, posterior = state
        rows_read = data.X if kept is None else kept
        blocks = self.rule.blocks(model.likelihood)
        first = None
        for block in blocks:

            def update(rows, marginals, sites, offset, block=block):
                of_f = marginals.shifted(offset)
                target = self.new_sites(model, rows, of_f, sites)
                terms = self.rule.terms(sites, target, marginals, offset)
                new = sites.damped(target, step_size)
                new = new if len(blocks) == 1 else sites.with_columns(new, block)
                return new, (terms, of_f)

            sites, after, read = self.representation.update_sites(
                posterior, rows_read, rows_of(data), sites, prior_mean(model, data), update
            )
            first = first or read
            posterior = after
        assert first is not None
        terms, marginals = first
        whole = Update(state.sites, sites, marginals)
        bound = self.rule.objective(terms, state.posterior)
        merit = self.rule.merit(bound, residual_norm(whole))
        return SiteState(model, sites, posterior), SiteStep(state.posterior, bound, merit, whole)

    def evidence_kind(self, model: LatentGP) -> EvidenceKind:
        """Kind of the log evidence: exact, a lower bound or an approximation."""
        evidence = self.representation.traits.evidence
        if evidence == "exact" and self.rule.sites_are_fixed(model.likelihood):
            return "exact"
        is_bound = (
            self.rule.is_bound(model.likelihood)
            and evidence != "approximation"
            and streaming_prior_of(self.representation) is None
        )
        return "lower bound" if is_bound else "approximation"

    def new_sites(
        self, model: LatentGP, rows: Rows, marginals: AnyMarginals, current: Sites
    ) -> Any:
        """Sites that the rule makes of marginals; `current` and the result with row weights."""
        sites = self.rule.sites(model.likelihood, rows, marginals, current.unweighted(rows.weights))
        return sites.weighted(rows.weights)

    def sites_alone(self, model: LatentGP, rows: Rows, marginals: AnyMarginals) -> Sites:
        """Proper first sites, made from marginals that contain none, each row by itself."""
        once = rows._replace(weights=None)
        rule = self.rule.opening(model.likelihood)

        def update(_: Int[Array, ""], sites: Any) -> Any:
            own = marginals.given(sites.linear, sites.precision)
            return rule.sites(model.likelihood, once, own, sites).proper()

        none = self.no_sites(marginals.mean)
        sites = jax.lax.fori_loop(0, rule.first_updates, update, none)
        return sites.weighted(rows.weights)

    def no_sites(self, like: RowLatents) -> Sites:
        """Factors of one, of the rule's kind."""
        return CoupledSites.none(like) if self.rule.coupled else GaussianSites.none(like)


def has_no_dense_factors(algorithm: SiteInference) -> bool:
    """Whether its programs take no longer by the options for few rows."""
    return not algorithm.representation.traits.dense_factors


site_program = partial(Program, has_few=has_no_dense_factors)  # of an algorithm, and more


def site_form(rule: SiteRule, likelihood: Likelihood) -> SiteForm:
    """Form of the sites that a rule makes for a likelihood."""
    return SiteForm(
        moved=rule.coupled or not rule.sites_are_fixed(likelihood),
        signed=(rule.at_the_mode() or rule).signed(likelihood),
        power=rule.power,
        shared=likelihood.latent_size > 1 and rule.shares_precisions(likelihood),
        coupled=rule.coupled,
        latents=likelihood.latent_size,
    )


def rows_of(data: Data) -> Rows:
    """The part of the data that a site rule needs."""
    return Rows(data.y, data.weights, data.side_information)


def prior_mean(model: LatentGP, data: Data) -> RowLatents:
    """Prior means of f at the rows."""
    shape = (data.X.shape[0], model.likelihood.latent_size)
    return jnp.broadcast_to(model.mean(data.X), shape)
