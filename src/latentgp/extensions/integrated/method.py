"""The method that integrates over hyper-parameters, and its posterior."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import numpy as np

from latentgp.choosing.choice import Choice
from latentgp.errors import refuse
from latentgp.extensions.integrated.design import design
from latentgp.extensions.integrated.diagnostics import Integration
from latentgp.extensions.integrated.exploration import MOST_POINTS, Exploration, explore
from latentgp.extensions.integrated.hyperparameter_density import (
    HyperparameterDensity,
    marginals_in,
)
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.kernels import has_effects
from latentgp.methods.base import Method
from latentgp.methods.problem import Problem
from latentgp.methods.result import Fit
from latentgp.models import LatentGP
from latentgp.modules import stored
from latentgp.posteriors.components import Components
from latentgp.posteriors.evidence import Evidence
from latentgp.posteriors.hyperparameters import HyperparameterMarginal
from latentgp.posteriors.posterior import Posterior
from latentgp.representations.needs import Needs
from latentgp.site_inference.methods.base import SiteMethod
from latentgp.site_inference.methods.variational import VariationalInference
from latentgp.site_inference.search.profiled_bound import ConvergedPosterior

_MOST_HYPERPARAMETERS = 10
_MOST_BYTES = 1 << 32
_MOST_BY_DEFAULT, _ROWS_EACH = 8, 20


@stored
class IntegratedPosterior(Posterior):
    """Posterior of weighted components with different hyper-parameters.

    Attributes:
        hyperparameter_marginals: of every hyper-parameter that was integrated over, by path; of an
            array one for each entry, such as "kernel.lengthscale[0]".
    """

    hyperparameter_marginals: dict[str, HyperparameterMarginal]

    def __init__(
        self,
        components: Components,
        evidence: Evidence,
        hyperparameter_marginals: dict[str, HyperparameterMarginal],
    ):
        super().__init__(components, evidence)
        self.hyperparameter_marginals = hyperparameter_marginals

    def shifted(self, centre: float) -> IntegratedPosterior:
        return IntegratedPosterior(
            self.components.shifted(centre), self.log_evidence, self.hyperparameter_marginals
        )


class Integrated(Method):
    """Integration over hyper-parameters, instead of the most probable ones.

    The (approximate) evidence of a method by sites, times the priors, is explored around its mode
    (Rue, Martino & Chopin 2009): on a lattice for one or two hyper-parameters, in a central
    composite design for three to ten, and at further places until means and deviations stand
    still. Marginals of the hyper-parameters and the log evidence are integrals over the density
    interpolated between these places; the posterior is a mixture over some of them, weighted so
    that it has the same means and covariances of the hyper-parameters.
    `fit(..., hyperparameters="integrate")` takes it for the method that is chosen. How it went is
    in `diagnostics.finding("integration")`.

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
    def all_rows_at_once(self) -> Method:
        return self.method

    def run(self, problem: Problem) -> Fit:
        """Hyper-parameters integrated over, and a posterior that is a mixture over them.

        A limit of time, or a callback, ends the search, and then the search for further points;
        the design is evaluated in any case unless a callback asks for the end again.
        """
        check_integrable(self.method, problem.space.size)
        inner = dataclasses.replace(self.method, search=None)
        inner = inner.settled(problem.model, problem.data.size)
        found = inner.searched(problem)
        mode = inner.at(found, problem)
        # With what predictions alone depend on, as it is at the mode.
        space = eqx.tree_at(lambda s: s.model, found.space, mode.model)
        most = _most_points(space, found.converged)
        density = HyperparameterDensity(space, found, problem.control)
        try:
            explored = explore(density, density.mode(), density.goes_on, most)
        finally:
            density.run.close()
        components, sites, unmoved = density.components(explored, problem.data.size)
        posterior = IntegratedPosterior(
            components,
            Evidence(explored.log_integral, "approximation"),
            marginals_in(space, explored.draws, explored.draw_weights),
        )
        method = dataclasses.replace(
            self, method=self.method.settled(found.model, problem.data.size)
        )
        own = dataclasses.replace(mode.diagnostics, method=method, seconds=problem.seconds)
        diagnostics = own.with_finding(_integration(space, explored))
        fit = Fit(posterior.model, posterior, mode.history, diagnostics, sites=sites)
        return fit.noted([f"At {unmoved} of the points means are the mode."] * bool(unmoved))


def integrating(choice: Choice, learned: bool) -> Choice:
    """The method that integrates over what a method learns; InputError if that cannot be."""
    if isinstance(choice.method, Integrated):
        return choice
    check_integrable(choice.method, learned)
    method: Any = choice.method
    return Choice(Integrated(method), f"{choice.reason}; hyper-parameters integrated over")


def rows_are_few(model: LatentGP, rows: int, frozen: tuple[str, ...]) -> bool:
    """Whether "auto" integrates: numbers, at most twenty rows for each of one to eight parameters.

    Deviations that take H hyper-parameters of N rows for known are too small by a share of about
    H / 2N, 2.5 % at this bound, and more where forecasts leave the rows. More parameters take
    seconds.
    """
    likelihood = model.likelihood
    suits = likelihood.is_jointly_gaussian and likelihood.latent_size == 1 and model.depth == 1
    if not suits or has_effects(model.kernel):
        return False
    size = ParameterSpace(model, frozen=frozen).size
    return 0 < size <= _MOST_BY_DEFAULT and rows <= _ROWS_EACH * size


def check_integrable(method: Any, learned: object = True) -> None:
    """Raise InputError unless there are hyper-parameters, and a method to integrate over them."""
    nothing = (
        "No hyper-parameter is learned, so that there is nothing to integrate over; leave "
        'learn_hyperparameters=False out, or take hyperparameters="optimise".'
    )
    refuse({nothing: not learned})
    Needs(log_evidence=True).check('hyperparameters="integrate"', method=method)


def _most_points(space: ParameterSpace, converged: ConvergedPosterior) -> int:
    """How many posteriors there is memory for, a power of two, as the mixture's size is one."""
    points = min(len(design(min(space.size, _MOST_HYPERPARAMETERS)).masses), MOST_POINTS)
    each = sum(leaf.nbytes for leaf in jax.tree.leaves(converged.posterior))
    most = 1 << min(MOST_POINTS, _MOST_BYTES // each).bit_length() >> 1
    sentences = {
        f"{space.size} hyper-parameters are too many to integrate over, at most "
        f"{_MOST_HYPERPARAMETERS} are possible; freeze some, share length-scales between inputs, "
        'or use hyperparameters="sample".': space.size > _MOST_HYPERPARAMETERS,
        f"The posteriors at {points} points need {points * each / 2**30:.1f} GiB, of at "
        f"most {_MOST_BYTES >> 30}; use a method with Inducing(...), or freeze hyper-parameters.": (
            most < points
        ),
    }
    refuse(sentences)
    return most


def _integration(space: ParameterSpace, explored: Exploration) -> Integration:
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
