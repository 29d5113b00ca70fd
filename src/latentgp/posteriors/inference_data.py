"""Draws of f at rows as ArviZ keeps them: log densities, replicates, groups, coordinates."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int, Shaped

from latentgp.hyperparameters.base import replace_unchecked
from latentgp.likelihoods.base import Likelihood
from latentgp.models import LatentGP
from latentgp.posteriors.arviz_versions import from_groups, with_coordinates
from latentgp.rows.data import Data
from latentgp.typing import Array, RandomKey, Scalar

Drawn = Mapping[str, Float[np.ndarray, "C S ..."]]


def inference_data(
    rows: Data,
    places: Int[np.ndarray, "W"],
    *,
    hyperparameters: Drawn,
    f: Float[np.ndarray, "C S W Q"],
    y: Shaped[np.ndarray, "C S W *P"],
    log_likelihood: Float[np.ndarray, "C S W"],
    statistics: Mapping[str, Shaped[np.ndarray, "C S"]] | None = None,
    prior: Mapping[str, Float[np.ndarray, "1 prior_draws ..."]] | None = None,
) -> Any:
    """ArviZ's InferenceData, or DataTree, of draws at rows, by the parts that there are.

    The coordinate `row` is the rows' `places` in the data as they were given. Statistics of the
    sampler have ArviZ's names; draws of the prior are one chain.
    """
    dims = {"f": ["row", "latent"], "y": ["row"], "X": ["row", "input"]}
    if rows.y.ndim == 2:
        dims["y"] = ["row", "output"]
    coords = {"row": places, "latent": np.arange(f.shape[-1])}
    data = from_groups(
        {
            "posterior": {**hyperparameters, "f": f},
            "posterior_predictive": {"y": y},
            "log_likelihood": {"y": log_likelihood},
            "sample_stats": statistics,
            "prior": prior,
            "observed_data": {"y": rows.y},
            "constant_data": {"X": rows.X},
        },
        coords=coords,
        dims=dims,
    )
    names = ["X"] if rows.X.shape[1] == 1 else [f"X{d}" for d in range(rows.X.shape[1])]
    inputs = {name: ("row", x) for name, x in zip(names, rows.X.T, strict=True)}
    of_rows = ["posterior", "posterior_predictive", "log_likelihood", "observed_data"]
    return with_coordinates(data, inputs, of_rows)


def log_likelihoods(
    model: LatentGP, drawn: Drawn, f: Float[np.ndarray, "C S W Q"], rows: Data
) -> Float[np.ndarray, "C S W"]:
    """Log p(y | f) of rows at every draw, times the row's weight, in nats.

    `drawn` are draws of the likelihood's own parameters, by path; none if these are fixed.
    """
    of_rows = rows.y, dict(rows.side_information)
    values = np.asarray(_at_every_draw(_log_prob, model, dict(drawn), f, *of_rows))
    return values if rows.weights is None else values * rows.weights


def replicates(
    model: LatentGP, drawn: Drawn, f: Float[np.ndarray, "C S W Q"], rows: Data, key: RandomKey
) -> Shaped[np.ndarray, "C S W *P"]:
    """A draw of y at every row from every draw of f; arguments as of `log_likelihoods`."""
    keys = jax.random.split(key, f.shape[:3])
    given = (f, keys), dict(rows.side_information)
    return np.asarray(_at_every_draw(_draw, model, dict(drawn), *given))


def _log_prob(likelihood: Likelihood, f: Array, y: Array, side: Any) -> Scalar:
    return likelihood.log_prob(y, f, side)


def _draw(likelihood: Likelihood, at: tuple[Array, RandomKey], side: Any) -> Array:
    f, key = at
    return likelihood.sample(key, f, side)


@partial(jax.jit, static_argnums=0)
def _at_every_draw(
    function: Any, model: LatentGP, drawn: dict[str, Array], f: Any, *rows: Any
) -> Any:
    """function(likelihood, f, *row) at all draws and rows; rows have no axes of chains, draws."""
    along_rows = jax.vmap(function, (None, 0, *(0 for _ in rows)))

    def at_draw(drawn: dict[str, Array], f: Any, *rows: Any) -> Any:
        return along_rows(replace_unchecked(model, drawn).likelihood, f, *rows)

    over_draws = jax.vmap(at_draw, (0, 0, *(None for _ in rows)))
    return jax.vmap(over_draws, (0, 0, *(None for _ in rows)))(drawn, f, *rows)
