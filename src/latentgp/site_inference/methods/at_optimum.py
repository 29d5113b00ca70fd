"""A fit once more at the hyper-parameters that it ended with, from which others are evaluated."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

import jax
from numpyro.distributions import Distribution

from latentgp.errors import InputError, refuse
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.methods.base import Method
from latentgp.methods.options import FitOptions
from latentgp.methods.problem import Problem
from latentgp.models import LatentGP, without_constant
from latentgp.posteriors.hyperparameters import space_of_priors
from latentgp.posteriors.posterior import Posterior
from latentgp.representations.inducing.algebra import ByVariables
from latentgp.rows.data import MergedRows
from latentgp.runtime.progress import RunControl
from latentgp.site_inference.methods.base import SearchOutcome, SiteMethod

_MOST = 30  # hyper-parameters
_OFF = 0.1, 1e-4  # of the log evidence: nats, relative


def at_optimum(
    posterior: Posterior,
    method: Method,
    rows: MergedRows,
    priors: Mapping[str, Distribution | None],
) -> tuple[ParameterSpace, SearchOutcome]:
    """The space of the learned hyper-parameters, and sites and posterior at their values.

    Rows and the method, one by sites, are those of the fit; priors are by path, None of a learned
    hyper-parameter without one.

    Raises:
        InputError: no hyper-parameter that was learned, or more than thirty; other rows.
    """
    model = posterior.model
    if "mean.value" not in priors:  # squares of targets far from zero would lose their digits
        model, centre = without_constant(model)
        rows = rows.centred(centre)
    space = space_of_priors(model, priors)
    sentences = {
        "No hyper-parameter was learned, so nothing around its value is known.": not priors,
        f"{space.size} hyper-parameters are too many for a Hessian by differences, at most "
        f"{_MOST}.": space.size > _MOST,
    }
    refuse(sentences)
    found = _through_same_points(method, posterior).searched(_unlearned(model, rows), space)
    known, again = posterior.log_evidence.value, float(found.converged.bound)
    if abs(known - again) > _OFF[0] + _OFF[1] * abs(known):
        raise InputError(
            f"The log evidence of these rows is {again:.5g}, but that of the fit {known:.5g}; give "
            "the rows that were fitted, with their weights."
        )
    return space, found


def _through_same_points(method: Any, posterior: Posterior) -> SiteMethod:
    """The method with the points or frequencies that the fit had, and no search of its own."""
    own, centres = method.representation, posterior.latent.centres
    if isinstance(own, ByVariables) and getattr(own, "features", None) is None:
        own = own.at(centres)
    return dataclasses.replace(method, representation=own, search=None)


def _unlearned(model: LatentGP, rows: MergedRows) -> Problem:
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
