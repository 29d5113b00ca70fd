"""Regression with Gaussian noise by equispaced Fourier functions: rows are read once."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax

from latentgp.extensions.fields.representation import EquispacedFourier
from latentgp.extensions.fields.sums import PlaceSums, sums_of
from latentgp.extensions.inter_domain.sums import check_summable, ranges_of
from latentgp.methods.problem import Problem
from latentgp.models import LatentGP
from latentgp.representations import Representation
from latentgp.rows import RowsInMemory, RowSource
from latentgp.rows.data import Data
from latentgp.runtime.x64 import double_precision
from latentgp.site_inference.methods.base import SearchOutcome
from latentgp.site_inference.methods.exact import CollapsedVI
from latentgp.site_inference.search.algorithm import SiteInference
from latentgp.typing import RandomKey

_MOST_RENEWALS = 6


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
        """The most probable hyper-parameters, by frequencies that are enough for them."""
        found = self._searched(problem)
        for renewal in range(_MOST_RENEWALS):
            ready: Any = found.algorithm.representation
            again = ready.renewed(found.model.kernel)
            if found.learned is None or again is None:
                return found
            own = eqx.tree_at(lambda m: m.representation, self, again)
            problem = dataclasses.replace(problem, model=found.model)
            problem = problem.with_options(restarts=0, checkpoint=None)
            records = found.search.records
            found = own._searched(problem)
            found.search.records[:0] = records
        return found.unsettled()


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
    return sums_of(own.around(*corners, model.kernel), source)
