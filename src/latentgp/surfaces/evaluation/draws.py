"""Scores at every row under draws of the latent functions, and smoothed importance weights."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Key
from scipy.special import logsumexp

from latentgp.hyperparameters.base import replace_unchecked
from latentgp.likelihoods.base import JointMarginals, Likelihood, SideInformation
from latentgp.posteriors.arviz_versions import import_arviz, smoothed_log_weights
from latentgp.posteriors.components import Components, covariances_of
from latentgp.posteriors.posterior import Posterior
from latentgp.runtime.buckets import apply_in_buckets
from latentgp.runtime.x64 import double_precision
from latentgp.surfaces.evaluation.protocols import HoldsDraws
from latentgp.surfaces.evaluation.row_scores import RowScores, scores_by
from latentgp.typing import Array


class LatentDraws(NamedTuple):
    """Draws of f at rows, with the likelihood of each draw."""

    f: Float[np.ndarray, "S N Q"]
    likelihood: Likelihood  # shared, or with S first in every leaf
    own: bool  # whether each draw has one of its own


def draws_at(posterior: Posterior, X: Any, key: Key[Array, ""], number: int) -> LatentDraws:
    """Draws of f at rows, each from its marginal: rows are not drawn together."""
    components, law = posterior.components.prepared(), posterior.components.law
    picked = components.pick(key, number)
    shape = number, posterior.model.likelihood.latent_size
    noise = np.asarray(jax.random.normal(jax.random.fold_in(key, 1), shape, np.float64))
    columns = max(components.columns, number * noise.shape[1])
    f = apply_in_buckets(_f_at, components, picked, noise, rows=np.asarray(X), columns=columns)
    likelihood = law.likelihood
    likelihood = jax.tree.map(lambda a: a[picked], likelihood) if law.own else likelihood
    return LatentDraws(np.moveaxis(f, 1, 0), likelihood, law.own)


def draws_of_chains(posterior: HoldsDraws, places: Any) -> LatentDraws:
    """Draws that chains made at some of the rows that they watched, counted among these."""
    f, model = posterior.f[:, :, places], posterior.model
    own = {
        path: values.reshape(-1, *values.shape[2:])
        for path, values in posterior.hyperparameters.items()
        if path.startswith("likelihood")
    }
    likelihood = _with_parameters(model, own) if own else model.likelihood
    return LatentDraws(f.reshape(-1, *f.shape[2:]), likelihood, bool(own))


@jax.jit
def _with_parameters(model: Any, drawn: dict[str, Array]) -> Likelihood:
    return jax.vmap(lambda own: replace_unchecked(model, own).likelihood)(drawn)


def _f_at(components: Components, picked: Array, noise: Array, X: Array) -> Float[Array, "N S Q"]:
    mean, spread = components.marginals(X)
    if spread.ndim == 3:
        spread = jnp.broadcast_to(spread, mean.shape)
        return mean[:, picked] + jnp.sqrt(spread[:, picked]) * noise
    spread = jnp.broadcast_to(covariances_of(spread), (*mean.shape, mean.shape[-1]))
    flat = spread.reshape(-1, *spread.shape[2:])
    root = JointMarginals(jnp.zeros(flat.shape[:2], flat.dtype), flat).root().reshape(spread.shape)
    return mean[:, picked] + jnp.einsum("nsqr,sr->nsq", root[:, picked], noise)


@double_precision
def scores_of_draws(
    drawn: LatentDraws, y: Float[np.ndarray, "N *P"], side: SideInformation
) -> RowScores:
    """Scores at every draw: all have S first."""

    def ask(question: str, of: Any = y) -> Any:
        return _asked(question, drawn, of, side)

    return scores_by(ask, drawn.likelihood, np.asarray(y), side)


@double_precision
def probabilities_at_draws(drawn: LatentDraws, side: SideInformation) -> Float[np.ndarray, "S N K"]:
    """Probabilities of the classes under every draw."""
    return _asked("class_probabilities", drawn, np.zeros(drawn.f.shape[1]), side)


def _asked(question: str, drawn: LatentDraws, y: Any, side: SideInformation) -> Any:
    found = _at_draws(question, drawn.own, drawn.likelihood, drawn.f, y, dict(side))
    return jax.tree.map(np.asarray, found)


@partial(jax.jit, static_argnums=(0, 1))
def _at_draws(
    question: str, own: bool, likelihood: Any, f: Array, y: Array, side: dict[str, Array]
) -> Any:
    """A method of the likelihood at every draw and row."""

    def ask(likelihood: Any, f: Array, y: Array, side: dict[str, Array]) -> Any:
        given = (y, f, side) if question in ("log_prob", "cdf") else (f, side)
        return getattr(likelihood, question)(*given)

    along_rows = jax.vmap(ask, (None, 0, 0, 0))
    return jax.vmap(along_rows, (0 if own else None, 0, None, None))(likelihood, f, y, side)


def smoothed(
    log_ratios: Float[np.ndarray, "S N"], efficiency: float = 1.0
) -> tuple[Float[np.ndarray, "S N"], Float[np.ndarray, "N"]]:
    """Pareto-smoothed log importance weights that add up to one, and Pareto k (ArviZ).

    Vehtari, Simpson, Gelman, Yao & Gabry (2024). `efficiency` is the effective sample size over the
    number of draws.
    """
    found, k = smoothed_log_weights(log_ratios.T, efficiency)
    return found.T - logsumexp(found.T, axis=0), np.atleast_1d(k)


def efficiency_of(posterior: HoldsDraws) -> float:
    """Mean effective sample size of everything in the chains over the number of draws."""
    arviz = import_arviz()
    chains, draws = posterior.f.shape[:2]
    if chains * draws < 8 or draws < 4:
        return 1.0
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        draws_of = arviz.convert_to_dataset({**posterior.hyperparameters, "f": posterior.f})
        found = arviz.ess(draws_of, method="mean")
    values = np.concatenate([found[name].values.ravel() for name in found.data_vars])
    return float(np.nanmean(values) / (chains * draws))
