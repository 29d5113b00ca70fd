"""The method for rows a batch at a time."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, ClassVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from latentgp.diagnostics import diagnose
from latentgp.errors import check_ranges, check_whole, refuse
from latentgp.extensions.batches.step_sizes import RobbinsMonro, Schedule
from latentgp.methods.base import Method
from latentgp.methods.problem import Problem
from latentgp.methods.result import Fit, History
from latentgp.models import LatentGP
from latentgp.posteriors.evidence import Evidence
from latentgp.posteriors.posterior import Posterior
from latentgp.representations import Inducing
from latentgp.representations.base import LatentPosterior
from latentgp.representations.needs import Needs
from latentgp.representations.variables import spans_prior
from latentgp.rows import RowsInMemory, RowSource
from latentgp.rows.arrays import evenly
from latentgp.rows.data import Data
from latentgp.rows.source import blocks_of, counting_as
from latentgp.runtime.hashing import digest
from latentgp.runtime.mesh import gather, number_of_shards
from latentgp.runtime.processes import broadcast_from_first
from latentgp.runtime.programs import Program
from latentgp.setup.priors import search_bounds
from latentgp.site_inference.methods.base import (
    SiteMethod,
    calibrated,
    converged_sites,
    learned_model,
    start_of_search,
)
from latentgp.site_inference.methods.variational import VariationalInference
from latentgp.site_inference.search.algorithm import SiteInference
from latentgp.site_inference.search.hyperparameters import SearchResult
from latentgp.site_inference.search.profiled_bound import (
    ConvergedPosterior,
    converge,
    initial_sites,
)
from latentgp.sites.coupled import Sites

_CANDIDATES = 10_000
_SAMPLED_ROWS, _ROWS_A_SAMPLED_ONE = 4_096, 100
_ROWS_A_FEATURE = 15  # for which directions of random features can be learned


class Stochastic(Method):
    """Stochastic variational inference on batches, for data that are large or exceed memory.

    The search starts at the end of a short one on a sample of the rows, through at most 128 points,
    or at the values given, whichever has the higher bound through all. Natural parameters of q(u)
    follow natural gradients, hyper-parameters follow Adam (Kingma & Ba 2015) on the bound, with
    the likelihood's factor of u held fixed and gradients clipped at five times their root mean
    square so far. Rows are shuffled every epoch.

    Args:
        method: `VariationalInference`, `AugmentedVI` or `CollapsedVI`, with
            `Inducing` or `RandomFeatures`.
        batch_size: rows of a batch.
        epochs: at most so many passes over the rows.
        schedule: step sizes of the natural gradients: `RobbinsMonro(...)` or `Adaptive()`. None is
            `RobbinsMonro()`, or `RobbinsMonro(0.51, 1)` of the visits to a class with `classes`.
        learning_rate: of Adam at the start.
        decay: steps after which it has halved.
        classes: number of classes drawn at random for each step; for `AugmentedVI` of
            `LogisticSoftmax` with very many classes. The other latent functions are unchanged in
            that step, and the search starts at the prior. None uses all classes.
        learn_points: learn inducing points by Adam too, in units of the inputs' standard
            deviations; of `RandomFeatures` the frequencies, which take 15 rows a feature, and fit
            fewer by heart.
        tolerance: nats a row (of the bound, or of the held-out log density) by which the last
            quarter of the rounds must be better than as many before it for the search to go on,
            once every row has been read.
        patience: how many times 100 batches, or epochs where these are shorter, such a quarter has
            at least.
        held_out: share of the rows that is held out, whose mean log density is what then must
            rise; 0 holds out none.
        workers: processes that read batches at their own pace, as of `RandomFeatureVI`. With four
            or more a learning_rate of 0.03 is stable where 0.1 is not.

    Raises:
        InputError: settings outside their range; a method without sites that batches can make.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> X = np.random.default_rng(0).uniform(0, 6, 2000)
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.1))
        >>> method = lgp.Stochastic(lgp.CollapsedVI(lgp.Inducing(20)), batch_size=200, epochs=2)
        >>> result = lgp.fit(model, lgp.Data(X, np.sin(X)), key=jax.random.key(0), method=method)
        >>> result.posterior.log_evidence.kind
        'lower bound'
    """

    reads_batches: ClassVar[bool] = True

    method: SiteMethod = VariationalInference(Inducing(number=200))
    batch_size: int = eqx.field(static=True, default=1000)
    epochs: int = eqx.field(static=True, default=20)
    schedule: Schedule | None = None
    learning_rate: float = eqx.field(static=True, default=0.1)
    decay: float = eqx.field(static=True, default=100.0)
    classes: int | None = eqx.field(static=True, default=None)
    learn_points: bool = eqx.field(static=True, default=False)
    tolerance: float = eqx.field(static=True, default=1e-4)
    patience: int = eqx.field(static=True, default=3)
    held_out: float = eqx.field(static=True, default=0.0)
    workers: int = eqx.field(static=True, default=0)

    def __check_init__(self) -> None:
        check_whole(self, workers=0)
        least = dict.fromkeys(("batch_size", "epochs", "patience"), "at least 1")
        rates = {"learning_rate": "at least 0", "tolerance": "at least 0", "decay": "above 0"}
        check_ranges(self, **least, **rates, held_out="[0, 1)")
        draws_classes, by_visits = self.classes is not None, isinstance(self.steps, RobbinsMonro)
        sentences = {
            "Stochastic(classes=...) draws classes at every step, which workers cannot; leave "
            "workers out.": draws_classes and self.workers,
            "Stochastic.schedule must be RobbinsMonro(...), Adaptive() or None, got "
            f"{self.schedule!r}.": not isinstance(self.schedule, Schedule | None),
            "Stochastic(classes=...) needs fixed inducing points and step sizes by RobbinsMonro; "
            "leave learn_points out, and Adaptive.": (
                draws_classes and (self.learn_points or not by_visits)
            ),
            "Stochastic(classes=...) needs AugmentedVI with its registered augmentation and no "
            "stored summary, such as Stochastic(AugmentedVI(Inducing(200)), classes=30).": (
                draws_classes and not self.method.subsamples_classes
            ),
            f"{type(self.method).__name__} keeps sites of every row and has no batches; use "
            "Stochastic(VariationalInference(Inducing(number=200))).": (
                not getattr(self.method, "works_in_batches", False)
            ),
        }
        refuse(sentences)
        needs = Needs(
            inducing_variables=True, one_gaussian=True, dense_factors=True, held_points=True
        )
        own, instead = self.method.representation, "Inducing(number=200)"
        needs.check("Stochastic", representation=own, instead=instead)

    @classmethod
    def of(cls, method: Method, **settings: Any) -> Stochastic:
        """Batches for a method; refused if it does not support them."""
        return cls(cast(SiteMethod, method), **settings)

    @property
    def steps(self) -> Schedule:
        """Schedule of the natural-gradient step sizes."""
        if self.schedule is not None:
            return self.schedule
        return RobbinsMonro() if self.classes is None else RobbinsMonro(0.51, 1.0)

    @property
    def needs(self) -> Needs:
        return Needs(positive=True)

    def algorithm(self, model: LatentGP) -> SiteInference:
        """Site algorithm of the method; InputError if it cannot be used on the model."""
        return self._settled(model).algorithm(model)

    def _settled(self, model: LatentGP) -> SiteMethod:
        """Method with nothing left open; rows matter only where each has a coefficient."""
        return self.method.settled(model, 0)

    @property
    def site_method(self) -> SiteMethod:
        return self.method

    @property
    def spreads_rows(self) -> bool:
        return self.method.spreads_rows

    @property
    def all_rows_at_once(self) -> Method:
        return self.method

    def run(self, problem: Problem) -> Fit:
        """A Gaussian posterior from batches of rows, begun where a part of the rows leads."""
        # What only this needs takes long to import.
        from latentgp.extensions.batches.class_subsampling import (
            model_of_some,
            prior_of_some,
            some_classes,
        )
        from latentgp.extensions.batches.loop import BatchSearch, Plan
        from latentgp.extensions.batches.natural_gradient import (
            SparseInference,
            StochasticInference,
            begun,
            bound_of_rows,
        )

        model, key, source, held_out = problem.model, problem.key, problem.all_rows, None
        check_processes(source)
        if self.held_out:
            source, held_out = source.split(self.held_out)
        algorithm = self.algorithm(model)
        own = cast(Any, algorithm.representation)
        candidates = source.sample(max(_CANDIDATES, 2 * (own.number or 0)))
        ready = broadcast_from_first(
            own.initialise(candidates.X, candidates.weights, model.kernel, key)
        )
        few = max(_SAMPLED_ROWS, source.size // _ROWS_A_SAMPLED_ONE)
        sample = RowsInMemory(candidates).sample(few).divisible(number_of_shards())
        algorithm = dataclasses.replace(algorithm, representation=ready)
        scale = problem.scales_of(sample)
        space = problem.space_at(scale)
        learns = space.size > 0
        bounds = search_bounds(space, scale)
        some = self.classes
        seen = model if some is None else model_of_some(model, some, sample.X.shape[1])
        number = source.size
        source = source.part(jax.process_index(), jax.process_count())
        columns = max(sample.X.shape[1], len(ready.centres) * seen.likelihood.latent_size)
        limits = self.epochs, self.tolerance, self.patience
        plan = Plan.of(source.size, self.batch_size, *limits, columns=columns)
        kept = "learning_rate decay classes learn_points held_out"
        control = problem.control_with(
            self,
            algorithm,
            space,
            **{name: getattr(self, name) for name in kept.split()},
            schedule=self.steps,
            processes=1 if source.is_everywhere else jax.process_count(),
            batches=f"{plan.batches} of {plan.batch_size} rows, {plan.round_size} a round",
        )
        looking = algorithm
        if self.classes is None:
            rows, latent = sample.to_device(), None
            if learns:
                coarse = algorithm.coarse()
                learned = start_of_search(problem, coarse, space, bounds, rows)
                seen = learned_model(space, learned)
                # Batches go on at once; what they need is what these sites say through all points.
                latent = posterior_of_search(algorithm, seen, rows, learned)
                if latent is not None and coarse.representation is not algorithm.representation:
                    # Few points prefer smooth functions, from which batches may not find back.
                    given = converge(coarse, model, rows, initial_sites(coarse, model, rows)).sites
                    other = posterior_given_sites(algorithm, model, rows, given)
                    fresh = _unseen(candidates, few, source.total_weight).to_device()
                    starts = (seen, latent), (model, other)
                    seen, latent = max(starts, key=lambda start: _bound(algorithm, *start, fresh))
            if latent is None:
                enough = algorithm.rough() if learns else algorithm.until_converged()
                latent = converged_sites(enough, seen, rows).posterior
        else:
            looking = dataclasses.replace(self.algorithm(seen), representation=ready)
            latent = prior_of_some(looking, seen)
        space = eqx.tree_at(lambda s: s.model, space, seen)
        numbers = self.learning_rate, self.decay, source.total_weight, float(plan.batches)
        rate, decay, total, batches = (jnp.asarray(number) for number in numbers)
        spread = ready.units(sample.X) if self.learn_points else None
        inference: SparseInference = StochasticInference(
            looking, space, self.steps, rate, decay, spread, total, batches, bounds=bounds
        )
        if self.classes is not None:
            inference = some_classes(inference, model, key)
        kind = algorithm.evidence_kind(model)

        def view(state: Any) -> Posterior:
            return Posterior.gaussian(*inference.posterior_at(state), Evidence(float("nan"), kind))

        search = BatchSearch(
            inference,
            source,
            plan,
            key=key,
            control=control,
            view=view,
            held_out=None if held_out is None else partial(mean_log_density, held_out),
            workers=self.workers,
        )
        vector = jnp.asarray(space.to_vector())
        searched = search.run(begun(inference, vector, latent))
        model, latent = inference.posterior_at(searched.state)
        ready = inference.representation(searched.state)
        algorithm = dataclasses.replace(algorithm, representation=ready)
        bound, trace_term = -latent.kl, latent.trace_term
        for block in blocks_of(source, (0,), plan.rows_a_round):
            worth, lost = bound_of_rows(algorithm, model, latent, block)
            bound, trace_term = bound + worth, trace_term + lost
        latent = dataclasses.replace(latent, trace_term=trace_term)
        posterior = Posterior.gaussian(model, latent, Evidence(float(bound), kind))
        sites = gather(initial_sites(algorithm, model, sample.to_device()))
        if problem.options.learn_hyperparameters:
            posterior = calibrated(posterior, sample, sites)
        vector = np.asarray(searched.state.vector)
        ended = SearchResult(vector, sites, searched.converged, searched.reason)
        end = searched.state.steps, jnp.zeros(()), jnp.zeros((), jnp.int32)
        converged = ConvergedPosterior(latent, sites, bound, *end)
        diagnostics = diagnose(
            posterior=posterior,
            method=dataclasses.replace(self, method=self._settled(model)),
            reason=problem.reason,
            data=sample,
            passed_over=sum(r.passed_over for r in searched.rounds),
            learned=ended,
            records=searched.rounds,
            space=space,
            bounds=bounds,
            converged=converged,
            seconds=problem.seconds,
            input_names=problem.options.input_names,
        )
        if searched.asynchrony is not None:
            diagnostics = diagnostics.with_finding(searched.asynchrony)
        fit = Fit(posterior.model, posterior, History.of(searched.rounds), diagnostics)
        if self.learn_points and spans_prior(ready.centres):
            features = len(ready.centres)
            fit = fit.noted([learned_directions()])
            if learns_by_heart(number, features):
                by_heart = directions_by_heart(number, features, "leave learn_points out")
                fit = fit.warned_before([by_heart]).not_converged()
        return fit


def _unseen(candidates: Data, few: int, total: float) -> Data:
    """Candidates that a sample of so many has not, counted as all rows; the sample without others.

    Weighted as all rows the sample itself flatters whoever has learned it by heart.
    """
    sampled = evenly(candidates.size, few)
    others = np.setdiff1d(np.arange(candidates.size), sampled)
    rows = candidates.select(others if len(others) >= few // 2 else sampled)
    return counting_as(rows.evenly(few), total).divisible(number_of_shards())


def _bound(algorithm: SiteInference, model: LatentGP, latent: LatentPosterior, rows: Data) -> float:
    """Bound on the log evidence of a Gaussian, in nats; minus infinity where it is not finite."""
    from latentgp.extensions.batches.natural_gradient import bound_of_rows

    bound = float(bound_of_rows(algorithm, model, latent, rows)[0] - latent.kl)
    return bound if np.isfinite(bound) else -np.inf


def posterior_of_search(
    algorithm: SiteInference, model: LatentGP, rows: Data, learned: SearchResult
) -> LatentPosterior | None:
    """Posterior implied by the search's sites; None if of other rows or improper."""
    sites = learned.sites
    if algorithm.rule.sites_are_fixed(model.likelihood):  # the search never changes them
        sites = initial_sites(algorithm, model, rows)
    if len(sites.linear) != rows.size:
        return None
    posterior = posterior_given_sites(algorithm, model, rows, sites)
    return posterior if np.isfinite(posterior.kl) else None


def mean_log_density(held_out: Data, posterior: Posterior) -> float:
    """Mean log predictive density of held-out targets, in nats."""
    predictive = posterior.predict(held_out.X, **held_out.side_information)
    return float(np.average(predictive.log_prob(held_out.y), weights=held_out.weights))


def learns_by_heart(rows: int, features: int) -> bool:
    """Whether rows are too few for directions of random features to be learned."""
    return rows < _ROWS_A_FEATURE * features


def learned_directions(how: str = "") -> str:
    """Sentence on the log evidence where directions of random features are learned."""
    return (
        f"Directions are learned{how}, so the log evidence is that of features that fit these "
        "rows, and no bound."
    )


def directions_by_heart(rows: int, features: int, instead: str) -> str:
    """Warning of directions that are learned from few rows."""
    return (
        f"Directions of {features} features, learned from {rows} rows, fit these by heart; "
        f"{instead}, or use fewer features."
    )


def check_processes(source: RowSource) -> None:
    """Raise InputError unless several processes can share the rows out among them."""
    apart = jax.process_count() > 1 and not source.is_everywhere and not _spans_processes()
    sentences = {
        "Several processes each read a part of the files and need the devices of all; give "
        "devices=jax.devices().": apart,
        "The processes do not see the same rows; give all of them the same files, or the same "
        "arrays.": not apart and not _is_same_everywhere(source.layout),
    }
    refuse(sentences)


def _spans_processes() -> bool:
    """Whether rows are spread over devices of every process."""
    mesh = jax.sharding.get_mesh()
    over = set() if mesh.empty else {device.process_index for device in mesh.devices.flat}
    return len(over) == jax.process_count()


def _is_same_everywhere(describe: Callable[[], str]) -> bool:
    """Whether `describe` gives the same on all processes; all get the same answer."""
    if jax.process_count() == 1:
        return True
    from jax.experimental.multihost_utils import process_allgather

    own = np.frombuffer(bytes.fromhex(digest(describe())), np.uint8)
    return bool(np.ptp(np.asarray(process_allgather(own)), axis=0).max() == 0)


@Program
def posterior_given_sites(
    algorithm: SiteInference, model: LatentGP, data: Data, sites: Sites
) -> LatentPosterior:
    """Posterior given sites."""
    return algorithm.resume(model, data, sites).posterior
