"""Scores of predictions: accuracy and calibration.

Every score is a mean over N rows, optionally weighted, and smaller is better except for
`interval_coverage`, which should equal the level the interval was made for, and
`concordance_index`, a mean over pairs of rows. Inputs are array-likes with one entry a row; classes
are whole numbers 0 .. K-1 unless `classes` names the columns of the probabilities. An integer
weight w equals w copies of the row.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, xlogy

from latentgp.errors import InputError
from latentgp.modules import stored
from latentgp.rows.arrays import unmasked

__all__ = [
    "ReliabilityCurve",
    "brier_score",
    "concordance_index",
    "crps_gaussian",
    "crps_quantiles",
    "expected_calibration_error",
    "interval_coverage",
    "log_loss",
    "mean_absolute_error",
    "negative_log_predictive_density",
    "poisson_deviance",
    "reliability_curve",
    "root_mean_squared_error",
]

# How far the probabilities of a row may be from summing to one: wide enough for float32.
SUM_TOLERANCE = 1e-4


@stored
class ReliabilityCurve(NamedTuple):
    """Stated probability against observed frequency, one entry a bin that holds any row.

    Attributes:
        probability: (bins,) mean stated probability in the bin.
        frequency: (bins,) weighted share of the bin's rows in which the stated event happened.
        rows: (bins,) number of rows in the bin.
        weight: (bins,) share of the total weight in the bin, summing to one.
    """

    probability: NDArray[np.float64]
    frequency: NDArray[np.float64]
    rows: NDArray[np.int64]
    weight: NDArray[np.float64]


def negative_log_predictive_density(
    log_density: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    """Mean over the rows of -log p(y_n | x_n, data), in nats; of a continuous y by its unit.

    Args:
        log_density: (N,) log predictive density (or probability) of each observed target, in nats;
            -inf is allowed and makes the score infinite.
        sample_weight: (N,) non-negative weights.

    Raises:
        InputError: if `log_density` is not one number a row, or holds NaN or +inf.

    Example:
        >>> negative_log_predictive_density([-1.0, -3.0])
        2.0
    """
    log_density = _one_a_row("log_density", log_density, allow_infinity=True)
    _refuse_rows("log_density", np.isposinf(log_density), "+inf")
    return _mean(-log_density, sample_weight)


def root_mean_squared_error(
    y: ArrayLike, mean: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    """Square root of the mean squared difference, in the unit of y.

    Args:
        y: (N,) observed targets.
        mean: (N,) predictions.
        sample_weight: (N,) non-negative weights.

    Raises:
        InputError: if the shapes differ or a value is not finite.

    Example:
        >>> root_mean_squared_error([0.0, 0.0], [3.0, -3.0])
        3.0
    """
    y, mean = equally_long(y=y, mean=mean)
    return float(np.sqrt(_mean((y - mean) ** 2, sample_weight)))


def mean_absolute_error(
    y: ArrayLike, mean: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    """Mean absolute difference, in the unit of y; smallest for predicted medians.

    Args and errors are those of `root_mean_squared_error`.

    Example:
        >>> mean_absolute_error([0.0, 0.0], [3.0, -1.0])
        2.0
    """
    y, mean = equally_long(y=y, mean=mean)
    return _mean(np.abs(y - mean), sample_weight)


def poisson_deviance(
    y: ArrayLike, mean: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    """Mean deviance of counts from predicted means under a Poisson law, in nats.

    2 (y log(y / mean) - y + mean), twice what the log probability is short of that of a mean
    that equals the count. Source: McCullagh & Nelder (1989), "Generalized linear models", 2.3.1.

    Args:
        y: (N,) observed counts.
        mean: (N,) predicted means, in each row's exposure, positive.
        sample_weight: (N,) non-negative weights.

    Raises:
        InputError: if the shapes differ, a value is not finite, a count is negative or a mean is
            not positive.

    Example:
        >>> round(poisson_deviance([0, 2], [1.0, 1.0]), 6)
        1.386294
    """
    y, mean = equally_long(y=y, mean=mean)
    _refuse_rows("y", y < 0, "a negative count")
    _refuse_rows("mean", mean <= 0, "a mean that is not positive")
    return _mean(2 * (xlogy(y, y / mean) - y + mean), sample_weight)


def concordance_index(
    y: ArrayLike, predicted: ArrayLike, *, censored: ArrayLike | None = None
) -> float:
    """Share of the pairs of rows, of those whose order is known, that are predicted in that order.

    One for a perfect order, one half for chance. A pair is known if the smaller y is not censored,
    or if of two equal ones exactly one is, which then is the later event. One that is predicted
    equal counts one half. Source: Harrell, Lee & Mark (1996), "Multivariable prognostic models",
    Statistics in Medicine 15, 5.5.

    Args:
        y: (N,) times until an event, or until which there was none.
        predicted: (N,) predicted times, of which only the order counts; give a predicted risk with
            its sign changed.
        censored: (N,) 1 where there was no event until y; None means an event in every row.

    Raises:
        InputError: if the shapes differ, a value is not finite, `censored` holds something else
            than 0 and 1, or no pair has a known order.

    Example:
        >>> concordance_index([1.0, 2.0, 3.0], [10.0, 30.0, 20.0], censored=[0, 0, 1])
        0.6666666666666666
    """
    censored = np.zeros(np.shape(y)) if censored is None else censored
    y, predicted, censored = equally_long(y=y, predicted=predicted, censored=censored)
    _refuse_rows("censored", ~np.isin(censored, (0, 1)), "something else than 0 and 1")
    right, known = 0.0, 0
    later: list[float] = []  # predictions of rows that come after, in their order
    order = np.lexsort((censored == 0, -y))  # the latest first, of equal ones what is censored
    differ = np.diff(y[order]).astype(bool) | np.diff(censored[order]).astype(bool)
    for rows in np.split(order, 1 + np.flatnonzero(differ)):
        for own in predicted[rows] if censored[rows[0]] == 0 else ():
            known += len(later)
            right += len(later) - (bisect_left(later, own) + bisect_right(later, own)) / 2
        for own in predicted[rows]:
            insort(later, own)
    if not known:
        raise InputError(
            "no two rows have a known order: give at least one event before another row's time"
        )
    return float(right / known)


def crps_gaussian(
    y: ArrayLike, mean: ArrayLike, std: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    """Mean continuous ranked probability score of Gaussian predictions, in the unit of y.

    CRPS(F, y) = integral of (F(t) - 1[t >= y])^2 dt, which for N(mean, std^2) is
    std (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi)), z = (y - mean) / std; it is |y - mean|
    where std is zero. Source: Gneiting & Raftery (2007), "Strictly proper scoring rules,
    prediction, and estimation", JASA 102, equation 21 and the display after it.

    Args:
        y: (N,) observed targets.
        mean: (N,) predictive means.
        std: (N,) predictive standard deviations of y (not variances), non-negative.
        sample_weight: (N,) non-negative weights.

    Raises:
        InputError: if the shapes differ, a value is not finite, or a `std` is negative.

    Example:
        >>> round(crps_gaussian([0.0], [0.0], [1.0]), 6)
        0.233695
    """
    y, mean, std = equally_long(y=y, mean=mean, std=std)
    _refuse_rows("std", std < 0, "a negative standard deviation")
    error = y - mean
    # Where std is zero z is infinite and the formula tends to |error|: no 0 * inf may arise.
    z = np.divide(error, std, out=np.copysign(np.inf, error), where=std > 0)
    z[error == 0] = 0.0
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    scores = error * (2 * ndtr(z) - 1) + std * (2 * density - 1 / np.sqrt(np.pi))
    return _mean(scores, sample_weight)


def crps_quantiles(
    y: ArrayLike, quantiles: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    """Mean continuous ranked probability score of predictions by quantiles, in the unit of y.

    CRPS(F, y) = integral over p from 0 to 1 of 2 (1[y < q_p] - p) (q_p - y), q_p the quantile at p,
    as a sum over the middles of K equal parts. Source: Gneiting & Ranjan (2011), "Comparing density
    forecasts using threshold- and quantile-weighted scoring rules", JBES 29, section 2.

    Args:
        y: (N,) observed targets.
        quantiles: (N, levels) at the probabilities (k + 1/2) / levels, k from 0 on.
        sample_weight: (N,) non-negative weights.

    Raises:
        InputError: if the shapes do not match, or a value is not finite.

    Example:
        >>> crps_quantiles([0.0], [[-1.0, 1.0]])  # the law at once -1 and 1
        0.5
    """
    quantiles = _numbers("quantiles", quantiles)
    if quantiles.ndim != 2 or quantiles.shape[1] == 0:
        raise InputError(f"quantiles has shape {quantiles.shape}: pass one row for each target")
    y, _ = equally_long(y=y, quantiles=np.max(np.abs(quantiles), axis=1))
    levels = (np.arange(quantiles.shape[1]) + 0.5) / quantiles.shape[1]
    above = y[:, None] < quantiles
    scores = 2 * np.mean((above - levels) * (quantiles - y[:, None]), axis=1)
    return _mean(scores, sample_weight)


def interval_coverage(
    y: ArrayLike, lower: ArrayLike, upper: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    """Share of the rows whose target lies in [lower, upper], the level up to sampling error.

    Args:
        y: (N,) observed targets.
        lower: (N,) lower ends, -inf allowed.
        upper: (N,) upper ends, +inf allowed.
        sample_weight: (N,) non-negative weights.

    Raises:
        InputError: if the shapes differ, a value is NaN, or a lower end exceeds its upper end.

    Example:
        >>> interval_coverage([0.0, 5.0], [-1.0, -1.0], [1.0, 1.0])
        0.5
    """
    y, lower, upper = equally_long(allow_infinity=True, y=y, lower=lower, upper=upper)
    _refuse_rows("lower", lower > upper, "a lower end above the upper end")
    return _mean(((lower <= y) & (y <= upper)).astype(np.float64), sample_weight)


def log_loss(
    labels: ArrayLike,
    probabilities: ArrayLike,
    *,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Mean over the rows of -log of the probability given to the class that came out, in nats.

    Probabilities are clipped below at the smallest normal number of their dtype only (2e-308 in
    float64), so a confident error costs what it should.

    Args:
        labels: (N,) classes.
        probabilities: (N, K), or (N,) probabilities of the second class.
        classes: (K,) the class of each column; None means 0 .. K-1.
        sample_weight: (N,) non-negative weights.

    Raises:
        InputError: if the shapes do not match, probabilities are outside [0, 1] or do not sum
            to one, or a label is not among the classes.

    Example:
        >>> round(log_loss([1, 0], [0.5, 0.5]), 6)
        0.693147
    """
    dtype = np.asarray(probabilities).dtype
    tiny = float(np.finfo(dtype if dtype.kind == "f" else np.float64).tiny)
    index, columns = _class_probabilities(labels, probabilities, classes)
    return _mean(-np.log(np.maximum(columns[np.arange(index.size), index], tiny)), sample_weight)


def brier_score(
    labels: ArrayLike,
    probabilities: ArrayLike,
    *,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Mean over the rows of the squared error of the probabilities, summed over classes.

    In [0, 2]. For two classes this is twice the mean of (p - y)^2. Source: Brier (1950),
    "Verification of forecasts expressed in terms of probability", equation 2.

    Args and errors are those of `log_loss`.

    Example:
        >>> brier_score([1, 0], [0.5, 0.5])
        0.5
    """
    index, columns = _class_probabilities(labels, probabilities, classes)
    observed = np.eye(columns.shape[1])[index]
    return _mean(((columns - observed) ** 2).sum(axis=1), sample_weight)


def expected_calibration_error(
    labels: ArrayLike,
    probabilities: ArrayLike,
    bins: int = 15,
    *,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Mean absolute gap between confidence and accuracy over equally wide bins of confidence.

    It is in [0, 1], and biased upwards when bins hold few rows. Confidence is the probability of
    the most probable class, accuracy whether that class came out, also when two classes are given
    as one probability. Source: Guo, Pleiss, Sun & Weinberger (2017), "On calibration of modern
    neural networks", equation 3.

    Args:
        labels: (N,) classes.
        probabilities: (N, K), or (N,) probabilities of the second class.
        bins: number of bins, (k/bins, (k+1)/bins].
        classes: (K,) the class of each column; None means 0 .. K-1.
        sample_weight: (N,) non-negative weights.

    Raises:
        InputError: as `log_loss`, and if `bins` is not a positive whole number.

    Example:
        >>> round(expected_calibration_error([1, 1, 1, 0], [0.9, 0.9, 0.9, 0.9]), 6)
        0.15
    """
    _, columns = _class_probabilities(labels, probabilities, classes)
    curve = reliability_curve(labels, columns, bins, classes=classes, sample_weight=sample_weight)
    return float(np.sum(curve.weight * np.abs(curve.probability - curve.frequency)))


def reliability_curve(
    labels: ArrayLike,
    probabilities: ArrayLike,
    bins: int = 15,
    *,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> ReliabilityCurve:
    """Stated probability against observed frequency in equally wide bins, for plots.

    (N,) probabilities are binned as they are, against how often the second class came out. (N, K)
    probabilities are binned by the most probable class, against how often it was right.

    Args and errors are those of `expected_calibration_error`.

    Example:
        >>> reliability_curve([1, 0, 1, 1], [0.2, 0.2, 0.9, 0.9], bins=2).frequency
        array([0.5, 1. ])
    """
    if isinstance(bins, bool) or not isinstance(bins, int | np.integer) or bins < 1:
        raise InputError(f"bins is {bins!r}: pass a whole number of at least 1")
    index, columns = _class_probabilities(labels, probabilities, classes)
    event = np.full(index.size, 1) if np.ndim(probabilities) == 1 else columns.argmax(axis=1)
    stated = columns[np.arange(index.size), event]
    happened = (index == event).astype(np.float64)
    weight = _weights(index.size, sample_weight)
    of_row = np.clip(np.ceil(stated * bins).astype(np.int64) - 1, 0, bins - 1)
    total = np.bincount(of_row, weight, bins)
    used = total > 0
    return ReliabilityCurve(
        probability=np.bincount(of_row, weight * stated, bins)[used] / total[used],
        frequency=np.bincount(of_row, weight * happened, bins)[used] / total[used],
        rows=np.bincount(of_row[weight > 0], minlength=bins)[used],
        weight=total[used] / total.sum(),
    )


def _mean(scores: NDArray[np.float64], sample_weight: ArrayLike | None) -> float:
    weight = _weights(scores.size, sample_weight)
    counted = weight > 0  # a row of weight zero counts for nothing, even if its score is infinite
    return float(np.average(scores[counted], weights=weight[counted]))


def _weights(rows: int, sample_weight: ArrayLike | None) -> NDArray[np.float64]:
    if sample_weight is None:
        return np.ones(rows)
    weight = _one_a_row("sample_weight", sample_weight)
    if weight.size != rows:
        raise InputError(f"sample_weight has {weight.size} rows and the data {rows}: pass one each")
    _refuse_rows("sample_weight", weight < 0, "a negative weight")
    if not weight.any():
        raise InputError("sample_weight is zero in every row: give some row a positive weight")
    return weight


def _numbers(name: str, values: ArrayLike) -> NDArray[np.float64]:
    try:
        array = np.asarray(unmasked(values))
        if array.dtype.kind in "mM":  # NumPy would count their ticks
            raise TypeError
        return array.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} holds something that is not a number: pass numbers") from None


def _one_a_row(name: str, values: ArrayLike, *, allow_infinity: bool = False) -> NDArray:
    array = _numbers(name, values)
    if array.ndim != 1:
        raise InputError(f"{name} has shape {array.shape}: pass a flat array with one entry a row")
    if array.size == 0:
        raise InputError(f"{name} has no rows: pass at least one")
    _refuse_rows(name, np.isnan(array), "NaN")
    if not allow_infinity:
        _refuse_rows(name, np.isinf(array), "infinity")
    return array


def equally_long(*, allow_infinity: bool = False, **arrays: ArrayLike) -> list[NDArray[np.float64]]:
    """Convert the named arrays to float64 of one shape (N,), or raise for the one that is not."""
    checked = [_one_a_row(*named, allow_infinity=allow_infinity) for named in arrays.items()]
    if len({array.size for array in checked}) > 1:
        sizes = zip(arrays, checked, strict=True)
        listed = ", ".join(f"{name} has {array.size} rows" for name, array in sizes)
        raise InputError(f"{listed}: pass arrays with the same rows")
    return checked


def _refuse_rows(name: str, wrong: NDArray[np.bool_], what: str) -> None:
    rows = np.flatnonzero(wrong)
    if rows.size:
        first = ", ".join(str(row) for row in rows[:5]) + (", ..." if rows.size > 5 else "")
        raise InputError(
            f"{name} holds {what} in {rows.size} row(s) (counting from 0: {first}): "
            "correct or remove them"
        )


def _class_probabilities(
    labels: ArrayLike, probabilities: ArrayLike, classes: ArrayLike | None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Give the class number of each row, (N,), and the probabilities of all classes, (N, K)."""
    stated = _numbers("probabilities", probabilities)
    if stated.ndim not in (1, 2) or (stated.ndim == 2 and stated.shape[1] < 2):
        raise InputError(
            f"probabilities has shape {stated.shape}: pass (rows,) for the second of two classes "
            "or (rows, classes)"
        )
    columns = np.stack([1 - stated, stated], axis=1) if stated.ndim == 1 else stated
    labels = np.asarray(unmasked(labels))
    if labels.shape != (columns.shape[0],) or labels.size == 0:
        raise InputError(
            f"labels has shape {labels.shape} and probabilities {stated.shape}: "
            "pass one label a row, and at least one row"
        )
    inside = np.all((columns >= 0) & (columns <= 1), axis=1)  # false for NaN too
    _refuse_rows("probabilities", ~inside, "a value outside [0, 1]")
    excess = np.abs(np.sum(columns, axis=1) - 1)
    _refuse_rows("probabilities", excess > SUM_TOLERANCE, "a sum other than 1")
    known = np.arange(columns.shape[1]) if classes is None else np.asarray(classes)
    if known.shape != (columns.shape[1],):
        raise InputError(
            f"classes has shape {known.shape}: name each of the {columns.shape[1]} columns once"
        )
    number_of = {label: number for number, label in enumerate(known.tolist())}
    index = np.array([number_of.get(label, -1) for label in labels.tolist()], dtype=np.int64)
    if (index < 0).any():
        stranger = labels[index < 0][0]
        named = ", ".join(str(label) for label in known[:5]) + (", ..." if known.size > 5 else "")
        raise InputError(f"labels holds {stranger}, not one of the classes: known are {named}")
    return index, columns
