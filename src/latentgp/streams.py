"""Streaming updates of posteriors: further rows, without the earlier ones."""

from __future__ import annotations

from typing import Any, Literal

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Key

from latentgp.choosing.choice import choose_method, usual_number_of_points
from latentgp.choosing.registry import as_method
from latentgp.errors import InputError, warn_user
from latentgp.inference import fit
from latentgp.methods.base import Method, StandsForMethod
from latentgp.models import LatentGP
from latentgp.posteriors.posterior import Posterior
from latentgp.representations.inducing.selection import Selection
from latentgp.representations.latent_axis import latent_diagonals
from latentgp.representations.summary import DataSummary
from latentgp.rows.data import Data
from latentgp.runtime.x64 import double_precision
from latentgp.typing import Array
from latentgp.validation import check_count


def updated(
    posterior: Posterior,
    data: Data,
    *,
    key: Key[Array, ""],
    n_inducing: int | None = None,
    selection: Selection = "greedy-variance",
    lag: float | None = None,
    method: Method | StandsForMethod | Literal["auto"] | None = None,
) -> Posterior:
    """The posterior after further rows, at the same hyper-parameters: `Posterior.update`."""
    model = posterior.model
    usual = max(usual_number_of_points(model), len(posterior.latent.centres))
    known = (posterior.remembered(), None) if lag is None else _window(posterior, data, lag)
    remembered, rows = known
    data = data if rows is None else _together(rows, data)
    usual_one = method is None or method == "auto"
    method = choose_method(model, data.size).method if usual_one else as_method(method)
    number = usual if n_inducing is None else n_inducing
    check_count("n_inducing", number, 1)
    method = method.through_points(remembered, number, usual, selection)
    model = with_noise_for_points(model, data, method)
    result = fit(model, data, key=key, method=method, learn_hyperparameters=False)
    for warning in result.diagnostics.warnings:
        warn_user(warning)
    return result.posterior


@double_precision
def with_noise_for_points(model: LatentGP, data: Data, method: Any) -> LatentGP:
    """The model with as much noise as inducing variables can hold in double precision."""
    given = getattr(model.likelihood, "noise_variance", None)
    if given is None or method.representation.traits.evidence != "bound":
        return model
    noise = np.asarray(given)
    least = 1e-8 * float(np.mean(latent_diagonals(model.kernel, np.asarray(data.X))))
    if noise.min() >= least:
        return model
    warn_user(
        f"The noise variance {noise.min():.2g} is less than further rows can have through "
        f"inducing points in double precision; {least:.2g} takes its place from now on."
    )
    return eqx.tree_at(
        lambda m: m.likelihood.noise_variance, model, np.asarray(np.maximum(noise, least))
    )


@double_precision
def _window(posterior: Posterior, data: Data, lag: float) -> tuple[DataSummary, Data | None]:
    latent: Any = posterior.latent
    if not hasattr(latent, "window"):
        raise InputError(
            "lag is for posteriors through Markov(), whose rows are in the order of time; leave it "
            "out, or fit with Markov()."
        )
    if not lag > 0:
        raise InputError(f"lag must be a positive length of time, got {lag!r}.")
    if data.X.shape[1] != latent.X.shape[1]:
        raise InputError(
            f"The posterior is of {latent.X.shape[1]} input columns, but the further rows have "
            f"{data.X.shape[1]}; give rows with the same columns."
        )
    found = latent.window(lag, data.X, float(posterior.log_evidence))
    return jax.tree.map(np.asarray, found)


def _together(rows: Data, more: Data) -> Data:
    """Rows of two tables in one."""
    if set(rows.side_information) != set(more.side_information):
        raise InputError(
            f"The rows so far have {sorted(rows.side_information)} beside their targets, but the "
            f"further ones have {sorted(more.side_information)}; give what the rows so far had."
        )

    def joined(*columns: Any) -> Any:
        return np.concatenate([np.asarray(column) for column in columns])

    weights = [np.ones(d.size) if d.weights is None else d.weights for d in (rows, more)]
    side = {
        name: joined(values, more.side_information[name])
        for name, values in rows.side_information.items()
    }
    y = joined(rows.y, more.y)
    return Data(joined(rows.X, more.X), y, weights=joined(*weights), **side)
