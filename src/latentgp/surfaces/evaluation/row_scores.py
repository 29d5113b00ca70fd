"""Scores of a prediction at every row: log density, probability integral transform, moments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError
from latentgp.likelihoods.base import Likelihood, SideInformation


class RowScores(NamedTuple):
    """Predictions of targets that are known, one a row.

    Attributes:
        log_density: of the target, in nats, shape (N,).
        below: probability of a smaller target, shape (N, ...); None where there is no order.
        up_to: probability of a target of at most this one, likewise. Of real targets both are one,
            but at an atom, and where they are censored: then they hold what is known of the target.
        mean: of the prediction; None of classes, or where the likelihood does not tell it.
        variance: of the prediction, noise included; likewise.
        probabilities: of the classes, shape (N, K); None of what is no class.
    """

    log_density: Float[np.ndarray, "N"]
    below: Float[np.ndarray, "N *P"] | None
    up_to: Float[np.ndarray, "N *P"] | None
    mean: Float[np.ndarray, "N *P"] | None
    variance: Float[np.ndarray, "N *P"] | None
    probabilities: Float[np.ndarray, "N K"] | None = None

    def mapped(self, function: Callable[[np.ndarray], Any]) -> "RowScores":
        """A function of each of those that there are."""
        parts: Any = (None if own is None else function(own) for own in self)
        return RowScores(*parts)

    def as_predictions(self) -> dict[str, Any]:
        """Fields of `RowPredictions`."""
        std = None if self.variance is None else np.sqrt(self.variance)
        names = ("log_density", "below", "up_to", "mean", "probabilities")
        return {name: getattr(self, name) for name in names} | {"std": std}


class RowPredictions(eqx.Module):
    """Predictions of rows by other rows, in the order of the rows as given.

    Attributes:
        log_density: log p(y_n | other rows), in nats, shape (N,).
        below: probability of a smaller target given other rows, shape (N,), or (N, P); None of
            classes without an order, or where the likelihood does not tell it.
        up_to: the same of a target of at most y_n; of real targets it equals `below`, but at an
            atom. Of a censored target both are of its bounds.
        mean: of the prediction of y_n, likewise; None where there is none.
        std: standard deviation of the prediction, noise included; likewise.
        weights: how often each row counts in the sums, shape (N,).
        probabilities: of the classes given other rows, shape (N, K); None of what is no class.
        warnings: sentences on what is not reliable, and what to do.
    """

    log_density: Float[np.ndarray, "N"]
    below: Float[np.ndarray, "N *P"] | None
    up_to: Float[np.ndarray, "N *P"] | None
    mean: Float[np.ndarray, "N *P"] | None
    std: Float[np.ndarray, "N *P"] | None
    weights: Float[np.ndarray, "N"]
    probabilities: Float[np.ndarray, "N K"] | None = eqx.field(default=None, kw_only=True)
    warnings: tuple[str, ...] = eqx.field(static=True, default=(), kw_only=True)

    @property
    def pit(self) -> Float[np.ndarray, "N *P"] | None:
        """Probability integral transforms; the middle of an interval, as of counts and grades.

        Uniform where the model is calibrated (Czado, Gneiting & Held 2009).
        """
        if self.below is None or self.up_to is None:
            return None
        return 0.5 * (self.below + self.up_to)

    @property
    def elpd(self) -> float:
        """Sum of the log densities, in nats."""
        return total(self.log_density, self.weights)

    @property
    def standard_error(self) -> float:
        """Standard error of `elpd`, as rows differ."""
        return standard_error(self.log_density, self.weights)


def _has_order(likelihood: Likelihood) -> bool:
    """Whether targets have an order: not of more than two classes unless these are graded."""
    return likelihood.targets != "class" or likelihood.latent_size == 1


def _where_defined(ask: Callable[..., Any], *question: Any) -> Any:
    """The answer, or None where the likelihood does not define what it needs."""
    try:
        return ask(*question)
    except (InputError, NotImplementedError):
        return None


def scores_of(predictive: Any, y: Float[np.ndarray, "N *P"]) -> RowScores:
    """Scores of a `Predictive` at targets."""

    def ask(question: str, *given: Any) -> Any:
        if question == "conditional_moments":
            return predictive.mean, predictive.variance
        if question == "class_probabilities":
            return predictive.probabilities
        return getattr(predictive, question)(*given)

    return scores_by(ask, predictive.likelihood, y, predictive.side_information)


def scores_by(
    ask: Callable[..., Any],
    likelihood: Likelihood,
    y: Float[np.ndarray, "N *P"],
    side: SideInformation,
) -> RowScores:
    """Scores by the answers to questions, which are named as a likelihood's methods."""
    log_density = ask("log_prob", y)
    classes = ask("class_probabilities") if likelihood.targets == "class" else None
    if not _has_order(likelihood):
        return RowScores(log_density, None, None, None, None, classes)
    mean, variance = _where_defined(ask, "conditional_moments") or (None, None)
    if classes is not None:
        below, up_to = _limits_of_classes(classes, y)
    else:
        below = up_to = _where_defined(ask, "cdf", y)
        if up_to is not None:
            below, up_to = _limits(ask, likelihood, y, side, up_to, log_density)
    return RowScores(log_density, below, up_to, mean, variance, classes)


def _limits(
    ask: Callable[..., Any],
    likelihood: Likelihood,
    y: Float[np.ndarray, "N *P"],
    side: SideInformation,
    up_to: Float[np.ndarray, "*rows"],
    log_density: Float[np.ndarray, "*rows"],
) -> tuple[Float[np.ndarray, "*rows"], Float[np.ndarray, "*rows"]]:
    """Probabilities below what is known of a target, and up to it, from the cdf at y.

    Of rows observed from a time on they are given that the target exceeds it.
    """
    below = up_to
    if likelihood.targets == "count":
        below = np.where(y > 0, ask("cdf", np.maximum(y - 1, 0)), 0.0)
    elif likelihood.atoms:
        mass = np.where(np.isin(y, likelihood.atoms), np.exp(log_density), 0.0)
        below = np.maximum(up_to - mass, 0.0)
    kind = np.asarray(side.get("censored", 0))
    if "upper" in side:
        up_to = np.where(kind == 2, ask("cdf", np.where(kind == 2, side["upper"], y)), up_to)
    if "entry" in side:
        before = ask("cdf", np.asarray(side["entry"]))
        left = np.maximum(1 - before, np.finfo(float).tiny)
        below, up_to = (below - before) / left, (up_to - before) / left
    return np.where(kind == -1, 0.0, below), np.where(kind == 1, 1.0, up_to)


def _limits_of_classes(
    probabilities: Float[np.ndarray, "*S K"], y: Float[np.ndarray, "N"]
) -> tuple[Float[np.ndarray, "*S"], Float[np.ndarray, "*S"]]:
    """Probabilities of a class before that of the row, and of one up to it; N is last but one."""
    chosen = np.broadcast_to(y.astype(int), probabilities.shape[:-1])[..., None]
    upto = np.take_along_axis(np.cumsum(probabilities, axis=-1), chosen, axis=-1)[..., 0]
    own = np.take_along_axis(probabilities, chosen, axis=-1)[..., 0]
    return upto - own, np.minimum(upto, 1.0)


def mixed(scores: RowScores, log_weights: Float[np.ndarray, "S N"]) -> RowScores:
    """Scores of a mixture over a first axis of everything but the log density, by row's weights.

    The log density is left out (NaN). Exponentials of the log weights sum to one along S.
    """
    weights = np.exp(log_weights)

    def average(values: Any) -> Any:
        # What has no weight may be infinite.
        counted = weights.reshape(*weights.shape, *(1 for _ in values.shape[2:])) > 0
        return np.einsum("sn,sn...->n...", weights, np.where(counted, values, 0.0))

    found = scores._replace(log_density=np.full_like(log_weights, np.nan)).mapped(average)
    if scores.mean is not None and scores.variance is not None:
        mean: Any = found.mean
        same = scores.mean == mean  # both may be infinite
        apart = np.subtract(scores.mean, mean, where=~same, out=np.zeros_like(scores.mean))
        variance = average(scores.variance + apart**2)
        return found._replace(variance=variance)
    return found._replace(mean=None, variance=None)


def scattered(values: Float[np.ndarray, "K *P"], places: Any, size: int) -> Any:
    """Values at some of so many rows, NaN at the others."""
    whole = np.full((size, *values.shape[1:]), np.nan)
    whole[places] = values
    return whole


def total(values: Float[np.ndarray, "N"], weights: Float[np.ndarray, "N"]) -> float:
    """Weighted sum over the rows that count."""
    counted = weights > 0
    return float(np.sum(weights[counted] * values[counted]))


def standard_error(values: Float[np.ndarray, "N"], weights: Float[np.ndarray, "N"]) -> float:
    """Standard error of a sum over rows, as these differ from each other."""
    counted = weights > 0
    weights, values = weights[counted], values[counted]
    away = values - np.average(values, weights=weights)
    return float(np.sqrt(np.sum(weights * away**2)))


def error_of_mean(
    values: Float[np.ndarray, "N"], weights: Float[np.ndarray, "N"] | None = None
) -> float:
    """Standard error of a weighted mean, as rows differ; NaN of one row.

    Whole weights are numbers of copies. Others are of (sum w)^2 / sum w^2 rows (Kish 1965).
    """
    weights = np.ones(len(values)) if weights is None else weights
    copies = float(np.sum(weights))
    rows = copies if np.all(weights % 1 == 0) else copies**2 / float(np.sum(weights**2))
    if rows <= 1:
        return float("nan")
    return standard_error(values, weights) / float(np.sqrt(copies * (rows - 1)))
