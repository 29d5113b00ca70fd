# ruff: noqa: I002  (Equinox reads `AbstractVar` from evaluated annotations)
"""Methods whose posterior is Gaussian, by sites."""

import dataclasses
from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from latentgp.diagnostics import diagnose
from latentgp.errors import check_finite, check_ranges
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.likelihoods import LeastSquares, Likelihood
from latentgp.likelihoods.base import Marginals
from latentgp.methods.base import Method
from latentgp.methods.problem import Problem
from latentgp.methods.result import Fit, History
from latentgp.models import LatentGP
from latentgp.modules import stored
from latentgp.posteriors.evidence import Evidence
from latentgp.posteriors.posterior import Posterior
from latentgp.representations import Dense, Inducing, Representation, protocols
from latentgp.representations.inducing.selection import Selection
from latentgp.representations.learned_points import learns_points
from latentgp.representations.protocols import Streams, finished, streaming_prior_of
from latentgp.representations.summary import DataSummary
from latentgp.rows.data import Data
from latentgp.runtime.mesh import gather, number_of_shards
from latentgp.runtime.processes import broadcast_from_first
from latentgp.setup.priors import other_starts, stretched_start, typical_start
from latentgp.site_inference.search.algorithm import SiteInference
from latentgp.site_inference.search.hyperparameters import (
    OF_OTHERS,
    OPENING_ROWS,
    Opening,
    SearchResult,
    learn,
    on_some_rows,
)
from latentgp.site_inference.search.profiled_bound import (
    ConvergedPosterior,
    converge,
    converge_at,
    initial_sites,
    model_at,
    placed,
)
from latentgp.site_inference.search.search import Search
from latentgp.site_inference.search.starts import raised
from latentgp.sites.coupled import Sites
from latentgp.typing import HyperVector

_START_EVALUATIONS = 15
_START_TOLERANCE = 1e-4
_MOST_RENEWALS = 8
_WORTH = 0.1  # nats of a renewal
_LOST, _LOST_A_ROW = 0.1, 0.002  # nats that inducing functions may leave
_MOST_COUPLED = 1_500  # rows times latent functions


@stored
class ShortSearch(eqx.Module):
    """Search for hyper-parameters on part of the rows; the posterior has all.

    With `ExactGP(Neighbours(m))` these rows see their neighbours among all rows: the gradient is an
    unbiased estimate of that of all. Else they are seen alone, neighbours of latents among them.

    Args:
        rows: at most so many, evenly spaced; of neighbours of latents at places half in patches.
        evaluations: as many a run are enough; None runs the search to its end.

    Raises:
        InputError: fewer than one of either.
    """

    rows: int = eqx.field(static=True, default=1000)
    evaluations: int | None = eqx.field(static=True, default=12)

    def __check_init__(self) -> None:
        check_ranges(self, rows="at least 1", evaluations="at least 1")


class SiteMethod(Method):
    """A method whose posterior is Gaussian, by sites.

    Args:
        search: how much of a search hyper-parameters are learned by; None for the whole one.
    """

    takes_restarts: ClassVar[bool] = True
    makes_sites: ClassVar[bool] = True

    representation: eqx.AbstractVar[Representation]
    search: ShortSearch | None = eqx.field(default=None, kw_only=True)

    @abstractmethod
    def algorithm(self, model: LatentGP) -> SiteInference:
        """The algorithm for a model.

        Raises:
            InputError: the method cannot be used on the model.
        """

    def summed(
        self, algorithm: SiteInference, model: LatentGP, data: Data
    ) -> tuple[SiteInference, Data]:
        """Algorithm and rows of a search; some of the rows where sums stand for all."""
        return algorithm, data

    def settled(self, model: LatentGP, rows: int) -> "SiteMethod":
        """The same with nothing left open that depends on the number of rows."""
        return self

    @property
    def site_method(self) -> "SiteMethod":
        return self

    @property
    def spreads_rows(self) -> bool:
        return self.representation.traits.spreads_rows

    @property
    def streaming_prior(self) -> DataSummary | None:
        return streaming_prior_of(self.representation)

    def through_points(
        self,
        remembered: DataSummary | None,
        number: int | None,
        usual: int,
        selection: Selection = "greedy-variance",
    ) -> "SiteMethod":
        return self.through(going_on(self.representation, remembered, number, usual, selection))

    def through(self, representation: Representation) -> "SiteMethod":
        """The method through a representation, this same one unless overridden."""
        return eqx.tree_at(lambda m: m.representation, self, representation)

    def run(self, problem: Problem) -> Fit:
        """Hyper-parameters at their most probable values, and a Gaussian posterior."""
        return self.at(self.searched(problem), problem)

    def searched(self, problem: Problem, around: ParameterSpace | None = None) -> "SearchOutcome":
        """The most probable hyper-parameters, and the sites there.

        Where nothing is learned, evaluations `around` the values may follow, in that space: the
        posterior is made by their program, so that it is the only one to compile.

        Functions that were made for other length-scales than those found, or are too few, are made
        anew, and the search goes on from there, until others would hardly leave less open or lead
        no higher.
        """
        found, renewals = self._searched(problem, around), 0
        own, data, reached = self, problem.data, found.reached
        while isinstance(ready := found.algorithm.representation, Inducing):
            learned = found.learned
            is_end = learned is None or learned.converged or learned.kind in ("short", "no step")
            if not is_end:
                break
            enough = max(_LOST, _LOST_A_ROW * data.total_weight)
            share = enough / max(enough, float(found.converged.posterior.trace_term))
            again = ready.renewed(data.X, data.weights, found.model.kernel, share)
            if again is None:
                break
            fixed = getattr(self.representation, "variables", None) is not None
            if fixed or renewals == _MOST_RENEWALS:
                return found.unsettled()
            records, renewals = found.search.records, renewals + 1
            kept = dataclasses.replace(again, signed=False, power=0.0)
            own = eqx.tree_at(lambda m: m.representation, self, kept)
            problem = dataclasses.replace(problem, model=found.model)
            problem = problem.with_options(restarts=0, checkpoint=None)
            newer = own._searched(problem, around)
            rise = newer.reached - reached
            newer.search.records[:0] = records
            found = newer if rise > 0 else found._replace(search=newer.search)
            if rise <= _WORTH:
                break
            reached += rise
        return found

    def _searched(self, problem: Problem, around: ParameterSpace | None = None) -> "SearchOutcome":
        """The same through the functions that a search starts with."""
        model, data, key = problem.model, problem.data, problem.key
        algorithm = self.settled(model, data.size).algorithm(model)
        ready = broadcast_from_first(
            algorithm.representation.initialise(data.X, data.weights, model.kernel, key)
        )
        if isinstance(ready, Dense) and not algorithm.rule.sites_are_fixed(model.likelihood):
            ready = ready.at_places(data.X)
        algorithm = dataclasses.replace(algorithm, representation=ready)
        algorithm, data = self.summed(algorithm, model, data)
        space, scale = problem.space, problem.scales
        exact = not algorithm.representation.traits.estimates_evidence
        bounds = problem.bounds(allows_little_noise=exact)
        rows = data.padded(number_of_shards()).to_device()
        short, most = self.search, problem.options.max_evaluations
        runs = {"restarts": problem.options.restarts, "tolerance": problem.options.tolerance}
        control = problem.control_with(
            self, algorithm, space, **runs, padded_rows=rows.size, search=short
        )
        enough = most if short is None or short.evaluations is None else short.evaluations
        search = Search(max_evaluations=min(most, enough), control=control)
        searching, learned = algorithm, None
        if space.size or learns_points(ready):
            searched, opening = rows, None
            second = typical_start(space, scale) if space.size else None
            if short is not None:
                searching, some = on_some_rows(algorithm, model.kernel, data, short.rows)
                searched = some.padded(number_of_shards()).to_device()
            elif (
                space.size
                and algorithm.rule.sites_are_fixed(model.likelihood)  # else too long
                and not ready.traits.needs_rows  # else a part needs programs of its own
            ):
                second = stretched_start(space, scale) if second is None else second
                part, _ = protocols.on_some_rows(ready, data, model.kernel, OPENING_ROWS)
                others = other_starts(space, scale, part.X)
                if others:
                    opening = Opening(others, part.padded(number_of_shards()).to_device())
            learned = learn(
                searching,
                space,
                searched,
                bounds=bounds,
                opening=opening,
                second=second,
                search=search,
                key=key,
                **runs,
            )
            if enough < most and learned.kind == "evaluations":
                learned = learned.because("short", "it was to be short")
            model = learned_model(space, learned)
        converged = None
        sites = None if learned is None or searching is not algorithm else learned.sites
        if learned is not None:
            algorithm = placed(algorithm, space, learned.vector)
            learned = learned._replace(vector=learned.vector[: space.size])
        ready = algorithm.representation.for_rows(rows.X, rows.weights, model.kernel)
        final = dataclasses.replace(algorithm.until_converged(), representation=ready)
        if learned is not None and sites is not None and len(sites.linear) == rows.size:
            vector = jnp.asarray(learned.vector)
            converged = converge_at(final, space, vector, rows, sites)
        elif around is not None and final.rule.sites_are_fixed(model.likelihood):
            first = initial_sites(final, model, rows)
            converged = converge_at(final, around, jnp.asarray(around.to_vector()), rows, first)
        converged = converged_sites(final, model, rows, converged)
        whole = finished(final.representation, converged.posterior, rows)
        converged = converged._replace(posterior=whole)
        return SearchOutcome(final, space, bounds, rows, model, learned, converged, search)

    def at(self, found: "SearchOutcome", problem: Problem) -> Fit:
        """The result at the hyper-parameters that a search has found."""
        model, data, converged = found.model, problem.data, found.converged
        converged = converged._replace(sites=gather(converged.sites))
        evidence = Evidence(float(converged.bound), found.algorithm.evidence_kind(model))
        posterior = Posterior.gaussian(model, converged.posterior, evidence)
        if problem.options.learn_hyperparameters:
            posterior = calibrated(posterior, data, converged.sites)
        diagnostics = diagnose(
            posterior=posterior,
            method=self.settled(model, data.size),
            reason=problem.reason,
            data=data,
            learned=found.learned,
            records=found.search.records,
            space=found.space,
            bounds=found.bounds,
            converged=converged,
            seconds=problem.seconds,
            input_names=problem.options.input_names,
        )
        history, sites = History.of(found.search.records), sites_of_rows(converged.sites, data.size)
        return Fit(posterior.model, posterior, history, diagnostics, sites=sites)


class CouplingMethod(SiteMethod):
    """A method whose sites can couple the latents of a row."""

    # whether they do; None where it pays, with `Dense()` and at most 1,500 rows times latent
    # functions, or where a summary of earlier rows has so many coefficients that are tied. Of one
    # latent function there is nothing to couple.
    coupled: bool | None = eqx.field(static=True, default=None, kw_only=True)

    def settled(self, model: LatentGP, rows: int) -> "CouplingMethod":
        likelihood = model.likelihood
        if self.coupled is not None or not _can_be_tied(likelihood):
            return self
        traits, earlier = self.representation.traits, self.streaming_prior
        pays = traits.one_coefficient_a_row and traits.dense_factors and self._gains(likelihood)
        if earlier is not None:
            rows, pays = len(earlier.centres), earlier.together > 1
        few = rows * likelihood.latent_size <= _MOST_COUPLED
        return dataclasses.replace(self, coupled=pays and few)

    def couples(self, model: LatentGP) -> bool:
        """Whether the sites of a model couple latents; not where rows are not known yet."""
        return bool(self.coupled) and _can_be_tied(model.likelihood)

    def _gains(self, likelihood: Likelihood) -> bool:
        """Whether coupled sites are the better ones; so unless overridden."""
        return True


def is_exact(method: Method, model: LatentGP, rows: int) -> bool:
    """Whether a method whose sites may couple latents has the exact posterior of so many rows."""
    own = method.site_method
    if not isinstance(own, CouplingMethod):
        return False
    return own.settled(model, rows).algorithm(model).evidence_kind(model) == "exact"


def _can_be_tied(likelihood: Likelihood) -> bool:
    # Least squares are a sum over latents, which nothing ties.
    several = likelihood.latent_size > 1 and not isinstance(likelihood, LeastSquares)
    # By values alone slopes are known in means and variances.
    return several and likelihood.has_gradient


class SearchOutcome(NamedTuple):
    """The end of a search, from which a result is made, or its surroundings are explored."""

    algorithm: SiteInference  # made ready for the rows, its site updates until they stand still
    space: ParameterSpace  # of hyper-parameters, at those that the search started from
    bounds: tuple[HyperVector, HyperVector]  # of the search
    rows: Data  # padded, on the device
    model: LatentGP  # with the most probable hyper-parameters
    learned: SearchResult | None  # the end of the search; None where there was nothing to learn
    converged: ConvergedPosterior  # sites and posterior there
    search: Search  # with its records

    @property
    def reached(self) -> float:
        """The greatest bound plus log prior, in nats."""
        return float(self.converged.bound) if self.learned is None else self.search.best().value

    def unsettled(self) -> "SearchOutcome":
        """The same, its functions made for other length-scales than those that were found."""
        if self.learned is None:
            return self
        return self._replace(learned=self.learned.because("outdated", OF_OTHERS))


def start_of_search(
    problem: Problem,
    algorithm: SiteInference,
    space: ParameterSpace,
    bounds: tuple[HyperVector, HyperVector],
    rows: Data,
) -> SearchResult:
    """Hyper-parameters at which another search, or a sampler, starts."""
    control = problem.control._replace(callback=None)
    search = Search(max_evaluations=_START_EVALUATIONS, control=control)
    runs = {"restarts": 0, "tolerance": _START_TOLERANCE}
    return learn(algorithm, space, rows, bounds=bounds, search=search, key=problem.key, **runs)


def learned_model(space: ParameterSpace, learned: SearchResult) -> LatentGP:
    """The model at the end of a search, in NumPy."""
    return jax.tree.map(np.asarray, model_at(space, jnp.asarray(learned.vector)))


def converged_sites(
    algorithm: SiteInference,
    model: LatentGP,
    rows: Data,
    converged: ConvergedPosterior | None = None,
) -> ConvergedPosterior:
    """Fixed point of site updates: the one given if its bound is finite, or from the first sites.

    Where there can be several, the highest from a few starts. InputError if none is finite.
    """
    if converged is None or not np.isfinite(converged.bound):
        converged = converge(algorithm, model, rows, initial_sites(algorithm, model, rows))
        converged = raised(algorithm, model, rows, converged)
    check_finite(np.isfinite(converged.bound), "log evidence", "these hyper-parameters")
    return converged


def sites_of_rows(sites: Sites, size: int) -> Sites:
    """Those of the rows themselves, without padding, in NumPy."""
    return type(sites)(*(np.asarray(part)[:size] for part in sites))


def calibrated(posterior: Posterior, data: Data, sites: Sites) -> Posterior:
    """Posterior with the likelihood's calibrated parameters set by leave-one-out marginals."""
    model = posterior.model
    if not model.likelihood.calibrated_parameters:
        return posterior
    marginals = posterior.predict_f(data.X)
    linear, precision = (np.asarray(a)[: data.size] for a in (sites.linear, sites.precision))
    variance = 1 / np.maximum(1 / marginals.variance - precision, 1e-12)
    mean = variance * (marginals.mean / marginals.variance - linear)
    likelihood = model.likelihood.calibrated(
        data.y, data.weights, Marginals(mean, variance), data.side_information
    )
    return posterior.with_likelihood(likelihood)


def going_on(
    own: Representation,
    remembered: DataSummary | None,
    number: int | None,
    usual: int,
    selection: Selection,
) -> Representation:
    """A representation with a summary of the rows so far, of series or of inducing variables.

    What the method's own has is kept where it is of the summary's kind. It has at most `number`
    inducing variables; None keeps the own number, or `usual` where there is none.
    """
    streams: Any = own
    if not (isinstance(own, Streams) and own.continues(remembered)):
        usual_of_kind = None if remembered is None else remembered.usual_representation
        streams = usual_of_kind or Inducing(number=usual)
    return streams.extended(number, selection, remembered)
