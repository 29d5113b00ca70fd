"""Streaming updates of posteriors: further rows, without the earlier ones."""

from __future__ import annotations

from jaxtyping import Key

from latentgp.errors import warn_user
from latentgp.fit import fit
from latentgp.methods.choice import choose_method, usual_number_of_points
from latentgp.posteriors.posterior import Posterior
from latentgp.representations.inducing.selection import Selection
from latentgp.rows.data import Data
from latentgp.typing import Array


def updated(
    posterior: Posterior,
    data: Data,
    *,
    key: Key[Array, ""],
    n_inducing: int | None = None,
    selection: Selection = "greedy-variance",
) -> Posterior:
    """The posterior after further rows, at the same hyper-parameters: `Posterior.update`."""
    model = posterior.model
    usual = max(usual_number_of_points(model), len(posterior.latent.centres))
    method = choose_method(model, data.size).method.through_points(
        posterior.remembered(), n_inducing or usual, usual, selection
    )
    result = fit(model, data, key=key, method=method, learn_hyperparameters=False)
    for warning in result.diagnostics.warnings:
        warn_user(warning)
    return result.posterior
