"""The search for hyper-parameters with the mixture at its best; what all ascents keep."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial
from itertools import chain, count, islice
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from latentgp.extensions.black_box.mixtures.bound import MixtureBound
from latentgp.extensions.black_box.mixtures.family import GaussianMixture
from latentgp.extensions.black_box.mixtures.natural import profiled
from latentgp.numerics.trends import has_stopped, last_rise
from latentgp.runtime.checkpoint import state_in, tensors_of
from latentgp.runtime.loop import Algorithm, Steps, run_loop
from latentgp.runtime.progress import Run, RunControl, RunProgress
from latentgp.site_inference.search.hyperparameters import LITTLE_GAIN, NO_STEP, likely_gain
from latentgp.site_inference.search.search import EndFit, EndRun, Record, Search
from latentgp.typing import Array, RandomKey

_PIECE = 20  # steps in a compiled call
_MOST_STEPS, _MOST_ALONE = 200, 1000  # of an ascent at some hyper-parameters, at the only ones
_WORTH = 0.1  # nats that the bound may still rise by
_STILL_ROSE = "the mixture still rose after {} steps"


class SlopeHistory(NamedTuple):
    """History of some steps along slopes."""

    bound: float
    value: float  # bound plus log prior
    seconds: float
    restart: int


@dataclasses.dataclass
class SearchState:
    """The end of a search, or where it is."""

    vector: Float[np.ndarray, "H"]
    mixture: GaussianMixture
    records: list[Any] = dataclasses.field(default_factory=list)  # of all evaluations
    steps: int = 0  # of the mixture, in all
    passed_over: int = 0  # those that changed nothing
    failed: int = 0  # values of log p that were not finite
    rise: float = 0.0  # nats gained by the last step, relative to the bound
    reason: str = ""  # why it ended; empty while it goes on
    converged: bool = False  # whether by itself


class SlopeSearch(Algorithm[Any]):
    """Steps along slopes from a first state; what was found is brought up to date."""

    phase: ClassVar[str] = "learning"

    def __init__(self, found: SearchState, first: Any, *settings: Any):
        self.found, self._first, self.settings = found, first, settings

    def init(self) -> Any:
        return self._first

    def to_tensors(self, state: Any) -> dict[str, np.ndarray]:
        found = self.found
        if not found.records:
            return {}
        looked = np.array([(own.bound, own.value, own.seconds) for own in found.records])
        counts = np.array([found.steps, found.passed_over, found.failed])
        return {**tensors_of(state), "looked": looked, "counts": counts}

    def from_tensors(self, stored: dict[str, np.ndarray]) -> Any:
        found, state = self.found, state_in(stored, self._first)
        looked = stored["looked"].tolist()  # earlier files have no value apart
        found.records = [SlopeHistory(own[0], own[-2], own[-1], 0) for own in looked]
        found.steps, found.passed_over, found.failed = stored["counts"].tolist()
        return state

    def reported(
        self, bound: float, value: float, unit: str, made: int, total: int, run: Run
    ) -> RunProgress:
        """The step that ends at a bound, with its value plus the log prior, which are kept."""
        self.found.records.append(SlopeHistory(bound, value, run.seconds, 0))
        return RunProgress(
            self.phase,
            made,
            total,
            unit=unit,
            at_most=unit == "round",
            values=partial(dict, bound=bound),
            details={"made": made},
        )


def search_along_slopes(search: SlopeSearch, steps: int | None, control: RunControl) -> Any:
    """The last state; `found` has why it is the last, after so many steps if they are counted."""
    found = search.found
    state, reason = run_loop(search, control)
    if found.steps == steps:
        values = np.array([record.value for record in found.records])
        rise, error = last_rise(values[np.isfinite(values)])
        found.converged = has_stopped(rise, error, _WORTH)
        rises = f"the bound still moved, by {rise:+.2g} nats between their last two quarters"
        few = "its values are too few to tell whether the bound rises; raise steps"
        told = rises if np.isfinite(rise) else few
        found.reason = f"all {steps} steps were made" + ("" if found.converged else f", and {told}")
    elif reason is not None:
        found.converged, found.reason = False, reason
    return state


class MixtureStep(NamedTuple):
    """Report of steps along slopes."""

    bound: Float[Array, "T"]  # estimates, in nats
    value: Float[Array, "T"]  # the same plus the log prior
    failed: Float[Array, "T"]  # values of log p that were not finite
    passed_over: Bool[Array, "T"]  # whether it changed nothing, as it was not finite


class StepSearch(SlopeSearch):
    """Pieces of 20 steps, of batches of rows or of all."""

    def steps(self, state: Any, run: Run) -> Steps[Any]:
        found, (taken, rows, steps, batch_size, key) = self.found, self.settings
        places = batches(rows, batch_size, key, found.steps)
        while (made := found.steps) < steps:
            number = min(_PIECE, steps - made)
            keys = jax.random.split(jax.random.fold_in(key, made), number)
            own = None if places is None else jnp.asarray(np.stack(list(islice(places, number))))
            state, told = taken(state, own, keys)
            found.steps += number
            found.failed += int(np.sum(told.failed))
            found.passed_over += int(np.sum(told.passed_over))
            means = float(np.mean(told.bound)), float(np.mean(told.value))
            yield state, self.reported(*means, "step", found.steps, steps, run)


def batches(rows: int, size: int | None, key: RandomKey, drawn: int) -> Iterator[np.ndarray] | None:
    """Places of each batch's rows after those drawn, shuffled every pass; None for all rows."""
    if size is None or size >= rows:
        return None
    random = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    orders = (random.permutation(rows)[: rows // size * size] for _ in count())
    return islice(chain.from_iterable(order.reshape(-1, size) for order in orders), drawn, None)


class CheckpointState(NamedTuple):
    """State in the checkpoint of a search, beside its evaluations."""

    log_weights: Float[Any, "K"]  # of the mixture that the next evaluation starts from
    mean: Float[Any, "K Q M"]  # of it
    precision: Float[Any, "K Q M *M"]  # of it
    told: Float[np.ndarray, "4"]  # steps, failed values, last rise, if the best ascent ended


class ProfiledSearch:
    """L-BFGS-B in the hyper-parameters, the bound at its best over mixtures everywhere.

    A resumed search is answered from the evaluations that were kept. Expectations have no noise;
    what was found is brought up to date. An iteration that gains less than the tolerance, in nats,
    ends a run, as do so many evaluations.
    """

    def __init__(
        self,
        bound: MixtureBound,
        found: SearchState,
        limits: tuple[Float[np.ndarray, "H"], Float[np.ndarray, "H"]],
        *,
        tolerance: float,
        at_most: int,
        control: RunControl,
        key: RandomKey,
    ):
        self.bound, self.found, self.key = bound, found, key
        self._limits, self._tolerance = limits, tolerance
        self._rows = bound.data.total_weight
        self._search = Search(max_evaluations=at_most, control=control)
        self._ended = True  # the ascent at the best hyper-parameters
        kept = self._search.recall(CheckpointState._fields, CheckpointState)
        if kept is not None:
            found.mixture = GaussianMixture(*map(jnp.asarray, kept[:3]))
            found.steps, found.failed = map(int, kept.told[:2])
            found.rise, self._ended = float(kept.told[2]), bool(kept.told[3])

    def has_reached(self, run: int) -> bool:
        """Whether evaluations of a run, or of a later one, are known from a checkpoint."""
        return self._search.has_reached(run)

    def run(self, number: int) -> bool:
        """One run from where things are, the last number 0; whether another may follow."""
        found, search = self.found, self._search
        found.converged, found.reason, goes_on = False, "", True
        try:
            self._climb(number)
        except EndRun as end:
            found.reason = str(end)
        except EndFit as end:
            found.reason, goes_on = str(end), False
        finally:
            found.records = search.records
            search.run.close()
            search.run.save(self._reached())
        return goes_on

    def _climb(self, number: int) -> None:
        from scipy.optimize import minimize  # takes long to import

        found, unit, best, reached = self.found, 0.0, -np.inf, -np.inf

        def evaluate(vector: Float[np.ndarray, "H"]) -> Record:
            nonlocal best
            record = self._search.replay(vector, number) or self._evaluate(vector, best, number)
            if np.isfinite(record.bound) and record.value > best:
                best, found.vector = record.value, record.vector
            return record

        def objective(vector: Float[np.ndarray, "H"]) -> tuple[float, Float[np.ndarray, "H"]]:
            nonlocal unit
            record = evaluate(vector)
            unit = unit or max(float(np.linalg.norm(record.gradient)), 1e-12)
            return -record.value / unit, -record.gradient / unit

        def stand_still(intermediate_result: Any) -> None:
            nonlocal reached
            value = -unit * float(intermediate_result.fun)
            rise, reached = value - reached, value
            if rise <= self._tolerance:
                found.reason = f"an iteration gained less than {self._tolerance:.1e} nats"
                raise StopIteration

        if not found.vector.size:
            evaluate(found.vector)
            found.converged = bool(np.isfinite(best)) and self._ended
            found.reason = "hyper-parameters were not learned"
            if not self._ended:
                found.reason = _STILL_ROSE.format(_MOST_ALONE)
            return
        end = minimize(
            objective,
            np.clip(found.vector, *self._limits),
            jac=True,
            method="L-BFGS-B",
            bounds=np.stack(self._limits, axis=1),
            callback=stand_still,
            options={"ftol": 0.0, "gtol": 1e-9, "maxiter": 100_000, "maxfun": 100_000},
        )
        found.converged = bool(np.isfinite(best)) and self._ended
        if not self._ended:
            found.reason = _STILL_ROSE.format(_MOST_STEPS)
        elif not (found.reason or end.success):
            gain = likely_gain(self._search.best(number), self._limits)
            found.converged &= gain <= LITTLE_GAIN * self._tolerance * self._rows
            found.reason = NO_STEP
        elif not found.reason:
            found.reason = "the gradient vanished"

    def _evaluate(self, vector: Float[np.ndarray, "H"], best: float, number: int) -> Record:
        """Bound and gradient, from the mixture at the best hyper-parameters of the run."""
        found = self.found
        most, share = (_MOST_STEPS, 1e-3) if vector.size else (_MOST_ALONE, 0.1)
        steps, enough = jnp.asarray(most), jnp.asarray(share * self._tolerance)
        at = profiled(self.bound, jnp.asarray(vector), found.mixture, enough, steps, self.key)
        value, gradient = float(at.value), np.asarray(at.gradient)
        bound = float(at.climb.at.terms.bound)
        found.steps += int(at.climb.steps)
        found.failed += int(at.climb.at.terms.failed)
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            # Far below everything seen, so that the line search steps back.
            value = best - 1e3 * (1 + abs(best)) if np.isfinite(best) else -1e300
            bound, gradient = float("nan"), np.zeros_like(vector)
        elif value > best:
            self._ended = int(at.climb.steps) < most or float(at.climb.rise) <= self._tolerance
            found.mixture = at.climb.at.mixture
            found.rise = float(at.climb.rise) / max(abs(bound), 1.0)
        record = Record(np.array(vector), value, bound, gradient, 0.0, number)
        return self._search.report(record, self._reached())

    def _reached(self) -> CheckpointState:
        found = self.found
        told = np.array([found.steps, found.failed, found.rise, self._ended], float)
        return CheckpointState(*found.mixture, told)
