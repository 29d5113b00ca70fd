"""Starts of periods: peaks of periodograms, compared by the evidence of some rows.

An evidence has a mode for nearly every period, and a search ends in the one it starts near. Here
targets stand for latent functions under Gaussian noise: normal scores where the likelihood is not
one of y - f, indicators of classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Key

from latentgp.hyperparameters.base import ParameterInfo, parameters, replace_unchecked
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.models import LatentGP
from latentgp.representations.latent_axis import latent_grams
from latentgp.rows.data import Data
from latentgp.rows.spread import varying
from latentgp.runtime.programs import Program
from latentgp.typing import Array, Inputs, PerRow

_ROWS, _ROWS_OF_EVIDENCE = 1_500, 250
_OVERSAMPLED, _MOST_FREQUENCIES, _CHUNK = 5, 20_000, 1_000_000
_PASSES, _PEAKS, _HARMONICS = 3, 4, 3
_OTHER_COLUMNS, _LARGEST_CLASSES = 4, 8
_NOISE = np.logspace(-6, 1, 15)  # in variances of the latent function
_APART = 0.05  # of logarithms of periods
CLEARLY, _MUCH = 3.0, 10.0  # nats


class Period(NamedTuple):
    """One learned period."""

    path: str  # of its hyper-parameter
    entry: tuple[int, ...]  # its place in that
    columns: tuple[int, ...]  # of the inputs that it may be about
    latent: int  # the latent function whose kernel has it
    unit: float  # one unit of the inputs in its own


def periods_of(space: ParameterSpace, data: Data) -> list[Period]:
    """The learned periods of a model whose latent functions targets can stand for."""
    learned = any(space.known[path].role == "period" for path in space.paths)
    if space.model.depth > 1 or not learned or not np.any(np.ptp(data.y, axis=0)):
        return []
    inputs, alike = data.X.shape[1], data.y.ndim > 1 or space.model.likelihood.targets == "class"
    found = []
    for path in space.paths:
        info = space.known[path]
        if info.role != "period" or (info.latent and not alike):  # such as that of a noise
            continue
        seen = tuple(range(inputs)) if info.dimensions is None else info.dimensions
        shape = np.shape(info.value)
        for entry in np.ndindex(*shape):
            columns = (seen[entry[0]],) if shape == (len(seen),) else seen
            found.append(Period(path, entry, columns, info.latent or 0, info.unit))
    return found


def with_likely_periods(space: ParameterSpace, data: Data) -> tuple[LatentGP, tuple[str, ...]]:
    """The model with its periods at peaks of periodograms if these are clearly better; in words.

    One period after another, the others as they are. Length-scales shorter than some turns of a
    period hide it, so that longer ones are tried with it.
    """
    model, periods = space.model, periods_of(space, data)
    if not periods:
        return model, ()
    search = _Search(space, data)
    for period in periods * (2 if len(periods) > 1 else 1):
        own, value, best = search.best(model, period)
        model = best if value > own + CLEARLY else model
    said = []
    known, moved = space.known, parameters(model)
    for path in dict.fromkeys(period.path for period in periods):
        before, after = np.asarray(known[path].value), np.asarray(moved[path].value)
        if np.any(np.abs(np.log(after / before)) > _APART):
            said.append(
                f"{path}: the search started at {in_words(after)} in place of "
                f"{in_words(before)}, after a periodogram of the targets."
            )
    return model, tuple(said)


def better_periods(space: ParameterSpace, model: LatentGP, data: Data) -> tuple[str, ...]:
    """A sentence for each learned period beside which a peak of the periodogram is much better."""
    periods = periods_of(space, data)
    if not periods:
        return ()
    search, said = _Search(space, data), []
    for period in periods:
        own, value, best = search.best(model, period)
        if value > own + _MUCH:
            at, now = (
                float(np.asarray(parameters(m)[period.path].value)[period.entry])
                for m in (best, model)
            )
            said.append(
                f"{period.path} is {now:.4g}, but a period of {at:.4g} describes the rows better "
                f"by about {value - own:.0f} nats, other hyper-parameters as they are; start the "
                "search there."
            )
    return tuple(said)


class EvidenceOfSomeRows:
    """Log evidence of Gaussian stand-ins for the latent functions, at some of the rows."""

    def __init__(self, space: ParameterSpace, data: Data):
        generator = np.random.default_rng(0)  # rows at regular distances have other periods
        self._space = space
        chosen = generator.permutation(data.size)[:_ROWS]
        self._X = np.asarray(data.X)[chosen]
        self._layout = space.model.layout(data.X)
        weights = np.ones(data.size) if data.weights is None else np.asarray(data.weights)
        self._weights = weights[chosen] / weights.mean()
        self._targets = stand_ins(space.model, data)[chosen]

    def value(self, model: LatentGP, latent: int) -> float:
        """Evidence of some rows plus log prior, in nats, at the best variance and noise."""
        rows = slice(0, _ROWS_OF_EVIDENCE)
        X, targets, root = self._X[rows], self._targets[rows], np.sqrt(self._weights[rows])
        grams = np.asarray(_prior_covariances(model, self._layout, jnp.asarray(X)))
        K = root[:, None] * grams[min(latent, len(grams) - 1)] * root
        if not np.all(np.isfinite(K)):
            return -np.inf
        scale = np.mean(np.diagonal(K))
        values, vectors = np.linalg.eigh(K / (scale if scale > 0 else 1.0))
        inner = vectors.T @ (root[:, None] * targets)
        variances = np.maximum(values, 0)[:, None] + _NOISE
        sums = np.einsum("nt,nk->kt", inner**2, 1 / variances)
        fit = np.sum(np.log(np.maximum(sums, 1e-300) / len(K)), axis=1) * len(K)
        log_evidence = -0.5 * (fit + targets.shape[1] * np.sum(np.log(variances), axis=0))
        return float(np.max(log_evidence)) + self._log_prior(model)

    def _log_prior(self, model: LatentGP) -> float:
        with np.errstate(divide="ignore", invalid="ignore"):
            vector = self._space.to_vector(model)
        if not np.all(np.isfinite(vector)):
            return -np.inf
        return float(_log_prior(self._space, jnp.asarray(vector)))


class _Search(EvidenceOfSomeRows):
    """Evidences of some rows, and periodograms of more."""

    def __init__(self, space: ParameterSpace, data: Data):
        super().__init__(space, data)
        self._peaks: dict[int, Float[np.ndarray, "periods"]] = {}

    def best(self, model: LatentGP, period: Period) -> tuple[float, float, LatentGP]:
        """Evidence of a model, the highest one with another period, and the model of that."""
        own = self.value(model, period.latent)
        found = [(self.value(m, period.latent), m) for m in self.candidates(model, period)]
        return own, *max(found, key=lambda pair: pair[0], default=(own, model))

    def candidates(self, model: LatentGP, period: Period) -> Iterator[LatentGP]:
        """The model with other periods; with longer length-scales too."""
        known = parameters(model)
        for column in period.columns:
            longer = self._longer(known, column)
            for peak in self._likely(column):
                value = np.array(known[period.path].value)
                value[period.entry] = peak * period.unit
                moved = replace_unchecked(model, {period.path: value})
                if not np.isfinite(self._log_prior(moved)):
                    continue
                yield moved
                if longer:
                    yield replace_unchecked(moved, longer)

    def _longer(
        self, known: dict[str, ParameterInfo], column: int
    ) -> dict[str, Float[np.ndarray, "..."]]:
        """Length-scales of the column that are shorter than half its range, at that."""
        half = np.ptp(self._X[:, column]) / 2
        longer = {}
        for path in self._space.paths:
            info = known[path]
            seen = range(self._X.shape[1]) if info.dimensions is None else info.dimensions
            if info.role != "lengthscale" or column not in seen or path in self._space.narrowed:
                continue
            value = np.array(info.value)
            own = list(seen).index(column) if value.shape == (len(seen),) else ...
            value[own] = np.maximum(value[own], half * info.unit)
            if not np.array_equal(value, info.value):
                longer[path] = value
        return longer

    def _likely(self, column: int) -> Float[np.ndarray, "periods"]:
        if column not in self._peaks:
            self._peaks[column] = likely_periods(self._X, self._targets, self._weights, column)
        return self._peaks[column]


def likely_periods(
    X: Inputs, targets: Float[np.ndarray, "N targets"], weights: PerRow, column: int
) -> Float[np.ndarray, "periods"]:
    """Periods of one input at peaks of least-squares periodograms, and few times as long ones.

    Powers of the periodograms of all targets are added. Waves of one frequency may be larger for
    some values of the other inputs, linearly. What trends and other inputs explain is taken off
    before (Zechmeister & Kürster 2009), and what the waves of the highest peak do, with harmonics,
    before the next periodogram.
    """
    x = np.asarray(X[:, column], np.float64)
    span = np.ptp(x)
    steps = np.diff(np.unique(x))
    if len(steps) < 4:
        return np.zeros(0)
    highest = 0.5 / np.quantile(steps, 0.1)
    lowest, resolution = 0.7 / span, 1 / (_OVERSAMPLED * span)
    number = int(min((highest - lowest) / resolution + 1, _MOST_FREQUENCIES))
    frequencies = lowest + resolution * np.arange(max(number, 1))
    others = [d for d in np.flatnonzero(varying(X)).tolist() if d != column][:_OTHER_COLUMNS]
    own = (x - x.mean()) / span
    linear = [(X[:, d] - X[:, d].mean()) / np.ptp(X[:, d]) for d in others]
    root = np.sqrt(weights)[:, None]
    sizes = np.stack([np.ones_like(x), *linear], axis=1)
    base = np.stack([np.ones_like(x), own, own**2, own**3, *linear], axis=1)
    found = []
    for _ in range(_PASSES):
        power = _power(x, sizes, root, base, targets, frequencies)
        padded = np.r_[-np.inf, power, -np.inf]
        peaks = np.flatnonzero((power >= padded[:-2]) & (power >= padded[2:]))
        peaks = peaks[np.argsort(-power[peaks])][:_PEAKS]
        if not peaks.size:
            break
        found += [(1 / frequencies[peak], rank) for rank, peak in enumerate(peaks.tolist())]
        angle = 2 * np.pi * frequencies[peaks[0]] * x
        waves = [f(k * angle) for k in range(1, _HARMONICS + 1) for f in (np.cos, np.sin)]
        base = np.concatenate([base, np.stack(waves, axis=1)], axis=1)
    likely: list[float] = []
    for period, rank in found:
        for times in (1, 2, 3) if rank == 0 else (1,):
            far = all(abs(np.log(times * period / known)) > 0.02 for known in likely)
            if far and times * period <= 1.5 * span:
                likely.append(times * period)
    return np.array(likely)


def _power(
    x: Float[np.ndarray, "N"],
    sizes: Float[np.ndarray, "N group"],
    root: Float[np.ndarray, "N 1"],
    base: Float[np.ndarray, "N B"],
    targets: Float[np.ndarray, "N targets"],
    frequencies: Float[np.ndarray, "frequencies"],
) -> Float[np.ndarray, "frequencies"]:
    """Sum of squares that waves of each frequency explain beside the base."""
    known = np.linalg.qr(root * base)[0]
    left = root * targets
    left = left - known @ (known.T @ left)
    step = max(1, _CHUNK // (2 * sizes.size))
    powers = []
    for start in range(0, len(frequencies), step):
        angle = 2 * np.pi * frequencies[start : start + step, None] * x
        pair = [f(angle)[:, :, None] * sizes * root for f in (np.cos, np.sin)]
        waves = np.concatenate(pair, axis=2)
        waves = waves - known @ (known.T @ waves)
        products = waves.transpose(0, 2, 1) @ waves
        ridge = 1e-6 * np.trace(products, axis1=1, axis2=2)[:, None, None] + 1e-12
        products = products + ridge * np.eye(products.shape[1])
        inner = waves.transpose(0, 2, 1) @ left
        powers.append(np.sum(inner * np.linalg.solve(products, inner), axis=(1, 2)))
    return np.concatenate(powers)


def stand_ins(model: LatentGP, data: Data) -> Float[np.ndarray, "N targets"]:
    """Numbers that stand for latent functions at the rows, of mean zero and deviation one.

    Missing outputs are at the mean of theirs.
    """
    from scipy.special import ndtri
    from scipy.stats import rankdata  # takes long to import

    likelihood, y = model.likelihood, np.asarray(data.y, np.float64)
    if likelihood.targets == "class" and likelihood.latent_size > 1:
        labels, counts = np.unique(y, return_counts=True)
        largest = labels[np.argsort(-counts)][:_LARGEST_CLASSES]
        y = (y[:, None] == largest).astype(np.float64)
    y = y.reshape(data.size, -1)
    if not likelihood.is_location and likelihood.targets != "class":
        side = data.side_information
        exposure = np.asarray(side.get("exposure", side.get("trials", 1.0)))
        y = y / np.broadcast_to(exposure, data.size)[:, None]
        y = ndtri(rankdata(y, axis=0, nan_policy="omit") / (data.size + 1))
    mean = np.nanmean(y, axis=0)
    y = np.where(np.isfinite(y), y - mean, 0.0)
    deviation = y.std(axis=0)
    return y / np.where(deviation > 0, deviation, 1.0)


@Program
def _prior_covariances(model: LatentGP, layout: Any, X: Inputs) -> Float[Array, "#Q N N"]:
    """Of a deep model the mean over 16 draws of the hidden functions."""
    if layout is None:
        return latent_grams(model.kernel, X)

    def given(key: Key[Array, ""]) -> Float[Array, "#Q N N"]:
        return latent_grams(model.kernel, layout.from_prior(model, X, key))

    keys = jax.random.split(jax.random.key(0), 16)
    return jnp.mean(jax.lax.map(given, keys), axis=0)


_log_prior = jax.jit(ParameterSpace.log_prior)


def in_words(values: Float[np.ndarray, "*S"]) -> str:
    """Numbers with four digits."""
    return ", ".join(f"{value:.4g}" for value in np.ravel(values))
