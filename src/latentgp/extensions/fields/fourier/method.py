"""Regression with Gaussian noise by equispaced Fourier functions: rows are read once."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from latentgp.extensions.fields.fourier.representation import EquispacedFourier
from latentgp.extensions.fields.fourier.sums import PlaceSums, sums_of
from latentgp.extensions.inter_domain.sums import check_summable, ranges_of
from latentgp.methods.problem import Problem
from latentgp.models import LatentGP
from latentgp.representations import Representation
from latentgp.rows import RowsInMemory, RowSource
from latentgp.rows.data import Data
from latentgp.runtime.x64 import double_precision
from latentgp.setup.priors import other_starts, stretched_start, typical_start
from latentgp.site_inference.methods.base import (
    SearchOutcome,
    converged_sites,
    learned_model,
)
from latentgp.site_inference.methods.exact import CollapsedVI
from latentgp.site_inference.search.algorithm import SiteInference
from latentgp.site_inference.search.hyperparameters import Opening, SearchResult, learn
from latentgp.site_inference.search.search import Search
from latentgp.typing import Inputs, RandomKey

_MOST_RENEWALS = 8
# Functions and rows of the first search, and its longest period, in ranges.
_FEW, _ROWS_OF_WINDOW, _PERIOD = 1_000, 8_192, 2.0


class FourierGP(CollapsedVI):
    """Gaussian noise through equispaced Fourier functions: O(N) once, then nothing of N.

    Rows are summed by non-uniform fast Fourier transforms; an evaluation of the evidence costs some
    dozen products of O(M log M). Where the hyper-parameters that a search finds need other
    frequencies, the sums are made anew and the search goes on from there.

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

    def searched(self, problem: Problem) -> SearchOutcome:
        """The most probable hyper-parameters, by frequencies that are enough for them.

        The search starts from several starts, of many rows on those of a window, where few
        functions are enough for the scales that lie dense rows tell of. Where frequencies leave open
        more than a share of the noise variance that it finds, it goes on with more.
        """
        model, data, records = problem.model, problem.data, []
        algorithm = self.algorithm(model)
        asked: Any = algorithm.representation
        given = asked.grid is not None
        learning = problem.space.size > 0
        seen = data
        if learning and not given:
            seen = data.select(window(data.X, _ROWS_OF_WINDOW))
        own = asked.initialise(data.X, data.weights, model.kernel, problem.key)
        if not given:
            few = dataclasses.replace(own, most=_FEW)
            corners = seen.X.min(axis=0), seen.X.max(axis=0)
            own = few.around(*corners, model.kernel, _PERIOD) if learning else own.for_noise(model)
        stages = 0
        while True:
            own = dataclasses.replace(own, most=asked.most)
            algorithm = dataclasses.replace(algorithm, representation=own)
            algorithm, some = self.summed(algorithm, model, seen)
            rows = some.to_device()
            space, bounds = problem.space, problem.bounds(quiet=False)
            control = problem.control_with(self, algorithm, space)
            search = Search(max_evaluations=problem.options.max_evaluations, control=control)
            if not learning:
                learned, again = None, None
                break
            learned = self._stage(problem, algorithm, rows, search, first=not stages)
            search.records[:0] = records
            model, records = learned_model(space, learned), search.records
            again = None if given else algorithm.representation.renewed(model)
            if again is None and seen is not data:
                again, seen = (
                    asked.initialise(data.X, data.weights, model.kernel, problem.key),
                    data,
                )
                again = again.for_noise(model)
            stages += 1
            if again is None or stages > _MOST_RENEWALS:
                break
            own = again
            problem = dataclasses.replace(problem, model=model)
            problem = problem.with_options(restarts=0, checkpoint=None)
        converged = converged_sites(algorithm, model, rows)
        outcome = SearchOutcome(algorithm, space, bounds, rows, model, learned, converged, search)
        return outcome if again is None else outcome.unsettled()

    def _stage(
        self, problem: Problem, algorithm: SiteInference, rows: Data, search: Search, first: bool
    ) -> SearchResult:
        """The search through the frequencies of an algorithm; the first one has several starts."""
        space, options = problem.space, problem.options
        second = opening = None
        if first:
            second = typical_start(space, problem.scales)
            second = stretched_start(space, problem.scales) if second is None else second
            others = other_starts(space, problem.scales, rows.X)
            opening = Opening(others, rows) if others else None
        return learn(
            algorithm,
            space,
            rows,
            bounds=problem.bounds(quiet=False),
            opening=opening,
            second=second,
            search=search,
            key=problem.key,
            restarts=options.restarts,
            tolerance=options.tolerance,
        )


def window(X: Inputs, number: int) -> Int[np.ndarray, "rows"]:
    """Numbers of the rows nearest to the one in the middle, by ranges of columns."""
    X = np.asarray(X)
    if len(X) <= number:
        return np.arange(len(X))
    ranges = np.ptp(X, axis=0)
    scaled = (X - np.median(X, axis=0)) / np.where(ranges > 0, ranges, 1.0)
    middle = scaled[np.argmin(np.sum(scaled**2, axis=1))]
    return np.argpartition(np.max(np.abs(scaled - middle), axis=1), number)[:number]


@double_precision
def summarise(
    model: LatentGP,
    data: Data | RowSource,
    representation: EquispacedFourier | None = None,
    *,
    key: RandomKey,
) -> PlaceSums:
    """Sums over rows that replace them in fits with Gaussian noise: one pass.

    `fit(model, sums, key=key)` then costs nothing in N. Rows of a file are read twice, first for the
    ranges of the columns.

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
    if isinstance(data, Data):
        corners = data.X.min(axis=0), data.X.max(axis=0)
    else:
        corners = ranges_of(source)
    own = EquispacedFourier() if representation is None else representation
    own.check_kernel(model.kernel, len(corners[0]))
    own = dataclasses.replace(own, key=jax.random.key_data(key))
    own = own.around(*corners, model.kernel).for_noise(model)
    return sums_of(own, source)
