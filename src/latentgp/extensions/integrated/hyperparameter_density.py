"""Log density of the hyper-parameters given the data, the sites profiled out, and its marginals."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from latentgp.errors import InputError
from latentgp.extensions.integrated.exploration import DensityEvaluation, Exploration, Places
from latentgp.hyperparameters.base import parameters
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.posteriors.components import Gaussians
from latentgp.posteriors.hyperparameters import (
    HyperparameterMarginal,
    marginals_of,
    positive_paths,
    stacked_models,
)
from latentgp.representations import LatentPosterior
from latentgp.representations.protocols import finished
from latentgp.runtime.progress import ABORTED, ASKED, INTERRUPTED, Run, RunControl, RunProgress
from latentgp.runtime.threads import on_all_cores
from latentgp.site_inference.methods.base import SearchOutcome, sites_of_rows
from latentgp.site_inference.search.fixed_point import SETTLED
from latentgp.site_inference.search.profiled_bound import converge_at, evaluate, model_at
from latentgp.site_inference.search.starts import starting_sites
from latentgp.sites.coupled import Sites
from latentgp.typing import Array

_TOLERANCE = 1e-6  # relative, of site updates on the way


_Known = tuple[Float[np.ndarray, "H"], Sites]


class HyperparameterDensity:
    """Log density of the hyper-parameters, with the sites at every place."""

    def __init__(self, space: ParameterSpace, found: SearchOutcome, control: RunControl):
        self.run = Run(control)
        self._space, self._found = space, found
        own = found.algorithm
        self._algorithm = dataclasses.replace(own, tolerance=max(own.tolerance, _TOLERANCE))
        self._known: list[_Known] = []
        self._count, self._asked_to_end = 0, False

    def goes_on(self) -> bool:
        """Whether neither the limit of time nor a callback asks for the end."""
        limit = self.run.control.max_seconds
        over = limit is not None and self.run.seconds > limit
        return not (self._asked_to_end or self.run.aborted or over)

    def mode(self) -> DensityEvaluation:
        """The density at the mode."""
        vector = self._space.to_vector()
        at_mode, sites = self._from(vector, self._found.converged.sites)
        if at_mode is None:
            raise InputError(
                "The log evidence is not known at the most probable hyper-parameters, as site "
                "updates do not converge there; start from other values, or use another method."
            )
        self._known.append((vector, sites))
        return at_mode

    def __call__(self, places: Places) -> list[DensityEvaluation | None]:
        """The density at places; None where sites do not converge, or a callback ends it.

        Sites start from those of the nearest place that was known before.
        """
        if self._asked_to_end or self.run.aborted:
            return [None] * len(places)
        results: list[DensityEvaluation | None] = []
        known = tuple(self._known)
        for result, sites in on_all_cores(lambda place: self._near(place, known), places):
            self._count += 1
            if result is not None:
                self._known.append((result.vector, sites))
            results.append(result)
            self._report(np.nan if result is None else result.value)
            if self._asked_to_end:  # what has not begun is not evaluated
                break
        return results + [None] * (len(places) - len(results))

    def _near(
        self, vector: Float[np.ndarray, "H"], known: Sequence[_Known]
    ) -> tuple[DensityEvaluation | None, Sites]:
        apart = [np.sum((vector - place) ** 2) for place, _ in known]
        result, sites = self._from(vector, known[int(np.argmin(apart))][1])
        if result is not None:
            return result, sites
        model = model_at(self._space, jnp.asarray(vector))
        return self._from(vector, starting_sites(self._algorithm, model, self._found.rows))

    def _from(
        self, vector: Float[np.ndarray, "H"], sites: Sites
    ) -> tuple[DensityEvaluation | None, Sites]:
        found, place = self._found, jnp.asarray(vector)
        evaluation = evaluate(self._algorithm, self._space, place, found.rows, sites)
        value, gradient = float(evaluation.value), np.asarray(evaluation.gradient)
        known = np.isfinite(value) and np.all(np.isfinite(gradient))
        if not (known and abs(float(evaluation.change)) <= SETTLED):
            return None, sites
        return DensityEvaluation(vector, value, gradient), evaluation.sites

    def components(self, explored: Exploration, rows: int) -> tuple[Gaussians, Sites, int]:
        """The posteriors at the points of a mixture, and the sites of so many rows, K first.

        Last the number of points whose means stay at the mode, as those of the bound are not known.
        """
        sites = {vector.tobytes(): sites for vector, sites in self._known}
        places = [jnp.asarray(vector) for vector in explored.points]
        found = self._found

        def posterior(place: Array) -> tuple[LatentPosterior, Sites, bool]:
            own = sites[np.asarray(place).tobytes()]
            at = converge_at(self._algorithm, self._space, place, found.rows, own)
            own_posterior = finished(self._algorithm.representation, at.posterior)
            return own_posterior, sites_of_rows(at.sites, rows), bool(np.isnan(at.moved))

        latents, own, unmoved = zip(*on_all_cores(posterior, places, alone=1), strict=True)
        models = [model_at(self._space, place) for place in places]
        weights, kept = _in_few_sizes(explored.weights)
        models, latents, own = ([parts[k] for k in kept] for parts in (models, latents, own))
        stacked = jax.tree.map(lambda *parts: np.stack(parts), *own)
        return Gaussians.of(models, latents, weights), stacked, sum(unmoved)

    def _report(self, bound: float) -> None:
        step = RunProgress(
            "integrating over hyper-parameters",
            self._count,
            unit="evaluation",
            values=partial(dict, bound=bound),
            details={"evaluations": self._count},
        )
        self._asked_to_end = self.run.made(step) in (ASKED, ABORTED, INTERRUPTED)


def _in_few_sizes(
    weights: Float[np.ndarray, "points"],
) -> tuple[Float[np.ndarray, "K"], Int[np.ndarray, "K"]]:
    """Weights of as many components as a power of two, and which points these are.

    The lightest point stands for several, so that mixtures share programs.
    """
    number, lightest = len(weights), int(np.argmin(weights))
    more = (1 << (number - 1).bit_length()) - number
    kept = np.append(np.arange(number), np.full(more, lightest))
    return np.where(kept == lightest, weights[lightest] / (1 + more), weights[kept]), kept


def marginals_in(
    space: ParameterSpace, draws: Float[np.ndarray, "S H"], weights: Any = None
) -> dict[str, HyperparameterMarginal]:
    """Marginals on the hyper-parameters' own scales, by path, with those of their priors.

    Draws are of the unconstrained vector, of equal weight if there are no weights.
    """
    known = parameters(stacked_models(space, jnp.asarray(draws)))
    values = {path: np.asarray(known[path].value) for path in space.paths}
    prior = space.prior_draws(jax.random.key(0))
    return marginals_of(values, weights, positive=positive_paths(space), prior=prior)
