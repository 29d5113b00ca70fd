"""Settings of an estimator for a table of time series."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from latentgp.choosing.choice import DENSE_OTHERWISE
from latentgp.extensions.state_space.markov.representation import Markov
from latentgp.extensions.state_space.structural import series_kernel
from latentgp.kernels import Matern52, White
from latentgp.likelihoods import Gaussian
from latentgp.site_inference.methods.base import ShortSearch
from latentgp.site_inference.methods.exact import ExactGP

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

    Args:
        settings: of the estimator.
        X: times, and numbers of series in a second column.
        y: targets, shape (N,).
        weights: of the rows.
        side: side information by the likelihood's names.
        task: what the targets are.
        calendar: periods of dates by name; empty for numbers.
        plain: whether they are numbers without another likelihood or side information.
    """
    found, chosen = dict(settings), None
    series = X[:, 1] if X.shape[1] > 1 else None
    if settings.get("kernel") is None:
        if task in ("regression", "count") and settings.get("priors", "weak") == "weak":
            latent = y if task == "regression" else _log_rates(y, side)
            chosen = series_kernel(X[:, 0], latent, series, weights, calendar)
        if chosen is None:
            found["kernel"] = Matern52(lengthscale=(float(np.std(X[:, 0])) or 1.0) / 5).on(0)
            frozen: tuple[str, ...] = ()
            if series is not None:
                found["kernel"] *= White(variance=1.0).on(1)
                frozen = ("kernel.parts[1].kernel.variance",)
        else:
            found |= {"kernel": chosen.kernel, "priors": chosen.priors}
            frozen = chosen.frozen
        given = settings.get("frozen", ())
        found["frozen"] = (*((given,) if isinstance(given, str) else given), *frozen)
    if chosen is not None and plain:
        found["likelihood"] = Gaussian(chosen.noise)
    asked = any(settings.get(name) is not None for name in ("representation", "n_inducing"))
    if not asked and (chosen is None or len(X) > DENSE_OTHERWISE):
        markov = Markov() if chosen is None else Markov(harmonics=_HARMONICS)
        if chosen is not None and plain and settings.get("method", "auto") == "auto":
            found["method"] = ExactGP(markov, search=ShortSearch(_SEARCHED_ROWS, _EVALUATIONS))
        else:
            found["representation"] = markov
    return found, [] if chosen is None else [chosen.reason]


def _log_rates(y: Float[np.ndarray, "N"], side: Mapping[str, np.ndarray]) -> Float[np.ndarray, "N"]:
    """What stands for the latent function of counts: log odds of trials, or logarithms of rates."""
    if "trials" in side:
        return np.log((y + 0.5) / (side["trials"] - y + 0.5))
    return np.log((y + 0.5) / side.get("exposure", 1.0))
