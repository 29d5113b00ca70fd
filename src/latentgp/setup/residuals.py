"""Residuals of a fit, tested for what its law leaves out; NumPy on few rows.

Those with Gaussian noise for heavy tails, counts for more variation than their law has.

A fit compiles nothing for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import betaln, expit, gammaln, log_expit

from latentgp.likelihoods import Binomial, Likelihood, Poisson
from latentgp.rows.data import Data
from latentgp.rows.spread import robust_spread
from latentgp.setup.priors import spread_of

_FEWEST_ROWS = 20
_GAIN_A_ROW, _GAIN = 0.02, 6.0
_NEIGHBOURS, _LEFT = 20, 0.35
_TINY = 0.01


class Residuals(NamedTuple):
    """Residuals given the other rows, in standard deviations."""

    value: Float[np.ndarray, "rows"]
    share: float  # of the standard deviation of the targets, their root mean square before that
    X: Float[np.ndarray, "rows D"]  # inputs of their rows
    weights: Float[np.ndarray, "rows"]  # of the rows, of mean one

    @property
    def effective(self) -> float:
        """Effective number of rows, (sum w)^2 / sum w^2 (Kish)."""
        return float(self.weights.sum() ** 2 / np.sum(self.weights**2))


def residuals_of(
    posterior: Any, data: Data, rows: Int[np.ndarray, "rows"], mean: Float[np.ndarray, "rows"]
) -> Residuals:
    """Standardised residuals under Gaussian noise at some of the rows, given means of f there.

    Of an exact posterior each row is left out of what predicts it (Rasmussen & Williams 2006,
    5.12). Through inducing points, of which there are few, rows are not left out.
    """
    chosen = data.select(rows)
    known = np.asarray(chosen.side_information.get("noise_variance", 0.0))
    noise = float(posterior.model.likelihood.noise_variance) + known
    weights = np.ones(len(rows)) if chosen.weights is None else np.asarray(chosen.weights)
    left_out = posterior.latent.left_out(rows)
    if left_out is None:
        residual, variance = np.asarray(chosen.y) - mean, noise
    else:
        residual, variance = left_out[0], left_out[1] + noise
    with np.errstate(invalid="ignore"):
        value = residual / np.sqrt(variance)
    counts = (weights > 0) & np.isfinite(value)
    kept = weights[counts]
    if not counts.any():
        return Residuals(value[counts], 0.0, np.asarray(chosen.X)[counts], kept)
    share = np.sqrt(np.average(residual[counts] ** 2, weights=kept)) / spread_of(chosen)
    return Residuals(value[counts], float(share), np.asarray(chosen.X)[counts], kept / kept.mean())


def student_gain(residuals: Residuals) -> float:
    """Nats a row by which Student's law describes residuals better than a Gaussian.

    Each at its best scale, the former at its best degrees of freedom.
    """
    from scipy.optimize import minimize  # takes long to import

    value, weights = residuals.value, residuals.weights
    square = np.average(value**2, weights=weights)
    if not square > 0:
        return 0.0
    e, gaussian = value / np.sqrt(square), -0.5 * (1 + np.log(2 * np.pi))

    def less(logs: Float[np.ndarray, "2"]) -> float:
        nu, scale = np.exp(logs)
        constant = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * np.log(nu * np.pi) - logs[1]
        tail = 0.5 * (nu + 1) * np.log1p((e / scale) ** 2 / nu)
        return float(np.average(tail, weights=weights) - constant)

    start = np.log([4.0, max(np.median(np.abs(e)), 1e-3)])
    bounds = [(np.log(0.2), np.log(1e3)), (-15.0, 3.0)]
    best = minimize(less, start, method="L-BFGS-B", bounds=bounds)
    return float(-best.fun - gaussian)


def in_local_units(residuals: Residuals) -> Residuals:
    """The same over the mean size of those of their nearest neighbours.

    Where the noise depends on the inputs its law then is nearly Gaussian; outliers remain.
    """
    from scipy.spatial import KDTree  # takes long to import

    X, size = residuals.X / robust_spread(residuals.X, None)[0], np.abs(residuals.value)
    near = np.asarray(KDTree(X).query(X, min(_NEIGHBOURS + 1, len(X)))[1])
    others = np.mean(size[near[:, 1:]], axis=1)
    return residuals._replace(value=residuals.value / np.maximum(others, _TINY * size.mean()))


def heavy_tails(residuals: Residuals) -> list[str]:
    """Warning if another noise distribution is clearly better, naming it."""
    if len(residuals.value) < _FEWEST_ROWS or residuals.share < _TINY:
        return []  # of what is as good as interpolated the noise does not matter
    number = residuals.effective
    gain = student_gain(residuals)
    if gain * number < max(_GAIN, _GAIN_A_ROW * number):
        return []
    if student_gain(in_local_units(residuals)) < _LEFT * gain:
        return [
            "The size of residuals varies with the inputs: noise of its own in every place would "
            f"be better (Student-t noise, the same in all, by about {gain:.2g} nats a row); use "
            "HeteroscedasticGaussian(), or HeteroscedasticStudentT() if there are outliers too "
            "(likelihood='heteroscedastic', or 'heteroscedastic-student-t', of an estimator)."
        ]
    return [
        f"Residuals have heavy tails: Student-t noise would be about {gain:.2g} nats a row "
        "better; use StudentT() (likelihood='student-t' of an estimator)."
    ]


PerRow = Float[np.ndarray, "rows"]


class WiderLaw(NamedTuple):
    """A law of counts that has another one as its limit."""

    advice: str
    # nats by which it is ahead at a row, given targets, latents, exposures or trials, and its own
    # parameter, with which it narrows
    gain: Callable[[PerRow, PerRow, PerRow, float], PerRow]


def _negative_binomial(y: PerRow, f: PerRow, sizes: PerRow, r: float) -> PerRow:
    """Ahead of a Poisson's law."""
    mean = sizes * np.exp(f)
    return gammaln(y + r) - gammaln(r) + r * np.log(r) - (y + r) * np.log(r + mean) + mean


def _beta_binomial(y: PerRow, f: PerRow, sizes: PerRow, c: float) -> PerRow:
    """Ahead of a binomial law."""
    p, failures = expit(f), sizes - y
    own = betaln(y + p * c, failures + (1 - p) * c) - betaln(p * c, (1 - p) * c)
    return own - y * log_expit(f) - failures * log_expit(-f)


_WIDER: dict[type[Likelihood], WiderLaw] = {
    Poisson: WiderLaw(
        "a negative binomial's would be about {gain:.2g} nats a row better; use "
        "LogNegativeBinomial() (likelihood='negative-binomial' of an estimator).",
        _negative_binomial,
    ),
    Binomial: WiderLaw(
        "a beta-binomial one would be about {gain:.2g} nats a row better; use BetaBinomial() "
        "(likelihood='beta-binomial' of an estimator).",
        _beta_binomial,
    ),
}


def wider_law(likelihood: Likelihood) -> WiderLaw | None:
    """The law that counts of more variation than the likelihood's have; None of others."""
    return _WIDER.get(type(likelihood))


def excess_variation(law: WiderLaw, chosen: Data, f: PerRow) -> list[str]:
    """Warning if a wider law of counts is clearly better, each given f at the rows.

    An f that was fitted to the same rows hides some of it.
    """
    from scipy.optimize import minimize_scalar  # takes long to import

    y, weights = np.asarray(chosen.y), np.ones(chosen.size)
    weights = weights if chosen.weights is None else np.asarray(chosen.weights)
    sizes = np.broadcast_to(next(iter(chosen.side_information.values()), 1.0), y.shape)
    number = weights.sum()  # a weight is a number of copies
    if number < _FEWEST_ROWS:
        return []

    def less(log_own: float) -> float:
        return -float(np.average(law.gain(y, f, sizes, np.exp(log_own)), weights=weights))

    found: Any = minimize_scalar(less, bounds=(-7.0, 12.0), method="bounded")
    gain = -found.fun
    if not gain * number >= max(_GAIN, _GAIN_A_ROW * number):
        return []
    return [f"Counts vary by more than their law has: {law.advice.format(gain=gain)}"]
