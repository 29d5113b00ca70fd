"""Terms of an additive model, as users of mixed models write them, and a kernel to start from."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from jaxtyping import Float

from latentgp.errors import InputError
from latentgp.kernels import (
    RBF,
    Constant,
    CorrelatedLinear,
    FixedEffects,
    Kernel,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    MultipleMembership,
    OnSphere,
    Periodic,
    RationalQuadratic,
    SameGroup,
    ZeroAverage,
)
from latentgp.kernels.metric import on_globe
from latentgp.kernels.sphere import EARTH_RADIUS
from latentgp.likelihoods import Likelihood
from latentgp.means import ConstantMean, Mean, OffsetMean, PerLatentMean, ZeroMean
from latentgp.modules import stored
from latentgp.rows.arrays import evenly
from latentgp.rows.data import Data
from latentgp.rows.spread import median_distance
from latentgp.setup.priors import Scales
from latentgp.typing import PerRow

# Kernels that a smooth term can name.
SMOOTH: dict[str, Callable[..., Kernel]] = {
    "rbf": RBF,
    "matern12": Matern12,
    "matern32": Matern32,
    "matern52": Matern52,
    "rational-quadratic": RationalQuadratic,
    "periodic": Periodic,
    "globe": OnSphere,
}
_VAGUE = 10.0  # deviations of the latent function that a deviation of a column may make
_POINTS = 50  # quantiles of a column, or rows, over which smooth functions have no average
_SHARE = 0.5  # of the latent function's spread that an effect of groups has at the start


@stored
@dataclasses.dataclass(frozen=True)
class Smooth:
    """A Gaussian process of some columns: gp(x1, x2), s(x1, x2), te(x1, x2) or ti(x1, x2)."""

    columns: tuple[int, ...]  # numbers of these; on the globe longitude and latitude first
    kernel: str = "rbf"  # one of `SMOOTH`
    period: float | None = None  # of a periodic kernel
    # the column of groups that each have a function of their own; None for one function
    by: int | None = None
    # columns whose product has the process as its coefficient
    times: tuple[int, ...] = dataclasses.field(default=(), repr=False)
    # "te" of a product of kernels of the columns, "ti" of those of zero average; "s" of one that
    # has a zero average itself
    function: str = dataclasses.field(default="gp", repr=False)


@stored
@dataclasses.dataclass(frozen=True)
class Groups:
    """Random intercepts and slopes: (1 + x | g), or (1 + x || g) without correlation.

    With `others` a row has several groups, (1 | mm(g, h)).
    """

    column: int  # of the groups
    slopes: tuple[int, ...] = ()  # columns that have a slope in every group
    intercept: bool = True  # whether every group has one
    correlated: bool = True  # whether slopes and intercepts are correlated across groups
    # columns of a row's further groups
    others: tuple[int, ...] = dataclasses.field(default=(), repr=False)
    # columns of their weights; of none, equal ones
    weights: tuple[int, ...] = dataclasses.field(default=(), repr=False)
    # whether weights are divided by their sum
    standardised: bool = dataclasses.field(default=True, repr=False)


@stored
@dataclasses.dataclass(frozen=True)
class AdditiveTerms:
    """A sum of terms in place of a kernel, whose typical sizes follow from the data.

    Attributes:
        linear: columns with fixed effects.
        smooth: Gaussian processes.
        groups: effects of groups.
        kernel: a kernel beside them; None for none.
        centred: whether fixed effects are about the means of their columns, and a constant beside
            the terms has the level; else f is the sum of the terms alone.
        ones: columns with fixed effects whose sum is one in every row, such as that of an
            intercept, so that their coefficients have the level; empty where f has none.
        offsets: columns that are added to f as they are.
    """

    linear: tuple[int, ...] = ()
    smooth: tuple[Smooth, ...] = ()
    groups: tuple[Groups, ...] = ()
    kernel: Kernel | None = None
    centred: bool = True
    ones: tuple[int, ...] = ()
    offsets: tuple[int, ...] = dataclasses.field(default=(), repr=False)

    def less_offsets(self, data: Data) -> Data:
        """The rows with the offsets taken off their targets."""
        return OffsetMean(ZeroMean(), self.offsets).taken_off(data) if self.offsets else data

    def with_offsets(self, mean: Mean, data: Data, likelihood: Likelihood) -> Mean:
        """A prior mean plus the offsets, which its level is less by; of the first latent function.

        Where thresholds have the level, the offsets are about their average.

        Raises:
            InputError: latent functions that are one a class.
        """
        if not self.offsets:
            return mean
        if likelihood.targets == "class" and likelihood.latent_size > 1:
            raise InputError(
                f"offset(...) is added to one latent function, but {type(likelihood).__name__} has "
                "one a class: leave it out."
            )
        first, *others = mean.parts if isinstance(mean, PerLatentMean) else (mean,)
        offset = OffsetMean(first, self.offsets).offset(data.X)
        level, centre = np.average(offset, weights=data.weights), 0.0
        if likelihood.is_location and self.has_level:
            y = self.less_offsets(data).y
            first = ConstantMean(np.average(y, weights=data.weights))
        elif isinstance(first, ConstantMean):
            first = ConstantMean(first.value - level)
        elif self.centred:
            centre = float(level)
        first = OffsetMean(first, self.offsets, centre)
        if likelihood.latent_size == 1:
            return first
        others = others or [ZeroMean()] * (likelihood.latent_size - 1)
        return PerLatentMean(first, *others)

    @property
    def on_globe(self) -> tuple[int, ...]:
        """Columns of longitude and latitude, of one function of all inputs alone; else none."""
        term = self.smooth[0] if len(self.smooth) == 1 else Smooth(())
        others = self.linear or self.groups or self.offsets or self.kernel is not None
        alone = self.has_level and not others and term == Smooth(term.columns, "globe")
        return term.columns[:2] if alone else ()

    @property
    def has_level(self) -> bool:
        """Whether a constant added to f changes nothing but coefficients, or what is beside it."""
        return self.centred or bool(self.ones)

    def started(self, data: Data, scale: Scales, latent: float, reach: float = _VAGUE) -> Kernel:
        """The sum of the terms' kernels, of typical size.

        Args:
            data: the rows.
            scale: of the data.
            latent: spread of the latent function, about zero where it has no level.
            reach: of fixed effects: such spreads that a deviation of a column may make.

        Raises:
            InputError: there is no term.
        """
        kernels: list[Kernel] = []
        if self.linear:
            kernels.append(_fixed_effects(self, data, scale, reach * latent))
        kernels += [_smooth(term, data, scale, latent) for term in self.smooth]
        kernels += [part for term in self.groups for part in _of_groups(term, scale, latent)]
        kernels += [self.kernel] if self.kernel is not None else []
        if not kernels:
            raise InputError("The model has no term; add a column, gp(...) or groups.")
        return reduce(operator.add, kernels)


def _fixed_effects(terms: AdditiveTerms, data: Data, scale: Scales, reach: float) -> Kernel:
    own = list(terms.linear)
    X = data.X[:, own]
    constant = np.ptp(X, axis=0) == 0
    mean = np.where(constant, 0.0, np.average(X, axis=0, weights=data.weights))
    size = np.where(X[0] == 0, 1.0, np.abs(X[0]))
    spread = np.where(constant, size, scale.inputs[own])
    variance = (reach / spread) ** 2
    if terms.centred:
        return FixedEffects(variance, mean).on(*own)
    # An intercept at zero is as uncertain as slopes make it there.
    level = np.isin(own, terms.ones)
    far = 1 + np.sum((mean / spread)[~level] ** 2)
    return FixedEffects(variance * np.where(level, far, 1.0)).on(*own)


def _smooth(term: Smooth, data: Data, scale: Scales, latent: float) -> Kernel:
    for column in term.times:
        latent /= float(np.sqrt(np.average(data.X[:, column] ** 2, weights=data.weights))) or 1.0
    if term.function != "gp":
        return _tensor(term, data, scale, latent)
    columns = list(term.columns)
    spread = scale.inputs[columns]
    lengthscale = spread * median_distance(data.X[:, columns] / spread, data.weights)
    settings: dict[str, Any] = {"lengthscale": lengthscale, "variance": latent**2}
    if term.kernel == "periodic":
        period = float(spread[0]) if term.period is None else term.period
        settings |= {"lengthscale": 1.0, "period": period}
    if term.kernel == "globe":  # of longitude and latitude, a length-scale in kilometres
        settings["lengthscale"] = EARTH_RADIUS * np.radians(np.mean(lengthscale[:2]))
        own = columns[:2], tuple(columns[2:]), lengthscale[2:]
        return _beside(term, on_globe(Matern32(**settings), *own))
    return _beside(term, SMOOTH[term.kernel](**settings).on(*columns))


def _beside(term: Smooth, kernel: Kernel) -> Kernel:
    """A term's kernel times what it multiplies, and of groups that each have one."""
    for column in term.times:  # in its own unit: its variance is that of the coefficient
        kernel = FixedEffects(1.0).on(column) * kernel
    return kernel if term.by is None else kernel * SameGroup().on(term.by)


def _tensor(term: Smooth, data: Data, scale: Scales, latent: float) -> Kernel:
    """A product of kernels of columns, of which only the first has another variance than one."""
    kernels: list[Kernel] = []
    for columns in [term.columns] if term.function == "s" else [(own,) for own in term.columns]:
        own = Smooth(columns, term.kernel, term.period)
        kernel: Any = _smooth(own, data, scale, 1.0 if kernels else latent)
        if term.function != "te":
            points = _points(data.X[:, list(columns)], data.weights)
            kernel = ZeroAverage(kernel.kernel, points).on(*columns)
        kernels.append(kernel)
    return _beside(term, reduce(operator.mul, kernels))


def _points(X: Float[np.ndarray, "N D"], weights: PerRow | None) -> Float[np.ndarray, "P D"]:
    """Points whose averages are about those of the rows, which may stand for several."""
    shares = (np.arange(_POINTS) + 0.5) / _POINTS
    if X.shape[1] == 1:
        how: Any = {} if weights is None else {"weights": weights, "method": "inverted_cdf"}
        return np.quantile(X, shares, axis=0, **how)
    if weights is None:
        return X[evenly(len(X), _POINTS)]
    return X[np.searchsorted(np.cumsum(weights), shares * np.sum(weights))]


def _of_groups(term: Groups, scale: Scales, latent: float) -> list[Kernel]:
    same: Kernel = SameGroup().on(term.column)
    if term.others:
        of_several = MultipleMembership(1 + len(term.others), term.standardised)
        same = of_several.on(term.column, *term.others, *term.weights)
    size = (_SHARE * latent) ** 2
    slopes = list(term.slopes)
    variances = size / scale.inputs[slopes] ** 2
    if slopes and term.correlated and term.intercept + len(slopes) > 1:
        own = np.append([size] * term.intercept, variances)
        return [CorrelatedLinear(own, intercept=term.intercept).on(*slopes) * same]
    kernels: list[Kernel] = [Constant(size) * same] if term.intercept else []
    pairs = zip(slopes, variances, strict=True)
    return kernels + [Linear(variance).on(column) * same for column, variance in pairs]
