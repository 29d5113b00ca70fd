"""Posterior of hyper-parameters around their most probable values, by Laplace's approximation."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from numpyro.distributions import Distribution
from scipy.special import ndtri

from latentgp.errors import InputError, refuse
from latentgp.extensions.integrated.exploration import axes_at_mode
from latentgp.extensions.integrated.hyperparameter_density import (
    HyperparameterDensity,
    marginals_in,
)
from latentgp.extensions.integrated.method import check_integrable
from latentgp.methods.base import Method
from latentgp.methods.options import FitOptions
from latentgp.methods.problem import Problem
from latentgp.models import LatentGP, without_constant
from latentgp.numerics.quadrature import sobol_nodes
from latentgp.posteriors.hyperparameters import HyperparameterMarginal, space_of_priors
from latentgp.posteriors.posterior import Posterior
from latentgp.representations.inducing.algebra import ByVariables
from latentgp.rows.data import MergedRows
from latentgp.runtime.blas_threads import one_blas_thread
from latentgp.runtime.progress import RunControl
from latentgp.runtime.x64 import double_precision
from latentgp.site_inference.methods.base import SiteMethod

_DRAWS = 1 << 12
_MOST = 30  # hyper-parameters
_OFF = 0.1, 1e-4  # of the log evidence: nats, relative
_BELOW = 0.5  # nats below the optimum


@double_precision
@one_blas_thread()
def marginals_at_optimum(
    posterior: Posterior,
    method: Method,
    rows: MergedRows,
    priors: Mapping[str, Distribution | None],
) -> dict[str, HyperparameterMarginal]:
    """Marginals of the hyper-parameters by Laplace's approximation at their most probable values.

    A normal law in the unconstrained coordinates, whose precision is minus the Hessian of the log
    evidence plus log prior (Rasmussen & Williams 2006, 5.2; MacKay 1999), by differences of
    gradients: at least two evaluations for each hyper-parameter. Rows and the method, one by sites,
    are those of the fit; priors are by path, None of a learned hyper-parameter without one.

    Raises:
        InputError: no hyper-parameter that was learned, or more than thirty; a method without log
            evidence; other rows; values that are no optimum, or one that is flat.
    """
    check_integrable(method)
    model = posterior.model
    if "mean.value" not in priors:  # squares of targets far from zero would lose their digits
        model, centre = without_constant(model)
        rows = rows.centred(centre)
    space = space_of_priors(model, priors)
    sentences = {
        "No hyper-parameter was learned, so there are no marginals.": not priors,
        f"{space.size} hyper-parameters are too many for a Hessian by differences, at most "
        f"{_MOST}.": space.size > _MOST,
    }
    refuse(sentences)
    found = _through_same_points(method, posterior).searched(_held(model, rows))
    known, again = posterior.log_evidence.value, float(found.converged.bound)
    if abs(known - again) > _OFF[0] + _OFF[1] * abs(known):
        raise InputError(
            f"The log evidence of these rows is {again:.5g}, but that of the fit {known:.5g}; give "
            "the rows that were fitted, with their weights."
        )
    density = HyperparameterDensity(space, found, RunControl(time.perf_counter()))
    try:
        mode = density.mode()
        axes, flat = axes_at_mode(density, mode)
    finally:
        density.run.close()
    below = 0.5 * float(np.sum((axes.T @ mode.gradient) ** 2))
    if flat or below > _BELOW:
        why = (
            f"the density is flat in {flat} direction(s)"
            if flat
            else f"they are about {below:.2g} nats below the optimum"
        )
        raise InputError(f"There is no normal law around these hyper-parameters: {why}.")
    return marginals_in(space, mode.vector + _normal_draws(axes))


def _normal_draws(axes: Float[np.ndarray, "H H"]) -> Float[np.ndarray, "S H"]:
    """Quasi-random draws of covariance A A', whose marginals have exact quantiles."""
    nodes, _ = sobol_nodes(len(axes), _DRAWS)
    ranks = np.argsort(np.argsort(nodes @ axes.T, axis=0), axis=0)
    return ndtri((ranks + 0.5) / _DRAWS) * np.linalg.norm(axes, axis=1)


def _through_same_points(method: Any, posterior: Posterior) -> SiteMethod:
    """The method with the points or frequencies that the fit had, and no search of its own."""
    own, centres = method.representation, posterior.latent.centres
    if isinstance(own, ByVariables) and getattr(own, "features", None) is None:
        own = own.at(centres)
    return dataclasses.replace(method, representation=own, search=None)


def _held(model: LatentGP, rows: MergedRows) -> Problem:
    """The problem of the posterior with hyper-parameters as they are."""
    return Problem(
        model=model,
        rows=rows,
        source=None,
        key=jax.random.key(0),
        reason="",
        options=FitOptions(learn_hyperparameters=False, priors=None, max_evaluations=1),
        streaming_prior=None,
        control=RunControl(time.perf_counter()),
    )
