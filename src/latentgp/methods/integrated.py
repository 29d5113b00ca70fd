"""The method that integrates over hyper-parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpyro.distributions import constraints

from latentgp.diagnostics import Integration, integrated
from latentgp.errors import InputError
from latentgp.inference.integration.design import design
from latentgp.inference.integration.exploration import Evaluated, Explored, Places, explore
from latentgp.inference.sites.profiled_bound import (
    Converged,
    converge_at,
    evaluate,
    initial_sites,
    model_at,
)
from latentgp.methods.base import Method
from latentgp.methods.problem import Problem
from latentgp.methods.result import Fit
from latentgp.methods.sites import Searched, SiteMethod, sites_of_rows
from latentgp.methods.variational import VariationalInference
from latentgp.parameters.base import parameters
from latentgp.parameters.space import ParameterSpace
from latentgp.posteriors.components import Gaussians
from latentgp.posteriors.evidence import Evidence
from latentgp.posteriors.hyperparameters import (
    HyperparameterMarginal,
    IntegratedPosterior,
    marginals_of,
)
from latentgp.posteriors.sampled import stacked_models
from latentgp.representations import LatentPosterior
from latentgp.representations.summary import DataSummary
from latentgp.runtime.progress import ABORTED, ASKED, Run, RunControl, Step
from latentgp.runtime.threads import on_all_cores
from latentgp.sites.coupled import Sites
from latentgp.typing import Array

_MOST_HYPERPARAMETERS = 10
_MOST_BYTES = 1 << 32
_TOLERANCE = 1e-6  # relative, of site updates on the way
_CONVERGED = 1e-4  # relative change of the bound in the last site update


class Integrated(Method):
    """Hyper-parameters integrated over, where other methods take the most probable ones.

    The (approximate) evidence of a method by sites, times the priors, is explored around its mode
    (Rue, Martino & Chopin 2009): on a lattice for one or two hyper-parameters, in a central
    composite design for three to ten, and at further places until means and deviations stand
    still. Marginals of the hyper-parameters and the log evidence are integrals over the density
    interpolated between these places; the posterior is a mixture over some of them, weighted so
    that it has the same means and covariances of the hyper-parameters.
    `fit(..., hyperparameters="integrate")` takes it for the method that is chosen.

    Args:
        method: `ExactGP`, `CollapsedVI`, `VariationalInference`, `AugmentedVI`, `Laplace` or
            `ExpectationPropagation`.

    Raises:
        InputError: a method without sites.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> X = np.linspace(0, 6, 20)
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(noise_variance=0.1))
        >>> data = lgp.Data(X, np.sin(X) + 0.1 * np.cos(9 * X))
        >>> method = lgp.Integrated(lgp.ExactGP())
        >>> posterior = lgp.fit(model, data, key=jax.random.key(0), method=method).posterior
        >>> list(posterior.hyperparameter_marginals)
        ['kernel.lengthscale', 'kernel.variance', 'likelihood.noise_variance']
        >>> lower, upper = posterior.hyperparameter_marginals["kernel.lengthscale"].interval(0.9)
        >>> bool(1 < lower < upper < 4)
        True
    """

    takes_restarts: ClassVar[bool] = True

    method: SiteMethod = VariationalInference()

    def __check_init__(self) -> None:
        check_integrable(self.method)

    @property
    def site_method(self) -> SiteMethod:
        return self.method

    @property
    def streaming_prior(self) -> DataSummary | None:
        return self.method.streaming_prior

    def run(self, problem: Problem) -> Fit:
        """Hyper-parameters integrated over, and a posterior that is a mixture over them.

        A limit of time, or a callback, ends the search, and then the search for further points;
        the design is evaluated in any case unless a callback asks for the end again.
        """
        if not problem.learn_hyperparameters:
            raise InputError(NOTHING_TO_INTEGRATE)
        inner = dataclasses.replace(self.method, search=None)
        inner = inner.settled(problem.model, problem.data.size)
        found = inner.searched(problem)
        mode = inner.at(found, problem)
        # With what predictions alone depend on, as it is at the mode.
        space = eqx.tree_at(lambda s: s.model, found.space, mode.model)
        _check_size(space, found.converged)
        density = _Density(space, found, problem.control)
        try:
            explored = explore(density, density.mode(), density.goes_on)
        finally:
            density.run.close()
        components, sites = density.components(explored, problem.data.size)
        posterior = IntegratedPosterior(
            components,
            Evidence(explored.log_integral, "approximation"),
            _marginals(space, explored),
        )
        method = dataclasses.replace(
            self, method=self.method.settled(found.model, problem.data.size)
        )
        own: Any = dataclasses.replace(mode.diagnostics, method=method)
        diagnostics = integrated(own, _integration(space, explored), problem.seconds)
        return Fit(posterior.model, posterior, mode.history, diagnostics, sites=sites)


NOTHING_TO_INTEGRATE = (
    "No hyper-parameter is learned, so that there is nothing to integrate over; leave "
    'learn_hyperparameters=False out, or take hyperparameters="optimise".'
)


def check_integrable(method: Any) -> None:
    """Raise InputError unless hyper-parameters can be integrated over with a method."""
    if not getattr(method, "makes_sites", False):
        raise InputError(
            f"{type(method).__name__} gives no log evidence that hyper-parameters could be "
            "integrated over with; use ExactGP, CollapsedVI, VariationalInference, AugmentedVI, "
            "Laplace or ExpectationPropagation."
        )


class ExplorationProgress(NamedTuple):
    """Progress of an exploration around the mode, passed to the callback.

    Attributes:
        evaluations: around the mode so far.
        bound: of this evaluation, in nats.
        seconds: since the start of the fit.
    """

    evaluations: int
    bound: float
    seconds: float


_Known = tuple[Float[np.ndarray, "P"], Sites]


class _Density:
    """Log density of the hyper-parameters, with the sites at every place."""

    def __init__(self, space: ParameterSpace, found: Searched, control: RunControl):
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

    def mode(self) -> Evaluated:
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

    def __call__(self, places: Places) -> list[Evaluated | None]:
        """The density at places; None where sites do not converge, or a callback ends it.

        Sites start from those of the nearest place that was known before.
        """
        if self._asked_to_end or self.run.aborted:
            return [None] * len(places)
        results: list[Evaluated | None] = []
        known = tuple(self._known)
        try:
            for result, sites in on_all_cores(lambda place: self._near(place, known), places):
                self._count += 1
                if result is not None:
                    self._known.append((result.vector, sites))
                results.append(result)
                bound = np.nan if result is None else result.value
                self._report(ExplorationProgress(self._count, bound, self.run.seconds))
                if self._asked_to_end:  # what has not begun is not evaluated
                    break
        except KeyboardInterrupt:  # what is known is averaged over
            self._asked_to_end = True
        return results + [None] * (len(places) - len(results))

    def _near(
        self, vector: Float[np.ndarray, "P"], known: Sequence[_Known]
    ) -> tuple[Evaluated | None, Sites]:
        apart = [np.sum((vector - place) ** 2) for place, _ in known]
        result, sites = self._from(vector, known[int(np.argmin(apart))][1])
        if result is None:
            model = model_at(self._space, jnp.asarray(vector))
            first = initial_sites(self._algorithm, model, self._found.rows)
            result, sites = self._from(vector, first)
        return result, sites

    def _from(self, vector: Float[np.ndarray, "P"], sites: Sites) -> tuple[Evaluated | None, Sites]:
        found, place = self._found, jnp.asarray(vector)
        evaluation = evaluate(self._algorithm, self._space, place, found.rows, sites)
        value, gradient = float(evaluation.value), np.asarray(evaluation.gradient)
        known = np.isfinite(value) and np.all(np.isfinite(gradient))
        if not (known and abs(float(evaluation.change)) <= _CONVERGED):
            return None, sites
        return Evaluated(vector, value, gradient), evaluation.sites

    def components(self, explored: Explored, rows: int) -> tuple[Gaussians, Sites]:
        """The posteriors at the points of a mixture, and the sites of so many rows, K first."""
        sites = {vector.tobytes(): sites for vector, sites in self._known}
        places = [jnp.asarray(vector) for vector in explored.points]
        found = self._found

        def posterior(place: Array) -> tuple[LatentPosterior, Sites]:
            own = sites[np.asarray(place).tobytes()]
            at = converge_at(self._algorithm, self._space, place, found.rows, own)
            finished = self._algorithm.representation.finished(at.posterior)
            return finished, sites_of_rows(at.sites, rows)

        latents, own = zip(*on_all_cores(posterior, places, alone=1), strict=True)
        models = [model_at(self._space, place) for place in places]
        stacked = jax.tree.map(lambda *parts: np.stack(parts), *own)
        return Gaussians.of(models, latents, explored.weights), stacked

    def _report(self, progress: ExplorationProgress) -> None:
        step = Step(
            "integrating over hyper-parameters",
            "evaluation",
            progress.evaluations,
            values=lambda: {"bound": progress.bound},
        )
        self._asked_to_end = self.run.made(step, progress) in (ASKED, ABORTED)


def _check_size(space: ParameterSpace, converged: Converged) -> None:
    if not space.size:
        raise InputError(NOTHING_TO_INTEGRATE)
    if space.size > _MOST_HYPERPARAMETERS:
        raise InputError(
            f"{space.size} hyper-parameters are too many to integrate over, at most "
            f"{_MOST_HYPERPARAMETERS} are possible; freeze some, share length-scales between "
            'inputs, or use hyperparameters="sample".'
        )
    points = len(design(space.size).masses)
    each = sum(leaf.nbytes for leaf in jax.tree.leaves(converged.posterior))
    if points * each > _MOST_BYTES:
        raise InputError(
            f"The posteriors at {points} points need {points * each / 2**30:.1f} GiB, more than "
            f"{_MOST_BYTES >> 30}; use a method with Inducing(...), or freeze hyper-parameters."
        )


def _marginals(space: ParameterSpace, explored: Explored) -> dict[str, HyperparameterMarginal]:
    """Marginals on the hyper-parameters' own scales, by path."""
    known = parameters(stacked_models(space, jnp.asarray(explored.draws)))
    values = {path: np.asarray(known[path].value) for path in space.paths}
    positive = [p for p in space.paths if space.supports[p] is constraints.positive]
    prior = space.prior_draws(jax.random.key(0))
    return marginals_of(values, explored.draw_weights, positive=positive, prior=prior)


def _integration(space: ParameterSpace, explored: Explored) -> Integration:
    return Integration(
        points=len(explored.points),
        effective_points=float(1 / np.sum(explored.weights**2)),
        evaluations=explored.evaluations,
        left_out=explored.left_out,
        drop=explored.drop,
        rise=explored.rise,
        flat=explored.flat,
        moved=explored.moved,
        effective_draws=float(1 / np.sum(explored.draw_weights**2)),
        without_prior=tuple(path for path in space.paths if path not in space.prior_paths),
    )
