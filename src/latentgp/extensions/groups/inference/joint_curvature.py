"""Standard errors of fixed effects by the curvature of the likelihood in all parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution

from latentgp.errors import refuse
from latentgp.extensions.groups.inference.maximum_likelihood import (
    GreatestLikelihood,
    path_with_line,
    with_line,
)
from latentgp.extensions.groups.inference.satterthwaite import STEP, Satterthwaite, spread_of
from latentgp.inference import fit
from latentgp.methods.base import Method
from latentgp.posteriors.posterior import Posterior
from latentgp.rows.data import MergedRows
from latentgp.runtime.blas_threads import one_blas_thread
from latentgp.runtime.x64 import double_precision
from latentgp.site_inference.methods.at_optimum import at_optimum
from latentgp.site_inference.search.profiled_bound import evaluate
from latentgp.typing import HyperVector

_HELD = 1e-3  # share of a fixed effect in directions without curvature, at most


@double_precision
@one_blas_thread()
def joint_curvature(
    posterior: Posterior,
    method: Method,
    rows: MergedRows,
    priors: Mapping[str, Distribution | None],
    greatest: GreatestLikelihood,
    names: Sequence[str],
) -> Satterthwaite:
    """Normal tests of fixed effects that were maximised over, as `glmer` has them.

    Their covariance is a block of the inverse of minus the Hessian of the log likelihood in fixed
    effects and variance parameters together (Bates, Maechler, Bolker & Walker 2015, 6.2), which has
    the uncertainty of these variances too. The Hessian is by central differences of exact
    gradients, two evaluations for each parameter.

    Args:
        posterior: of the fit.
        method: of the fit, one by sites.
        rows: that were fitted.
        priors: of the learned parameters by path, None of one without.
        greatest: estimates of the fixed effects.
        names: of all columns of the inputs.

    Raises:
        InputError: other rows, too many parameters, an evidence that is estimated.
    """
    line: Any = with_line(posterior.model, rows.merged, greatest.effects)
    own = {path_with_line(path): law for path, law in priors.items()} | {"mean.weights": None}
    settings = {"key": jax.random.key(0), "method": method, "learn_hyperparameters": False}
    held = fit(line, rows, priors=None, **settings).posterior
    refuse(
        {
            "The curvature is by derivatives of an exact log evidence, and that by conjugate "
            "gradients is an estimate; take SparseEffects(exact=True), or tests by the normal "
            "law.": float(held.latent.evidence_error) > 0,
            "The log likelihood of these rows is not that of the fit; give the rows that were "
            "fitted, with their weights.": not np.isclose(
                float(held.log_evidence.value), greatest.value, rtol=1e-4, atol=0.1
            ),
        }
    )
    space, found = at_optimum(held, method, rows, own)
    sites, vector = found.converged.sites, space.to_vector()

    def slope(place: HyperVector) -> np.ndarray:
        there = found.algorithm, space, jnp.asarray(place), found.rows, sites
        return np.asarray(evaluate(*there).gradient)

    pairs = [(slope(vector + step), slope(vector - step)) for step in STEP * np.eye(len(vector))]
    spread, flat = spread_of(np.stack([up - down for up, down in pairs]) / (2 * STEP))
    place = np.array([label.startswith("mean.weights") for label, _ in space.entries()])
    kept = np.linalg.pinv(spread, hermitian=True) @ spread  # a projection
    refuse(
        {
            "The likelihood does not curve in a fixed effect, as of a level whose targets are all "
            "alike; leave that out, or take tests by the normal law.": bool(
                np.any(np.diagonal(kept)[place] < 1 - _HELD)
            )
        }
    )
    rotation = np.asarray(line.mean.rotation)
    covariance = rotation @ spread[np.ix_(place, place)] @ rotation.T
    nothing = np.zeros((len(spread), *covariance.shape))
    own_names = tuple(names[column] for column in greatest.inputs)
    return Satterthwaite(own_names, greatest.effects, covariance, nothing, spread, flat)
