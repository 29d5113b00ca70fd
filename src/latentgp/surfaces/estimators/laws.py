"""Laws of targets by evidence: counts, times, and whether logarithms of targets say more."""

from __future__ import annotations

from typing import Literal

import numpy as np

from latentgp.choosing.kernels import MARGIN, contest_of, optima_of, sample
from latentgp.kernels import RBF
from latentgp.likelihoods import (
    Censored,
    Gaussian,
    Likelihood,
    LogNegativeBinomial,
    LogNormal,
    Poisson,
    Weibull,
)
from latentgp.models import LatentGP
from latentgp.rows.data import Data
from latentgp.runtime.blas_threads import one_blas_thread
from latentgp.setup.priors import scales

_BY = "by the evidence of smooth functions of all inputs"


def law_of_counts(data: Data) -> tuple[Literal["poisson", "negative-binomial"], tuple[str, ...]]:
    """A Poisson's law, unless a negative binomial's evidence is two nats ahead, and why."""
    ahead = _ahead(LogNegativeBinomial(), Poisson(), data)
    why = _why_law("a Poisson's", "a negative binomial's", ahead)
    return "negative-binomial" if ahead > MARGIN else "poisson", why


def law_of_times(data: Data) -> tuple[str, tuple[str, ...]]:
    """A Weibull's law, unless a log-normal's evidence is two nats ahead, and why.

    Of other bounds than lower ones a Weibull's, or a Gaussian's where targets are not positive.
    """
    side = data.side_information
    if not {"upper", "entry"}.isdisjoint(side) or np.any(side["censored"] == -1):
        law = "Weibull" if np.all(data.y > 0) else "Gaussian"
        why = f"Likelihood: a {law}'s, as rows have other bounds than lower ones."
        return f"censored-{law.lower()}", (why,)
    if np.any(data.y <= 0):
        return "weibull", ()  # which says that they have to be positive
    ahead = _ahead(Censored(LogNormal()), Weibull(), data)
    why = _why_law("a Weibull's", "a log-normal's", ahead)
    return "censored-log-normal" if ahead > MARGIN else "weibull", why


def _why_law(usual: str, other: str, ahead: float) -> tuple[str]:
    """Why the usual law is taken, or another that is so many nats ahead."""
    if ahead > MARGIN:
        return (f"Likelihood: {other}, {ahead:.1f} nats ahead of {usual} {_BY}.",)
    if ahead > 0:
        less = f"is ahead by {ahead:.1f} nats alone"
        return (f"Likelihood: {usual}, the usual one, as {other} {less} {_BY}.",)
    by = "the usual one" if np.isinf(ahead) else f"{-ahead:.1f} nats ahead of {other} {_BY}"
    return (f"Likelihood: {usual}, {by}.",)


@one_blas_thread()
def logarithms_ahead(data: Data) -> float:
    """How far the evidence of positive targets' logarithms is ahead of their own, in nats.

    Both with Gaussian noise, as `_ahead` finds them, the former with its Jacobian; minus infinity
    without evidence.
    """
    found, rows, weights = [], np.arange(0), np.ones(data.size)
    for y in (np.asarray(data.y), np.log(np.asarray(data.y))):
        own = Data(data.X, y, weights=data.weights)
        scale = scales(LatentGP(RBF(), Gaussian()), own)
        contest = contest_of(own, Gaussian(), scale)
        if contest is None:
            return -np.inf
        blocks = sample(contest)
        rows, weights = np.concatenate(blocks), contest.rows.weights
        contest = contest._replace(families=("RBF", "Matern12"))
        optima = optima_of(contest, contest.rows.blocks(blocks))
        best = max((own.log_evidence for own in optima), default=-np.inf)
        found.append(best - weights[rows].sum() * np.log(float(scale.latent[0])))
    jacobian = weights[rows] @ np.log(np.asarray(data.y))[rows]
    return float(found[1] - found[0] - jacobian) if found[1] > -np.inf else -np.inf


@one_blas_thread()
def _ahead(other: Likelihood, usual: Likelihood, data: Data) -> float:
    """How far a law's evidence is ahead of another's, in nats; minus infinity without evidence.

    Each evidence is that of the best of an RBF, a Matérn 1/2, the smoothest and the roughest of
    kernels, and of the better one with a length-scale that inputs share, on a sample of merged
    rows.
    """
    found = []
    for law in (usual, other):
        contest = contest_of(data, law, scales(LatentGP(RBF(), law), data))
        if contest is None:
            return -np.inf
        contest = contest._replace(families=("RBF", "Matern12"))
        optima = optima_of(contest, contest.rows.blocks(sample(contest)))
        found.append(max((own.log_evidence for own in optima), default=-np.inf))
    return found[1] - found[0] if found[1] > -np.inf else -np.inf
