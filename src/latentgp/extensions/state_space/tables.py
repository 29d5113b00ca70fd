"""Settings of an estimator for a table of time series."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from latentgp.choosing.choice import DENSE_OTHERWISE
from latentgp.extensions.state_space.markov.representation import Markov
from latentgp.extensions.state_space.structural import series_kernel
from latentgp.kernels import Matern52, White
from latentgp.likelihoods import Binomial, Gaussian, LogNegativeBinomial, LogNormal, Poisson
from latentgp.site_inference.methods.base import ShortSearch
from latentgp.site_inference.methods.exact import ExactGP
from latentgp.site_inference.methods.laplace import Laplace

# Likelihoods by name: of numbers with noise, of counts.
_WITH_NOISE = "auto", "gaussian", "student-t", "laplace", "asymmetric-laplace", "log-normal"
_OF_RATES = "auto", "poisson", "negative-binomial", "binomial"
_HARMONICS = 4  # of a season in state-space form, whose time grows with their cube
# Of a search on many rows, which begins where the evidence of some is highest.
_SEARCHED_ROWS, _EVALUATIONS = 4_000, 12


def with_series(
    settings: Mapping[str, Any],
    X: Float[np.ndarray, "N D"],
    y: np.ndarray,
    weights: Float[np.ndarray, "N"] | None,
    side: Mapping[str, np.ndarray],
    *,
    task: str,
    calendar: Mapping[str, float],
    plain: bool,
) -> tuple[dict[str, Any], list[str]]:
    """Settings with a kernel and a representation of series where none are given, and why.

    X has times, and numbers of series in a second column; `calendar` periods of dates by name.
    Targets are `plain` if they are numbers without another likelihood or side information.
    """
    found, chosen, notes = dict(settings), None, []
    law, why_law = Gaussian, []
    series = X[:, 1] if X.shape[1] > 1 else None
    if settings.get("kernel") is None:
        why = _why_not(settings, task)
        if not why:
            latent = _latent(y, side, settings.get("likelihood"), task)
            of = partial(series_kernel, X[:, 0], series=series, weights=weights, calendar=calendar)
            chosen = of(y=latent)
            may_be = plain and settings.get("method", "auto") == "auto" and np.all(y > 0)
            in_logarithms = of(y=np.log(y)) if may_be else None
            if chosen is not None and in_logarithms is not None:
                ahead = in_logarithms.as_logarithms_ahead_of(chosen)
                if ahead > 0:
                    chosen, law = in_logarithms, LogNormal
                    why_law = [f"Likelihood: log-normal, {ahead:.1f} nats ahead of a Gaussian."]
            why = "the rows say too little of level, trend and seasons"
        if chosen is None:
            notes = [f"Kernel: one Matern52, as {why}."]
            found["kernel"] = Matern52(lengthscale=(float(np.std(X[:, 0])) or 1.0) / 5).on(0)
            frozen: tuple[str, ...] = ()
            if series is not None:
                found["kernel"] *= White(variance=1.0).on(1)
                frozen = ("kernel.parts[1].kernel.variance",)
        else:
            found |= {"kernel": chosen.kernel, "priors": chosen.priors}
            frozen, notes = chosen.frozen, [*why_law, chosen.reason]
        given = settings.get("frozen") or ()
        found["frozen"] = (*((given,) if isinstance(given, str) else given), *frozen)
    if chosen is not None and plain:
        found["likelihood"] = law(chosen.noise)
    method = settings.get("method", "auto")
    asked = any(settings.get(name) is not None for name in ("representation", "n_inducing"))
    asked |= not isinstance(method, str)  # which has its representation
    if not asked and (chosen is None or len(X) > DENSE_OTHERWISE):
        markov = Markov() if chosen is None else Markov(harmonics=_HARMONICS)
        if chosen is not None and plain and method == "auto":
            exact = ExactGP if law is Gaussian else Laplace
            found["method"] = exact(markov, search=ShortSearch(_SEARCHED_ROWS, _EVALUATIONS))
            searched, name = min(len(X), _SEARCHED_ROWS), exact.__name__
            notes.append(
                f"Search: at most {_EVALUATIONS} evaluations on {searched} of {len(X)} rows, from "
                f"where that evidence is highest; method={name}({markov}) searches to the end."
            )
        else:
            found["representation"] = markov
    return found, notes


def _why_not(settings: Mapping[str, Any], task: str) -> str:
    """Why the kernel has no level, trend and seasons; empty where it may have them.

    They are in units of the latent function: that of numbers with noise, or a log rate.
    """
    likelihood = settings.get("likelihood", "auto")
    if isinstance(likelihood, str):
        known = likelihood in _WITH_NOISE if task == "regression" else likelihood in _OF_RATES
    elif task == "regression":
        known = likelihood.is_location and likelihood.latent_size == 1
    else:
        known = isinstance(likelihood, Poisson | LogNegativeBinomial | Binomial)
    if task not in ("regression", "count") or not known:
        return "level, trend and seasons are for numbers with noise and for counts"
    if settings.get("priors", "weak") != "weak":
        return "priors are given"
    asked = [name for name in ("mean", "groups") if settings.get(name) is not None]
    asked += ["depth"] if settings.get("depth", 1) != 1 else []
    return f"{asked[0]} is given" if asked else ""


def _latent(
    y: Float[np.ndarray, "N"], side: Mapping[str, np.ndarray], likelihood: Any, task: str
) -> Float[np.ndarray, "N"]:
    """What stands for the latent function.

    Numbers, their logarithms, log odds of trials, or logarithms of rates.
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # of rows that are refused later
        if task == "regression":
            return np.log(y) if likelihood == "log-normal" else y
        if "trials" in side:
            return np.log((y + 0.5) / (side["trials"] - y + 0.5))
        return np.log((y + 0.5) / side.get("exposure", 1.0))
