"""Draws of Markov chains, and how well they have mixed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float, Shaped

from latentgp.modules import stored
from latentgp.posteriors.arviz_versions import import_arviz
from latentgp.representations.variables import Centres
from latentgp.rows.arrays import evenly

_SUMMARISED_ROWS, _FEW_ROWS = 200, 8
_TAILS = 0.05, 0.95  # version 1 of ArviZ has others unless told
FEWEST_DRAWS = 4  # of a chain that R-hat can split


class Chains(eqx.Module):
    """Draws of C chains, S each, after the warm-up."""

    vector: Float[np.ndarray, "C S H"]  # unconstrained hyper-parameters; H = 0 if they are fixed
    white: Float[np.ndarray, "C S functions M"]  # coefficients, Q functions but in deep models
    # latent functions at the watched rows; W = 0 of chains of hyper-parameters alone
    f: Float[np.ndarray, "C S W Q"]
    centres: Centres  # what the coefficients belong to, such as points of shape (M, D)
    # by ArviZ's names: "acceptance_rate", one where every step is exact, "diverging", whether a
    # trajectory on the way to the draw did, and others of the sampler
    statistics: dict[str, Shaped[np.ndarray, "C S"]]
    # added to the diagonal of the prior covariance at the last draw; units of f squared
    jitter: float = eqx.field(static=True)
    notes: tuple[str, ...] = eqx.field(static=True, default=())  # on how the draws were made
    complaints: tuple[str, ...] = eqx.field(static=True, default=())  # why they cannot be trusted

    @property
    def divergences(self) -> int:
        """Draws on the way to which a trajectory diverged."""
        return int(np.sum(self.statistics.get("diverging", 0)))


@stored
class ChainSummary(NamedTuple):
    """The worst figures over everything watched (Vehtari et al. 2021).

    Attributes:
        r_hat: largest rank-normalised split R-hat; NaN with too few draws.
        ess_bulk: smallest effective sample size of the bulk.
        ess_tail: smallest effective sample size of the 5 % and 95 % quantiles.
    """

    r_hat: float
    ess_bulk: float
    ess_tail: float

    @property
    def least(self) -> float:
        """The smaller of both effective sample sizes."""
        return min(self.ess_bulk, self.ess_tail)


def summarise(chains: Chains) -> ChainSummary:
    """R-hat and effective sample sizes, the worst of hyper-parameters and (200) watched latents."""
    f = chains.f[:, :, evenly(chains.f.shape[2], _SUMMARISED_ROWS)]
    if f.shape[1] < FEWEST_DRAWS:
        return ChainSummary(np.nan, np.nan, np.nan)
    arviz = import_arviz()
    return ChainSummary(
        largest_r_hat(chains.vector, f),
        _worst(arviz.ess, np.min, chains.vector, f, method="bulk"),
        _worst(arviz.ess, np.min, chains.vector, f, method="tail", prob=_TAILS),
    )


def few_latents(f: Float[np.ndarray, "C S W Q"]) -> Float[np.ndarray, "C S rows Q"]:
    """Latent functions at eight of the watched rows, evenly spaced."""
    return f[:, :, evenly(f.shape[2], _FEW_ROWS)]


def largest_r_hat(vector: Float[np.ndarray, "C S H"], f: Float[np.ndarray, "C S rows Q"]) -> float:
    """The largest rank-normalised split R-hat; NaN of one chain, or of fewer than four draws."""
    if len(f) < 2 or f.shape[1] < FEWEST_DRAWS:
        return float("nan")
    return _worst(import_arviz().rhat, np.max, vector, f)


def _worst(
    function: Callable[..., Any],
    choose: Callable[..., Any],
    vector: Float[np.ndarray, "C S H"],
    f: Float[np.ndarray, "C S rows Q"],
    **settings: Any,
) -> float:
    """A diagnostic of ArviZ, the worst over all series."""
    series = {"f": f.reshape(*f.shape[:2], -1)} if f.size else {}
    if vector.shape[-1]:
        series["hyperparameters"] = vector
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        values = function(import_arviz().convert_to_dataset(series), **settings)
    return float(choose([choose(values[name].values) for name in series]))
