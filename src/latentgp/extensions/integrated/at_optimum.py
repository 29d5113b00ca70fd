"""Posterior of hyper-parameters around their most probable values, by Laplace's approximation."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from numpyro.distributions import Distribution
from scipy.special import ndtri

from latentgp.errors import InputError
from latentgp.extensions.integrated.exploration import axes_at_mode
from latentgp.extensions.integrated.hyperparameter_density import (
    HyperparameterDensity,
    marginals_in,
)
from latentgp.extensions.integrated.method import check_integrable
from latentgp.methods.base import Method
from latentgp.numerics.quadrature import sobol_nodes
from latentgp.posteriors.hyperparameters import HyperparameterMarginal
from latentgp.posteriors.posterior import Posterior
from latentgp.rows.data import MergedRows
from latentgp.runtime.blas_threads import one_blas_thread
from latentgp.runtime.progress import RunControl
from latentgp.runtime.x64 import double_precision
from latentgp.site_inference.methods.at_optimum import at_optimum

_DRAWS = 1 << 12
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
    space, found = at_optimum(posterior, method, rows, priors)
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
