"""Choice of level, trend and seasons of a time series by their evidence, in NumPy.

A structural model (Harvey 1989, 2.3) of stationary parts: a level, a trend that is nearly a line,
and seasons that change slowly, with priors that few rows need (Corani, Benavoli & Zaffalon 2021).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from operator import add, attrgetter
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpyro.distributions import Distribution, LogNormal

from latentgp.choosing.evidence import FAMILIES, NOISE, gaussian_evidence, maximum
from latentgp.kernels import Kernel, Matern12, Matern32, Periodic, White
from latentgp.runtime.blas_threads import one_blas_thread
from latentgp.setup.periods import likely_periods

_LEVELS = ("Matern12", "Matern32", "Matern52")  # the first unless another is two nats ahead
_ROWS, _ROWS_OF_EACH, _SERIES = 200, 100, 4  # of one series; of each of some
_FEWEST = 10
_LONG = 3.0  # spans: length-scale of the trend, and typical one of the level and of seasons' change
_TREND = _LONG**2 / 3  # its variance, which makes a slope of one deviation a span
_SEASON = 0.1
_WIDE, _WEAK = 2.0, 1.0  # deviations of logarithms of variances, of length-scales
_SMOOTH, _SMOOTH_WEAK = 0.3, np.sqrt(3.0)  # spans: of smooth levels, which are no random walk
_MARGIN = 2.0  # nats
_GUESSED = 5.0  # of a period from a periodogram
_PEAKS = 2
_USUAL = 4.0, 7.0, 12.0, 24.0  # steps
_ALIKE = 0.05  # of logarithms of periods
_MOST_SEASONS = 2
_MEANS_A_PERIOD, _FEWEST_MEANS = 16, 4
_JITTER = 1e-8
_BOUNDS = (-16.0, 12.0)

Vector = Float[np.ndarray, "N"]


class SeriesChoice(NamedTuple):
    """The kernel of a series."""

    kernel: Kernel  # of time, and of the column that tells series apart if there is one
    priors: dict[str, Distribution]  # of its hyper-parameters, by path
    frozen: tuple[str, ...]  # paths of those that are not learned
    noise: float  # variance of Gaussian noise, in the units of the targets
    reason: str  # why, in a sentence
    log_evidence: float  # of the rows that it was chosen on, with the log priors
    total: float  # sum of the targets of these rows

    def as_logarithms_ahead_of(self, of_targets: SeriesChoice) -> float:
        """Nats by which targets have more evidence in this choice, on their logarithms."""
        return self.log_evidence - self.total - of_targets.log_evidence


class _Series(NamedTuple):
    """Rows of one series, in spans of time and deviations of targets."""

    t: Vector
    y: Vector
    weights: Vector  # the number of rows whose mean it is
    copies: Vector  # how many of these are alike


class _Parts(NamedTuple):
    """A level of a family and seasons of some periods, in spans."""

    level: str
    periods: tuple[float, ...] = ()


class _Optimum(NamedTuple):
    """The maximum of a candidate's evidence."""

    parts: _Parts  # whose it is
    log_evidence: float  # with the log priors
    # length-scale and variance of the level, variance of the trend, of each season variance,
    # length-scale on the circle and of its change, and the noise variance
    logarithms: Float[np.ndarray, "H"]


class _Period(NamedTuple):
    """A period that a season may have."""

    length: float  # in spans
    words: str  # its name
    margin: float  # nats that it has to be ahead


class _Season(NamedTuple):
    """A season of an optimum, by its number."""

    optimum: _Optimum
    number: int

    @property
    def length(self) -> float:
        """Its period in spans."""
        return self.optimum.parts.periods[self.number]

    @property
    def values(self) -> Float[np.ndarray, "3"]:
        """Variance, length-scale on the circle, length-scale of its change."""
        return _rounded(self.optimum.logarithms[3 + 3 * self.number : 6 + 3 * self.number])


class _Structure(NamedTuple):
    """Level, trend and seasons."""

    level: _Optimum  # that has it, and the noise
    seasons: list[_Season]  # the shorter ones first
    trend: float  # logarithm of its variance
    words: list[str]  # names of the seasons


def series_kernel(
    t: Vector,
    y: Vector,
    series: Vector | None,
    weights: Vector | None,
    calendar: Mapping[str, float],
) -> SeriesChoice | None:
    """The kernel of a time series whose evidence is highest: its level, a trend, its seasons.

    The level is rough unless a smoother one is two nats ahead. Calendar periods are expected: they
    have a season unless the evidence is two nats less. Usual numbers of steps and peaks of the
    periodogram have to be two and five nats ahead. There is none of constant targets, of few rows,
    or where no evidence can be had.

    Targets are those of the latent function, or what stands for it; `series` numbers the series of
    each row, and `calendar` has periods by name, in the unit of the times.
    """
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        weights = np.ones(len(t)) if weights is None else weights
        counts = weights > 0
        t, y, weights = t[counts], y[counts], weights[counts]
        which = np.zeros(len(t)) if series is None else series[counts]
        rows = [_ordered(t, y, weights, which == own) for own in np.unique(which)]
        rows = [block for block in rows if len(block.t) >= _FEWEST and np.ptp(block.t) > 0]
        rows = sorted(rows, key=lambda block: len(block.t), reverse=True)[:_SERIES]
        if not rows:
            return None
        spread, span = float(np.std(y)), float(np.max([np.ptp(block.t) for block in rows]))
        squares = np.array([spread, span]) ** 2
        if not np.all((squares > 0) & np.isfinite(squares)):
            return None
        middle = np.mean(y)
        rows = [b._replace(t=b.t / span, y=(b.y - middle) / spread) for b in rows]
        most = _ROWS if len(rows) == 1 else _ROWS_OF_EACH
        step = float(np.median(np.diff(np.unique(rows[0].t))))
        found = _structure(rows, most, step, _periods(rows[0], most, step, span, calendar))
    if found is None:
        return None
    seen, weights = (np.concatenate([block[i][-most:] for block in rows]) for i in (1, 2))
    return _choice(found, span, spread, series is not None, middle + spread * seen, weights)


def _structure(
    rows: Sequence[_Series], most: int, step: float, periods: Sequence[_Period]
) -> _Structure | None:
    """Level, trend and seasons, each from the window of rows that shows it.

    Short seasons and the level are seen by the last rows, a longer season by as many means of
    stretches, each of some turns of the shorter one, and the trend by means over all times.
    """
    fine = [_Series(*(array[-most:] for array in block)) for block in rows]
    reach = float(np.median([np.ptp(block.t) for block in fine])) + step
    best = _best(fine, [period for period in periods if 2 * period.length <= reach])
    if best is None:
        return None
    seasons = [_Season(best, number) for number in range(len(best.parts.periods))]
    trend = best
    if any(len(block.t) > most for block in rows):
        for period in sorted(period for period in periods if 2 * period.length > reach):
            turn = max([step, *(season.length for season in seasons)])
            width = turn * max(1.0, period.length // (_MEANS_A_PERIOD * turn))
            if len(seasons) < _MOST_SEASONS and period.length >= _FEWEST_MEANS * width:
                slow = _best([_means(block, width, most) for block in rows], [period])
                if slow is not None and slow.parts.periods:
                    seasons.append(_Season(slow, 0))
        trend = _optimum([_means(block, 1 / most, most) for block in rows], None, _LEVELS[0], None)
    words = [next(p.words for p in periods if p.length == season.length) for season in seasons]
    return _Structure(best, seasons, (trend or best).logarithms[2], words)


def _ordered(t: Vector, y: Vector, weights: Vector, own: Any) -> _Series:
    order = np.argsort(t[own], kind="stable")
    return _Series(*(array[own][order] for array in (t, y, weights, weights)))


def _means(block: _Series, width: float, most: int) -> _Series:
    """Means of the last stretches of so much time."""
    stretches = np.floor((block.t - block.t[-1]) / width)  # zero is the last row alone
    places = np.unique(stretches, return_inverse=True)[1].ravel()
    each = (block.t, block.y, np.ones_like(block.t))
    t, y, total = (np.bincount(places, block.weights * of)[-most:] for of in each)
    return _Series(t / total, y / total, total, np.ones_like(total))


def _periods(
    rows: _Series, most: int, step: float, span: float, calendar: Mapping[str, float]
) -> list[_Period]:
    """Periods of two steps at least and half a span at most; peaks of the last rows."""
    t, y, weights, _ = (array[-most:] for array in rows)
    asked = [_Period(p / span, f"a {name}", -_MARGIN) for name, p in calendar.items()]
    if not calendar:
        usual = [_Period(p * step, f"{p:g} steps", _MARGIN) for p in _USUAL]
        asked = [_Period(1 / span, "one unit of time", _MARGIN), *usual]
    peaks = likely_periods(t[:, None], y[:, None], weights / weights.mean(), 0)[:_PEAKS]
    asked += [_Period(float(p), f"{p * span:.4g}", _GUESSED) for p in peaks]
    found: list[_Period] = []
    for period in asked:
        new = all(abs(np.log(period.length / own.length)) > _ALIKE for own in found)
        if new and 2 * step <= period.length * 1.01 and 2 * period.length <= 1 + step:
            found.append(period)
    return found


def _best(blocks: Sequence[_Series], periods: Sequence[_Period]) -> _Optimum | None:
    """The best level, and seasons one after another as long as one is ahead by its margin."""
    best = _with_level(blocks, None, None)
    for _ in range(_MOST_SEASONS):
        if best is None:
            break
        tried = [
            (found.log_evidence - best.log_evidence - period.margin, period.length, found)
            for period in periods
            if period.length not in best.parts.periods
            and (found := _optimum(blocks, best, best.parts.level, period.length)) is not None
        ]
        ahead, length, found = max(tried, default=(0.0, 0.0, None))
        if found is None or ahead <= 0:
            break
        best = _with_level(blocks, best, length, found)
    return best


def _with_level(
    blocks: Sequence[_Series],
    before: _Optimum | None,
    added: float | None,
    known: _Optimum | None = None,
) -> _Optimum | None:
    """The maximum with one more season, a smoother level only where it is two nats ahead.

    That of one level may be known.
    """
    optima = {} if known is None else {known.parts.level: known}
    each = [optima.get(level) or _optimum(blocks, before, level, added) for level in _LEVELS]
    found = [own for own in each if own is not None]
    if not found:
        return None
    smoothest = max(found, key=attrgetter("log_evidence"))
    return smoothest if smoothest.log_evidence > found[0].log_evidence + _MARGIN else found[0]


def _optimum(
    blocks: Sequence[_Series], before: _Optimum | None, level: str, added: float | None
) -> _Optimum | None:
    """The maximum of a level and seasons, those before and one more; None without an evidence."""
    periods = () if before is None else before.parts.periods
    parts = _Parts(level, periods if added is None else (*periods, added))
    middle, deviation = _priors(parts)
    start = middle.copy()
    if before is not None:
        kept = before.logarithms[:-1]
        start[: len(kept)], start[-1] = kept, before.logarithms[-1]
        if before.parts.level != level:
            start[0] = middle[0]
    rows = sum(len(block.t) for block in blocks)
    fixed = {"parts": parts, "blocks": blocks, "middle": middle, "deviation": deviation}
    negative = partial(_negative_log_evidence, **fixed)
    value, best = maximum(negative, start, [_BOUNDS] * len(start), rows, 40)
    return _Optimum(parts, value, best) if value > -np.inf else None


def _priors(parts: _Parts) -> tuple[Float[np.ndarray, "H"], Float[np.ndarray, "H"]]:
    """Means and deviations of the logarithms, in spans and in deviations of the targets."""
    rough = parts.level == _LEVELS[0]
    middle = [np.log(_LONG if rough else _SMOOTH), 0.0, np.log(_TREND)]
    deviation = [_WEAK if rough else _SMOOTH_WEAK, _WIDE, _WIDE]
    for _ in parts.periods:
        middle += [np.log(_SEASON), 0.0, np.log(_LONG)]
        deviation += [_WIDE, _WEAK, _WEAK]
    return np.array([*middle, np.log(NOISE)]), np.array([*deviation, _WIDE])


def _negative_log_evidence(
    logarithms: Float[np.ndarray, "H"],
    parts: _Parts,
    blocks: Sequence[_Series],
    middle: Float[np.ndarray, "H"],
    deviation: Float[np.ndarray, "H"],
) -> tuple[float, Float[np.ndarray, "H"]]:
    """Minus the log evidence of independent series and the log priors, and its gradient."""
    errors = (logarithms - middle) / deviation
    total = 0.5 * errors @ errors + np.sum(np.log(deviation * np.sqrt(2 * np.pi)))
    gradient = errors / deviation
    values = np.exp(logarithms)
    for t, y, weights, copies in blocks:
        lags = np.abs(t[:, None] - t)
        level, of_length = _of_lags(parts.level, lags, values[0])
        trend, _ = _of_lags("Matern32", lags, _LONG)
        terms = [values[1] * of_length, values[1] * level, values[2] * trend]
        covariance = terms[1] + terms[2]
        for number, period in enumerate(parts.periods):
            variance, circle, change = values[3 + 3 * number : 6 + 3 * number]
            turns = 2 * np.sin(np.pi * lags / period) ** 2 / circle**2
            fading, of_change = _of_lags("Matern12", lags, change)
            wave = variance * np.exp(-turns)
            season = wave * fading
            terms += [season, 2 * turns * season, wave * of_change]
            covariance = covariance + season
        covariance[np.diag_indices(len(t))] += _JITTER
        found = gaussian_evidence(covariance, y, weights, values[-1], copies)
        if found is None:
            return np.inf, np.zeros_like(logarithms)
        total += found.value
        gradient[:-1] += [np.sum(found.inner * term) for term in terms]
        gradient[-1] += found.of_parameter
    return float(total), gradient


def _of_lags(
    family: str, lags: Float[np.ndarray, "N N"], lengthscale: float
) -> tuple[Float[np.ndarray, "N N"], Float[np.ndarray, "N N"]]:
    """A correlation, and its derivative in the logarithm of the length-scale."""
    squared = (lags / lengthscale) ** 2
    value, slope, _ = FAMILIES[family].correlation(squared, 1.0)
    return value, -2 * squared * slope


def _choice(
    found: _Structure,
    span: float,
    spread: float,
    is_of_many: bool,
    seen: Vector,
    weights: Vector,
) -> SeriesChoice:
    """The kernel in the units of the rows, its priors, and what is frozen.

    It was chosen on the targets that were `seen`, with their weights.
    """
    best, variance = found.level, spread**2
    first = _rounded(best.logarithms)
    family = FAMILIES[best.parts.level].kernel
    kernels: list[Kernel] = [
        family(lengthscale=first[0] * span, variance=first[1] * variance),
        Matern32(lengthscale=_LONG * span, variance=_rounded(found.trend) * variance),
    ]
    names = ["parts[0].lengthscale", "parts[0].variance", "parts[1].variance"]
    units, frozen = [span, variance, variance], ["parts[1].lengthscale"]
    for season in found.seasons:
        size, circle, change = season.values
        at = f"parts[{len(kernels)}]"
        wave = Periodic(lengthscale=circle, period=season.length * span, variance=size * variance)
        kernels.append(wave * Matern12(lengthscale=change * span))
        names += [f"{at}.parts[0].variance", f"{at}.parts[0].lengthscale"]
        names += [f"{at}.parts[1].lengthscale"]
        units += [variance, 1.0, span]
        frozen += [f"{at}.parts[0].period", f"{at}.parts[1].variance"]
    kernel, within = reduce(add, kernels), "kernel"
    of_rows = f"by the evidence of {len(seen)} rows"
    if is_of_many:
        kernel, within = kernel.on(0) * White(variance=1.0).on(1), "kernel.parts[0].kernel"
    paths = [f"{within}.{name}" for name in frozen]
    middle, deviation = _priors(_Parts(best.parts.level, (0.0,) * len(found.seasons)))
    each = zip(names, middle, deviation, units, strict=False)  # that of the noise stays weak
    priors = {f"{within}.{n}": LogNormal(m + np.log(unit), d) for n, m, d, unit in each}
    seasons = " and one of ".join(found.words)
    return SeriesChoice(
        kernel,
        priors,
        (*paths, *["kernel.parts[1].kernel.variance"] * is_of_many),
        float(first[-1] * variance),
        f"Kernel: a {best.parts.level} level, a trend and "
        f"{f'a season of {seasons}' if seasons else 'no season'}, {of_rows}.",
        float(best.log_evidence - weights.sum() * np.log(spread)),
        float(weights @ seen),
    )


def _rounded(logarithms: Any) -> Any:
    """Values that are the same whatever the last digits of the rows."""
    return np.exp(np.round(logarithms, 1))
