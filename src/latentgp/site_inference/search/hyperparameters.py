"""Learning hyper-parameters: L-BFGS-B on the bound with the sites profiled out."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import defaultdict
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Key

from latentgp.errors import InputError
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.kernels import LatentKernel
from latentgp.representations import protocols
from latentgp.representations.learned_points import learned_steps
from latentgp.rows.data import Data
from latentgp.runtime.mesh import shard_rows
from latentgp.runtime.processes import broadcast_from_first
from latentgp.site_inference.search.algorithm import SiteInference
from latentgp.site_inference.search.profiled_bound import (
    converge,
    evaluate,
    placed,
    spread_sites,
)
from latentgp.site_inference.search.search import EndFit, EndRun, Record, Search
from latentgp.site_inference.search.starts import (
    has_several_ends,
    is_higher,
    raised,
    starting_sites,
)
from latentgp.sites.coupled import Sites
from latentgp.typing import HyperVector

_RESTART_SPREAD = 1.0
# Many rows: a first run on a part of them, whose evaluations cost next to nothing.
_THINNED_FROM = 20_000
_THINNED_ROWS = 4_096
_THINNED_EVALUATIONS = 20  # three times as many where neighbours are found again on the way
_THINNED_TOLERANCE = 1e-4
THINNED_RUN = -1
# Neighbours are found again where a run has ended, until few of them change or it rose by little;
# they are those of hyper-parameters near the start, and far away L-BFGS loses its way.
_MOST_RENEWALS, _ROUGH_ESTIMATE, _REACH = 10, 1e-3, 1.5
# An estimated gradient is not that of the estimate: at the end steps along it help little or not.
_ESTIMATED_STEPS, _FEWEST_STEPS, _ESTIMATED_RISE = 5, 3, 1e-5  # nats a row
# Variance and length-scales of a rough function are known by their ratio: on the way along it
# some iterations gain next to nothing.
_PATIENCE = 3
_ROWS_OF_A_RISE = 1e3  # at most, of groups of few levels among many rows
# Several starts: short runs from each on few rows, numbered from here downwards. What is behind,
# but rose by a sixth of that in the second half of its evaluations, has as many again.
_OPENING_EVALUATIONS, _OPENING_ROUNDS, _FASTER = 8, 3, 6.0
_CLEARLY = 1.0  # nats
OPENING_ROWS = 512
_FIRST_OPENING_RUN = -2
_FIRST_STEP, _FIRST_STEP_AFTER_THINNED = 1.0, 0.1
_FAR_BELOW = 0.02  # nats a row
LITTLE_GAIN = 10  # times what an iteration must gain
_WAYS_BACK = (0.0, 0.25, 0.5, 1.0)  # shares of the way from a start to the model's values
# "settled": no iteration gains; "no step": of a line search, nor of one by estimates; "evaluations"
# or "stopped": at a limit; "short": of a search that was to be; "outdated": what the representation
# holds is of other hyper-parameters.
EndKind = Literal[
    "settled", "no step", "no step by estimates", "evaluations", "stopped", "short", "outdated"
]
NO_STEP = "no step along the gradient raised the bound any more"
NO_STEP_OF_ESTIMATE = "no step raised the estimated bound any more"
OF_OTHER_ROWS = "and others are nearest where it ended"
OF_OTHERS = "the inducing functions were made for length-scales other than those it found"


class Ending(NamedTuple):
    """How a run has ended."""

    converged: bool  # whether by itself
    reason: str  # why, in words
    kind: EndKind


class SearchResult(NamedTuple):
    """Result of the search for hyper-parameters."""

    vector: HyperVector  # the best point of all runs; steps of learned points are behind
    sites: Sites  # where its site updates may start
    converged: bool  # whether the run that found it ended by itself
    reason: str  # why that run ended, in words
    kind: EndKind = "stopped"

    def because(self, kind: EndKind, reason: str) -> "SearchResult":
        """The same, not converged for another reason."""
        return self._replace(converged=False, kind=kind, reason=reason)


class Opening(NamedTuple):
    """Short searches before the long one, from several starts; sites are the likelihood itself."""

    others: tuple[HyperVector, ...]  # where the starts beside the first are, unconstrained
    rows: Data  # those that it looks at


def learn(
    algorithm: SiteInference,
    space: ParameterSpace,
    data: Data,
    *,
    bounds: tuple[HyperVector, HyperVector],
    opening: Opening | None = None,
    second: HyperVector | None = None,
    restarts: int,
    tolerance: float,
    search: Search,
    key: Key[jax.Array, ""],
) -> SearchResult:
    """Maximise the bound plus log prior over hyper-parameters.

    The first run starts at the model's own values, or where a run on a thinned set of rows has
    ended, or a short one from another start of an opening, if that is clearly better; a second
    one, if asked for, where it is told to; each restart at a draw around the model's values. The
    best point of all runs on all rows is kept, so a restart never makes the result worse.
    """
    stored = search.recall()
    stored = None if stored is None else shard_rows(stored)
    points = learned_steps(algorithm.representation)
    first = np.append(space.to_vector(), points)
    anywhere = np.full(len(points), np.inf)
    bounds = np.append(bounds[0], -anywhere), np.append(bounds[1], anywhere)
    runs = _Runs(algorithm, space, first, bounds, search)
    try:
        traits = algorithm.representation.traits
        whole = traits.one_coefficient_a_row or traits.needs_rows
        if data.size > _THINNED_FROM and not whole:
            start, sites = runs.on_thinned_rows(first, data, stored)
            first_step = _FIRST_STEP_AFTER_THINNED
        else:
            start, first_step = first, _FIRST_STEP
            if opening is not None:
                others = tuple(np.append(other, points) for other in opening.others)
                start, first_step = runs.opened(first, opening._replace(others=others), data)
            seen = min(data.size, traits.terms or data.size)
            moved = not algorithm.rule.sites_are_fixed(space.model.likelihood)
            dense = traits.one_coefficient_a_row and traits.dense_factors
            few = _THINNED_ROWS if seen > _THINNED_FROM and not traits.needs_all_rows else 0
            few = OPENING_ROWS if dense and moved and data.size > 2 * OPENING_ROWS else few
            if few:
                start, first_step = runs.on_a_part(start, data, few), _FIRST_STEP_AFTER_THINNED
            sites = starting_sites(algorithm, space.model, data)
        if stored is not None and search.has_reached(0):
            sites = search.fitting(stored, sites)
        sites = runs.one(start, data, sites, 0, tolerance, first_step)
        further = [] if second is None else [np.append(second, points)]
        for restart in range(1, restarts + 1):
            noise = jax.random.normal(jax.random.fold_in(key, restart), (space.size,))
            further.append(first + _RESTART_SPREAD * np.append(noise, points))
        for run, start in enumerate(further, 1):
            sites = runs.one(start, data, sites, run, tolerance, _FIRST_STEP)
        runs.again_if_higher(data, len(further) + 1, tolerance)
    except EndFit:
        pass
    except BaseException:
        if jax.process_count() == 1:  # of several each has a part of the sites
            search.run.save(runs.sites)
        raise
    finally:
        search.run.close()
    search.run.save(runs.sites)
    best = search.best()
    return SearchResult(best.vector, runs.sites, *runs.endings[best.restart])


def on_some_rows(
    algorithm: SiteInference, kernel: LatentKernel, data: Data, rows: int
) -> tuple[SiteInference, Data]:
    """Algorithm and rows of a search that looks at so many rows.

    Where the evidence is a sum over rows it takes their terms, in which they see all rows;
    otherwise these rows alone, as the representation picks them, with the weights that they have.
    """
    given = algorithm.representation
    some, own = protocols.on_some_rows(given, data, kernel, rows)
    # What was made for all rows and serves some does so by the program of all.
    is_of_all = own is given and given.traits.needs_rows
    some = some.padded(data.size) if is_of_all else some
    return dataclasses.replace(algorithm, representation=own), some


def thinned(data: Data) -> Data:
    """Evenly spaced rows, weighted to count as much as all of them."""
    chosen = jnp.linspace(0, data.size - 1, _THINNED_ROWS).astype(int)
    part = data.select(chosen)
    weights = jnp.ones(_THINNED_ROWS) if part.weights is None else part.weights
    return part.reweighted(weights * data.total_weight / jnp.sum(weights))


class _NoBoundError(InputError):
    """No bound at the start of a run."""


class _NoStep(Exception):
    """A line search that has raised no estimate."""


def likely_gain(at: Record, bounds: tuple[HyperVector, HyperVector]) -> float:
    """Squared norm of the gradient at an evaluation, without what leads out of bounds.

    The curvature of the bound grows with the rows: over their weight it is what there is to be
    gained, in nats.
    """
    ahead = np.clip(at.vector + np.sign(at.gradient), *bounds)
    return float(np.sum(np.where(ahead != at.vector, at.gradient, 0.0) ** 2))


@dataclasses.dataclass
class _Runs:
    """Runs of L-BFGS-B that share everything but their starts and rows."""

    _algorithm: SiteInference
    _space: ParameterSpace
    _first: HyperVector  # the model's own values, with steps of points that are learned
    _bounds: tuple[HyperVector, HyperVector]
    _search: Search
    endings: dict[int, Ending] = dataclasses.field(default_factory=dict)
    sites: Any = None  # sites once a run has begun
    # of short runs, and of those that go on with the same bound: evaluations by point
    _known: Any = dataclasses.field(default_factory=partial(defaultdict, dict))
    _opening_evaluations: int = _OPENING_EVALUATIONS
    # of the bound in each hyper-parameter, a row, where a run on some rows ended, for the next
    _curvatures: HyperVector | None = None

    def one(
        self,
        start: HyperVector,
        data: Data,
        sites: Sites,
        run: int,
        tolerance: float,
        first_step: float,
    ) -> Sites:
        """One run from a start; gives its final sites.

        A representation that holds something of every row is made ready at the start, and where
        the run ends: there it goes on, its evaluations those of another bound.
        """
        self.sites = sites
        base = self._algorithm
        own = base.representation.for_rows(data.X, data.weights, self._kernel(start))
        self._algorithm = dataclasses.replace(base, representation=own)
        try:
            renews = own.traits.sees_near_rows and run > _FIRST_OPENING_RUN
            climb = self._climb_and_renew if renews else self._climb
            climb(start, data, run, tolerance, first_step)
        finally:
            self._algorithm = base
        return self.sites

    def again_if_higher(self, data: Data, run: int, tolerance: float) -> None:
        """One more run from the end of the others, if sites there have a higher end than theirs."""
        base, space = self._algorithm, self._space
        if not has_several_ends(base, space.model):
            return
        best = self._search.best().vector
        if not self._search.has_reached(run):
            model = space.to_model(jnp.asarray(best))
            algorithm = placed(base, space, jnp.asarray(best))
            own = algorithm.representation.for_rows(data.X, data.weights, model.kernel)
            algorithm = dataclasses.replace(algorithm, representation=own)
            usual = converge(algorithm, model, data, self.sites)
            higher = raised(algorithm, model, data, usual)
            if not is_higher(higher.bound, usual.bound):
                return
            self.sites = higher.sites
        self.one(best, data, self.sites, run, tolerance, _FIRST_STEP_AFTER_THINNED)

    def _climb_and_renew(
        self, start: HyperVector, data: Data, run: int, tolerance: float, first_step: float
    ) -> None:
        """Roughly, as long as what the representation holds of the rows changes, and to the end.

        What it holds has settled where a run that began with it anew rose by little.
        """
        estimated = self._algorithm.representation.traits.estimates_evidence
        rough = _ROUGH_ESTIMATE if estimated else _THINNED_TOLERANCE
        rough, renewals = max(tolerance, rough), 0
        little, reach = rough * data.total_weight, _REACH if estimated else np.inf
        while True:
            begun = self._climb(start, data, run, rough, first_step, reach)
            ended, reason, kind = self.endings[run]
            best = self._search.best(run)
            leads_on = ended and bool(np.max(np.abs(best.vector - begun)) >= 0.999 * reach)
            start, first_step = best.vector, _FIRST_STEP_AFTER_THINNED
            own = again = self._algorithm.representation
            settled = renewals > 0 and not leads_on and self._search.rise(run) <= little
            if ended and not settled:
                again = own.for_rows(data.X, data.weights, self._kernel(start))
            if again is not own and renewals < _MOST_RENEWALS:
                self._algorithm = dataclasses.replace(self._algorithm, representation=again)
                self._search.began_anew(run)
                renewals += 1
            elif leads_on:
                self._known[run][start.tobytes()] = best
            elif not ended or rough <= tolerance or self._promises_nothing(run, data):
                break
            else:
                self._known[run][start.tobytes()], rough = best, tolerance
        how_often = f"{renewals + 1} times" if renewals else "once"
        how_often += f", as often as they may be, {OF_OTHER_ROWS}" if again is not own else ""
        reason = f"{reason}; neighbours were found {how_often}"
        kind = kind if again is own else "stopped"
        self.endings[run] = Ending(ended and again is own, reason, kind)

    def _promises_nothing(self, run: int, data: Data) -> bool:
        """Whether no step raised an estimate whose gradient promises less than a rise that counts.

        A further climb would begin at the same point, along that gradient.
        """
        stuck = self.endings[run].kind == "no step by estimates"
        return stuck and self._likely_gain(run) <= _ESTIMATED_RISE * data.total_weight**2

    def _kernel(self, vector: HyperVector) -> Any:
        return self._space.to_model(jnp.asarray(vector)).kernel

    def _climb(
        self,
        start: HyperVector,
        data: Data,
        run: int,
        tolerance: float,
        first_step: float,
        reach: float = np.inf,
    ) -> HyperVector:
        """Where a run began: at a start, or where there is a bound on the way to the model's own.

        What is best for some rows, with next to no noise, may leave no Cholesky factor of all.
        """
        own = self._first
        starts = [np.clip(start + share * (own - start), *self._bounds) for share in _WAYS_BACK]
        starts = starts[:1] if np.array_equal(start, own) else starts
        begun = self._search.next_replayed(run)  # of a resumed run, which had a bound there
        if begun is not None:
            starts = [s for s in starts if np.array_equal(s, begun)] or starts[:1]
        *others, last = starts
        for from_here in others:
            with contextlib.suppress(_NoBoundError):
                self._climb_from(from_here, data, run, tolerance, first_step, reach)
                return from_here
        self._climb_from(last, data, run, tolerance, first_step, reach)
        return last

    def _climb_from(
        self,
        start: HyperVector,
        data: Data,
        run: int,
        tolerance: float,
        first_step: float,
        reach: float = np.inf,
    ) -> None:
        """L-BFGS-B from a start until an iteration gains next to nothing.

        Its first step is the gradient itself, hundreds of nats for many rows, so the objective is
        divided by what makes that step `first_step` long.
        """
        from scipy.optimize import minimize  # takes long to import

        traits = self._algorithm.representation.traits
        estimated = traits.estimates_evidence
        careful = traits.needs_rows and not estimated
        counted = min(data.total_weight, _ROWS_OF_A_RISE) if careful else data.total_weight
        enough = max(tolerance, _ESTIMATED_RISE if estimated else 0.0) * counted
        reached, rise, still = -np.inf, np.inf, 0
        last = traits.sees_near_rows and not estimated and tolerance < _THINNED_TOLERANCE
        patience = _PATIENCE if last else 1
        options = {"ftol": 0.0, "gtol": 1e-9, "maxfun": 100_000, "maxiter": 100_000}
        options["maxls"] = _ESTIMATED_STEPS if estimated else 20
        at_most = None
        if run == THINNED_RUN:
            several = traits.needs_rows or traits.sees_near_rows
            at_most = _THINNED_EVALUATIONS * (3 if several else 1)
        low, high = self._bounds
        within = np.maximum(low, start - reach), np.minimum(high, start + reach)
        known, unit, tried = self._known[run], 0.0, -1
        sizes = np.ones_like(start)  # of a step of one
        if run <= _FIRST_OPENING_RUN:
            at_most = self._opening_evaluations
        else:
            del self._known[run]

        def objective(step: HyperVector) -> tuple[float, HyperVector]:
            nonlocal unit, tried
            if estimated and tried >= _FEWEST_STEPS and without_step().converged:
                raise _NoStep
            tried += 1
            vector = np.clip(start + step / sizes, low, high)
            record = known.get(vector.tobytes()) or self._search.replay(vector, run, at_most)
            record = record or self._evaluate(vector, data, run)
            if run <= _FIRST_OPENING_RUN:
                known[vector.tobytes()] = record
            unit = unit or max(float(np.linalg.norm(record.gradient / sizes)) / first_step, 1e-12)
            return -record.value / unit, -record.gradient / sizes / unit

        def stand_still(intermediate_result: Any) -> None:
            nonlocal reached, rise, still, tried
            value = -unit * float(intermediate_result.fun)
            rise, reached = value - reached, value
            still, tried = still + 1 if rise <= enough else 0, 0
            if still == patience:
                raise StopIteration

        def without_step() -> Ending:
            gain = self._likely_gain(run, within) / data.total_weight
            if not estimated:
                return Ending(gain <= LITTLE_GAIN * enough, NO_STEP, "no step")
            reason = f"{NO_STEP_OF_ESTIMATE}, whose gradient promises {gain:.2g} nats"
            little = LITTLE_GAIN * _ESTIMATED_RISE * counted
            return Ending(gain <= little, reason, "no step by estimates")

        try:
            if self._curvatures is not None:
                whole, self._curvatures = data.total_weight * self._curvatures, None
                sizes, unit = np.sqrt(np.maximum(whole, 1.0)), 1.0
            elif careful:  # a slope at the start, of order one unit from the end, is the curvature
                first = self._search.replay(start, run, at_most)
                first = first or self._evaluate(start, data, run)
                known[start.tobytes()] = first
                sizes = np.sqrt(np.maximum(np.abs(first.gradient), 1.0))
            found = minimize(
                objective,
                np.zeros_like(start),
                jac=True,
                method="L-BFGS-B",
                bounds=sizes[:, None] * (np.stack(within, axis=1) - start[:, None]),
                callback=stand_still,
                options=options,
            )
            if run == THINNED_RUN:
                spread = np.diagonal(found.hess_inv.todense()) / unit / sizes**2
                self._curvatures = 1 / (spread * data.total_weight)
            if still == patience:
                little = f"an iteration gained less than {enough:.1e} nats"
                self.endings[run] = Ending(True, little, "settled")
            elif found.success:
                self.endings[run] = Ending(True, "the gradient vanished", "settled")
            else:
                self.endings[run] = without_step()
        except _NoStep:
            self.endings[run] = without_step()
        except EndRun as end:
            self.endings[run] = Ending(False, str(end), "evaluations")
        except EndFit as end:
            self.endings[run] = Ending(False, str(end), "stopped")
            raise

    def on_a_part(self, start: HyperVector, data: Data, rows: int) -> HyperVector:
        """End of a run on some of the rows, with the weights that they have."""
        whole = self._algorithm
        self._algorithm, part = on_some_rows(whole, self._kernel(start), data, rows)
        try:
            return self._shortly(start, part, THINNED_RUN)
        finally:
            self._algorithm = whole

    def _shortly(
        self, start: HyperVector, part: Data, run: int, stored: Sites | None = None
    ) -> HyperVector:
        """End of a run on part of the rows, from stored sites if there are any."""
        sites = starting_sites(self._algorithm, self._space.model, part)
        sites = sites if stored is None else stored
        self.one(start, part, sites, run, _THINNED_TOLERANCE, _FIRST_STEP)
        return self._search.best(run).vector

    def opened(self, first: HyperVector, opening: Opening, data: Data) -> tuple[HyperVector, float]:
        """Start of the long run, and the length of its first step.

        A short run from another start has to end clearly higher than one from the first. If none
        does, and all looked at a part of the rows, the long run begins at the first start
        again: runs in the same mode of a part end at no better place for all rows.

        Few evaluations do not tell which mode is higher: a run that is behind goes on beside the
        best one as long as it rises fast enough.
        """
        every = enumerate((first, *opening.others))
        starts = {_FIRST_OPENING_RUN - number: start for number, start in every}
        on, leader = list(starts), _FIRST_OPENING_RUN
        for turn in range(1, _OPENING_ROUNDS + 1):
            for run in on:
                self._opening_evaluations = turn * _OPENING_EVALUATIONS
                self._shortly(starts[run], opening.rows, run)
            leader = max(starts, key=lambda run: self._search.best(run).value)
            on = [run for run in on if run == leader or self._may_pass(run, leader)]
            if len(on) == 1 or leader not in on:
                break
        best = self._search.best(leader)
        is_other = best.value > self._search.best(_FIRST_OPENING_RUN).value + _CLEARLY
        if is_other or opening.rows.size == data.size:
            return best.vector, _FIRST_STEP_AFTER_THINNED
        return first, _FIRST_STEP

    def _may_pass(self, run: int, leader: int) -> bool:
        """Whether a short run that has not ended rose by what it is behind another just now."""
        values = [record.value for record in self._known[run].values()]
        if self.endings[run].converged or len(values) < self._opening_evaluations:
            return False
        rise = max(values) - max(values[: -(_OPENING_EVALUATIONS // 2)])
        behind = self._search.best(leader).value - max(values)
        return rise > max(_CLEARLY, behind / _FASTER)

    def on_thinned_rows(
        self, start: HyperVector, data: Data, stored: Sites | None
    ) -> tuple[HyperVector, Sites]:
        """End of a run on a subset, weighted as all rows; with sites for all rows."""
        part = thinned(data)
        stored = None if self._search.has_reached(0) else stored
        vector = self._shortly(start, part, THINNED_RUN, stored)
        model = self._space.to_model(jnp.asarray(vector))
        algorithm = placed(self._algorithm, self._space, jnp.asarray(vector))
        return vector, spread_sites(algorithm, model, part, self.sites, data)

    def _likely_gain(self, run: int, bounds: Any = None) -> float:
        """That of a run's best point; the bounds are the climb's own, or those of the search."""
        return likely_gain(self._search.best(run), bounds or self._bounds)

    def _evaluate(self, vector: HyperVector, data: Data, run: int) -> Record:
        algorithm = self._algorithm.rough() if run == THINNED_RUN else self._algorithm
        result = evaluate(algorithm, self._space, jnp.asarray(vector), data, self.sites)
        value, bound, gradient = broadcast_from_first((result.value, result.bound, result.gradient))
        value, gradient = float(value), np.array(gradient)
        seen = [r.value for r in self._search.records if r.restart == run]
        if not (np.isfinite(value) and np.all(np.isfinite(gradient))):
            if not seen:
                raise _NoBoundError(
                    "The bound is not a finite number at the start of the search; start from other "
                    "values, or change the units of the data."
                )
            # Far outside: far below everything seen, so that the line search steps back.
            value, gradient = max(seen) - 1e3 * (1 + abs(max(seen))), np.zeros_like(vector)
        if not seen or value > max(seen) - _FAR_BELOW * data.size:
            # Sites of a point that the search will leave at once would only mislead the next.
            self.sites = result.sites
        record = Record(vector.copy(), value, float(bound), gradient, 0.0, run)
        return self._search.report(record, self.sites)
