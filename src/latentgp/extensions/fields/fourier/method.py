"""Regression with Gaussian noise by equispaced Fourier functions: rows are read once."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from latentgp.extensions.fields.fourier.representation import LEAST_OPEN, EquispacedFourier
from latentgp.extensions.fields.fourier.sums import MOST_OF_NOISE, PlaceSums, sums_of
from latentgp.extensions.inter_domain.sums import check_summable, ranges_of
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.methods.problem import Problem
from latentgp.models import LatentGP
from latentgp.representations import Representation
from latentgp.rows import RowsInMemory, RowSource
from latentgp.rows.arrays import evenly
from latentgp.rows.data import Data, MergedRows
from latentgp.runtime.x64 import double_precision
from latentgp.site_inference.methods.base import (
    SearchOutcome,
    converged_sites,
    learned_model,
)
from latentgp.site_inference.methods.exact import CollapsedVI, ExactGP
from latentgp.site_inference.search.algorithm import SiteInference
from latentgp.site_inference.search.hyperparameters import SearchResult, learn
from latentgp.site_inference.search.profiled_bound import evaluate
from latentgp.site_inference.search.search import Search
from latentgp.typing import Inputs, RandomKey

_MOST_RENEWALS = 6
_SOME_ROWS = 900
_GAIN = 0.002  # nats a row
_BY_ROWS = "noise is too low for Fourier functions, so the covariance of the rows was factorised"


class FourierGP(CollapsedVI):
    """Gaussian noise through equispaced Fourier functions: O(N) once, then nothing of N.

    Rows are summed by non-uniform fast Fourier transforms; an evaluation of the evidence costs some
    dozen products of O(M log M). Where the hyper-parameters that a search finds need other
    frequencies, the sums are made anew and the search goes on from there. Up to 900 rows that are
    found to have next to no noise keep the exact process, in which their covariance is factorised.

    Args:
        representation: how many frequencies, and how systems are solved.
    """

    representation: Representation = EquispacedFourier()

    def summed(
        self, algorithm: SiteInference, model: LatentGP, data: Data
    ) -> tuple[SiteInference, Data]:
        own: Any = algorithm.representation
        if own.sums is None:
            check_summable(model, data)
            own = dataclasses.replace(own, sums=sums_of(own, RowsInMemory(data)))
        return dataclasses.replace(algorithm, representation=own), own.sums.sample

    def searched(self, problem: Problem, around: ParameterSpace | None = None) -> SearchOutcome:
        """The most probable hyper-parameters, by frequencies that are enough for them.

        The search starts where that of the exact process on some rows has ended. Where those that
        it then finds need other frequencies, it goes on with these.
        """
        data = problem.data
        algorithm = self.algorithm(problem.model)
        asked: Any = algorithm.representation
        own = asked.initialise(data.X, data.weights, problem.model.kernel, problem.key)
        learning, given = problem.space.size > 0, asked.grid is not None
        if learning and not given:
            begun = self._on_some_rows(problem)
            if isinstance(begun, SearchOutcome):
                return begun
            problem, kernel = begun, begun.model.kernel
            own = asked.initialise(data.X, data.weights, kernel, problem.key)
        again = None if given else own.renewed(problem.model)
        records, renewals = list[Any](), 0
        while True:
            own = again or own
            algorithm = dataclasses.replace(algorithm, representation=own)
            algorithm, some = self.summed(algorithm, problem.model, data)
            rows = some.to_device()
            control = problem.control_with(self, algorithm, problem.space)
            search = Search(max_evaluations=problem.options.max_evaluations, control=control)
            model, learned, again = problem.model, None, None
            if not learning:
                break
            learned = learn(
                algorithm,
                problem.space,
                rows,
                bounds=problem.bounds(allows_little_noise=False),
                search=search,
                key=problem.key,
                restarts=problem.options.restarts,
                tolerance=problem.options.tolerance,
            )
            model, reached = learned_model(problem.space, learned), search.best().bound
            search.records[:0] = records
            records = search.records
            if not given:
                found = learned, reached
                again = own.renewed(model) or self._higher(problem, algorithm, rows, *found)
            if again is None or renewals == _MOST_RENEWALS:
                break
            problem, renewals = dataclasses.replace(problem, model=model), renewals + 1
        space, bounds = problem.space, problem.bounds(allows_little_noise=False)
        converged = converged_sites(algorithm, model, rows)
        found = SearchOutcome(algorithm, space, bounds, rows, model, learned, converged, search)
        return found if again is None else found.unsettled()

    def _on_some_rows(self, problem: Problem) -> Problem | SearchOutcome:
        """The problem from where the exact process on some rows has ended.

        Its own end where these are all rows, and have less noise than functions can tell.
        """
        some = problem.data.select(at_three_scales(problem.data.X, _SOME_ROWS))
        rows = MergedRows(some, some, np.arange(some.size))
        part = dataclasses.replace(problem, rows=rows).with_options(checkpoint=None)
        found = ExactGP()._searched(part)
        model, own = found.model, self._noise(found.model)
        # Frequencies leave open some of the prior variance: less noise is not told from it.
        least = LEAST_OPEN * float(model.kernel.diagonal(jnp.asarray(some.X[:1]))[0])
        too_low = MOST_OF_NOISE * own < least
        if too_low and some.size == problem.data.size and found.learned is not None:
            reason = f"{found.learned.reason}; {_BY_ROWS}"
            return found._replace(learned=found.learned._replace(reason=reason))
        if own < least and own != self._noise(problem.model):  # it is learned
            model = eqx.tree_at(self._noise, model, np.asarray(least))
        return dataclasses.replace(problem, model=model).with_options(restarts=0)

    @staticmethod
    def _noise(model: LatentGP) -> Any:
        return model.likelihood.noise_variance  # pyright: ignore

    def _higher(
        self,
        problem: Problem,
        algorithm: SiteInference,
        rows: Data,
        learned: SearchResult,
        reached: float,
    ) -> EquispacedFourier | None:
        """More functions, if by them the evidence of what was learned is clearly higher.

        What few functions leave open of rough data counts as noise, and the search ends there.
        """
        own: Any = algorithm.representation
        if (finer := own.finer()) is None:
            return None
        algorithm = dataclasses.replace(algorithm, representation=finer)
        algorithm, _ = self.summed(algorithm, problem.model, problem.data)
        vector = jnp.asarray(learned.vector)
        found = evaluate(algorithm, problem.space, vector, rows, learned.sites)
        ready: Any = algorithm.representation
        return ready if found.bound - reached > _GAIN * problem.data.total_weight else None


def at_three_scales(X: Inputs, number: int) -> Int[np.ndarray, "rows"]:
    """Numbers of rows: a third from all over, a third near one place, the others in between.

    Together they tell of length-scales between the distance of neighbours and the whole range.
    """
    X = np.asarray(X)
    if len(X) <= number:
        return np.arange(len(X))
    third, ranges = number // 3, np.ptp(X, axis=0)
    scaled = (X - np.median(X, axis=0)) / np.where(ranges > 0, ranges, 1.0)
    middle = scaled[np.argmin(np.sum(scaled**2, axis=1))]
    from_there = np.max(np.abs(scaled - middle), axis=1)
    found = [evenly(len(X), third)]
    for near in (int(np.sqrt(third * len(X))), third):
        within = np.sort(np.argpartition(from_there, near)[:near])
        found.append(within[evenly(near, third)])
    return np.unique(np.concatenate(found))


@double_precision
def summarise(
    model: LatentGP,
    data: Data | RowSource,
    representation: EquispacedFourier | None = None,
    *,
    key: RandomKey,
) -> PlaceSums:
    """Sums over rows that replace them in fits with Gaussian noise: one pass.

    `fit(model, sums, key=key)` then costs nothing in N. Rows of a file are read twice, first for
    the ranges of the columns.

    Args:
        model: Gaussian noise, no or a linear prior mean, and a stationary kernel of up to three
            columns. The frequencies follow from the values of its hyper-parameters.
        data: the rows, or a source such as `FileRows`.
        representation: how many frequencies.
        key: random key.

    Raises:
        InputError: another likelihood, prior mean or kernel.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> X = np.random.default_rng(0).uniform(0, 6, (1000, 2))
        >>> model = lgp.LatentGP(lgp.Matern32(), lgp.Gaussian(noise_variance=0.01))
        >>> data, key = lgp.Data(X, np.sin(X[:, 0])), jax.random.key(0)
        >>> result = lgp.fit(model, lgp.fields.summarise(model, data, key=key), key=key)
        >>> bool(abs(result.posterior.mean_f([[3.0, 3.0]])[0] - np.sin(3.0)) < 0.05)
        True
    """
    source = data if isinstance(data, RowSource) else RowsInMemory(data)
    check_summable(model, source.sample(1))
    corners = ranges_of(data)
    own = EquispacedFourier() if representation is None else representation
    own.check_kernel(model.kernel, len(corners[0]))
    own = dataclasses.replace(own, key=jax.random.key_data(key))
    own = own.around(*corners, model.kernel).for_noise(model)
    return sums_of(own, source)
