"""Choice of a stationary kernel by its evidence on a sample of rows, in NumPy: nothing compiles.

The evidence is that of Gaussian noise, or of counts and times by Laplace's approximation, with weak
priors of hyper-parameters, maximised for each candidate (Rasmussen & Williams 2006, 5.4.1, 5.5.1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from latentgp.choosing.evidence import FAMILIES, NOISE, KernelShape, Optimum, RowBlock, optimum
from latentgp.choosing.laplace import LAWS, Law, law_of
from latentgp.choosing.widening import widening
from latentgp.kernels import RBF, InputWarping, Kernel
from latentgp.kernels.metric import on_globe
from latentgp.kernels.sphere import EARTH_RADIUS, on_unit_sphere
from latentgp.likelihoods import (
    Binomial,
    Censored,
    Gaussian,
    Likelihood,
    LogNormal,
    Weibull,
)
from latentgp.likelihoods.bernoulli import BinaryResponse
from latentgp.likelihoods.multiclass import ClassLikelihood
from latentgp.models import LatentGP
from latentgp.modules import stored
from latentgp.rows.data import Data
from latentgp.rows.spread import median_distance, varying
from latentgp.runtime.blas_threads import one_blas_thread
from latentgp.setup.priors import Scales, scales
from latentgp.typing import Inputs

_LEAST_SECONDS = 5.0, 12.0  # of a fit to few rows and to many, a fifth of which a choice may take
_ROWS = 200
_MORE_ROWS = 500  # on which a warping has to be ahead too
_FEW_INPUTS, _MANY_ROWS = 3, 2_000
# Patches of nearest rows and rows of each, of many rows, by whether inputs are few.
_PATCHES = {True: (10, 50), False: (40, 15)}
FEWEST_ROWS = 10  # of a choice
MARGIN = 2.0  # nats ahead of the RBF
_ROUGHER = 1.2  # logarithm by which length-scales of the second start are shorter
_ITERATIONS = 60  # of the RBF's search
_WILD = 5.0  # median deviations, beyond which targets with heavy tails are drawn in
# Of a column with a long tail: distinct values, skewness, reach in deviations by the quartiles.
_MANY_VALUES, _SKEW, _FAR, _QUARTILES = 10, 1.0, 5.0, 1.35
_TAIL_ROWS = 20_000  # by which tails are judged


@stored
@dataclass(frozen=True)
class KernelChoice:
    """A kernel, and how far its evidence is ahead."""

    kernel: Kernel  # started at typical sizes or the sample's best, in the units of the rows
    family: str  # its name
    # of all candidates in nats, by name, the best first; with log priors
    log_evidences: dict[str, float]
    rows: int  # number of rows of the sample
    # times that predictive variances at the most probable hyper-parameters are too small, see
    # `widening`; 1 of more than 200 rows, and where noise is not Gaussian
    widening: float = 1.0

    @property
    def reason(self) -> str:
        """Why, in a sentence."""
        first, second = list(self.log_evidences)[:2]
        ahead = self.log_evidences[first] - self.log_evidences[second]
        of_rows = f"by the evidence of {self.rows} rows"
        if self.family == first:
            return f"Kernel: {first}, {ahead:.1f} nats ahead of {second} {of_rows}."
        short = self.log_evidences[first] - self.log_evidences[self.family]
        return (
            f"Kernel: {self.family}, the usual one, as {first} is ahead by {short:.1f} nats alone "
            f"{of_rows}."
        )


class _Coordinates(NamedTuple):
    """Where rows are: inputs that vary, and of places on the globe kilometres from its centre."""

    X: Float[np.ndarray, "N E"]  # those of a place first
    sizes: Float[np.ndarray, "E"]  # typical ones
    columns: tuple[int, ...]  # of the inputs that vary, without those of places
    places: tuple[int, ...] = ()  # columns of longitudes and latitudes; none of a plane

    @classmethod
    def of(cls, X: Inputs, sizes: Float[np.ndarray, "D"], places: tuple[int, ...]) -> _Coordinates:
        """Of inputs with typical sizes."""
        columns = [int(d) for d in np.flatnonzero(varying(X)) if d not in places]
        at, own = X[:, columns], sizes[columns]
        if places:
            there = EARTH_RADIUS * np.asarray(on_unit_sphere(X[:, list(places)]))
            # As of a plane that touches there; of one place any size will do.
            around = np.sqrt(np.sum(np.var(there, axis=0)) / 2) or 1.0
            at, own = np.hstack([there, at]), np.append(np.full(3, around), own)
        return cls(at, own, tuple(columns), places)

    @property
    def lengths(self) -> int:
        """Number of length-scales; coordinates of a place share the first."""
        return len(self.columns) + bool(self.places)

    @property
    def are_few(self) -> bool:
        """Whether rows are places, or places and times."""
        return len(self.columns) + len(self.places) <= _FEW_INPUTS

    def kernel(self, kernel: Callable[..., Any], lengthscale: Any, **settings: Any) -> Kernel:
        """A kernel of all columns."""
        if not self.places:
            return kernel(lengthscale=lengthscale, **settings)
        first, *others = np.atleast_1d(lengthscale)
        own = kernel(lengthscale=first, **settings)
        return on_globe(own, self.places, self.columns, np.asarray(others))


class _Contest(NamedTuple):
    """What candidates compete for."""

    rows: RowBlock  # in typical sizes, centred
    law: Law | None  # of counts, times or classes; None of functions and noise
    space: _Coordinates
    middle: Float[np.ndarray, "E"]  # means of the coordinates
    families: tuple[str, ...] = tuple(FAMILIES)  # of the candidates
    size: int = _ROWS  # number of rows that they compete on

    @property
    def typical(self) -> Float[np.ndarray, "H"]:
        """Logarithms of typical values: length-scales, the variance, the law's own."""
        distance = np.log(median_distance(self.rows.X, self.rows.weights))
        own = [np.log(NOISE)] if self.law is None else [0.0] * self.law.has_parameter
        return np.concatenate([np.full(self.space.lengths, distance), [0.0], own])

    @property
    def log_units(self) -> Float[np.ndarray, "E"]:
        """Logarithms of the inputs' sizes over their geometric mean."""
        return np.log(self.space.sizes) - np.mean(np.log(self.space.sizes))


@one_blas_thread()
def usual_kernel(
    data: Data, likelihood: Likelihood, scale: Scales, places: tuple[int, ...] = ()
) -> KernelChoice | None:
    """The kernel whose evidence is highest on a sample of merged rows.

    An RBF with one length-scale an input, unless another is two nats ahead of it: Matérn kernels
    and a rational quadratic (not of places, where nearest rows stand for all), the best of these
    with one length-scale for all inputs, and where an input has a long tail the same of inputs as
    normal scores. Of classes an RBF of normal scores alone.

    None where rows are few, where targets are neither a function and noise nor counts nor classes,
    where classes keep the RBF, and where no evidence can be had.
    """
    contest = contest_of(data, likelihood, scale, places)
    of_times = type(likelihood) in (Weibull, LogNormal, Censored)  # whose law alone is chosen
    if contest is None or of_times:
        return None
    rows, space, middle, sizes = contest.rows, contest.space, contest.middle, contest.space.sizes
    spread, inputs = float(scale.latent[0]), space.lengths
    is_of_classes = len(contest.families) == 1
    chosen = sample(contest)
    near, bent = len(chosen) > 1 and space.are_few, rows
    warping = None if near or places else _of_long_tails(space.X, rows.weights)
    if is_of_classes and warping is None:
        return None
    optima = optima_of(contest, rows.blocks(chosen))
    if len(optima) < min(len(contest.families), 2):
        return None
    usual = KernelShape("RBF", inputs)
    base = next((o for o in optima if o.candidate == usual), optima[0])
    best = optima[0] if optima[0].log_evidence > base.log_evidence + MARGIN else base
    if warping is not None:
        bent = rows._replace(X=(_between_knots(warping, space.X) - middle) / sizes)
        others = [
            found._replace(candidate=found.candidate._replace(of_scores=True))
            for found in optima_of(contest, bent.blocks(chosen))
        ]
        if others and _is_ahead(others[0], bent, best, contest):
            best, optima = others[0], others + optima
    if is_of_classes and not best.candidate.of_scores:
        return None
    number, family = best.candidate.inputs, FAMILIES[best.candidate.family]
    start = np.round(best.logarithms, 1)  # the same whatever the last digits of the rows
    if is_of_classes:
        start = np.append(contest.typical[:number] + np.log(family.longer), 0.0)
    unit = sizes[-inputs:] if number == inputs else np.exp(np.mean(np.log(sizes)))
    settings = {
        "lengthscale": np.exp(start[:number]) * unit,
        "variance": spread**2 * np.exp(start[number]),
    }
    if family.is_mixture:
        settings["mixing"] = np.exp(np.round(best.logarithms[-1], 1))
    kernel = space.kernel(family.kernel, **settings)
    if warping is not None and best.candidate.of_scores:
        kernel = eqx.tree_at(lambda k: k.kernel, warping, kernel)
    if not places and inputs < data.X.shape[1]:
        kernel = kernel.on(*space.columns)
    optima = sorted(optima, key=attrgetter("log_evidence"), reverse=True)
    evidences = {o.candidate.words(inputs): o.log_evidence for o in optima}
    counted = sum(map(len, chosen))
    wider = 1.0
    if isinstance(likelihood, Gaussian) and not places and counted == len(rows.y):
        of_best = bent if best.candidate.of_scores else rows
        wider = widening(
            best, of_best if number == inputs else _alike([of_best], contest.log_units)[0]
        )
    return KernelChoice(kernel, best.candidate.words(inputs), evidences, counted, wider)


def contest_of(
    data: Data, likelihood: Likelihood, scale: Scales, places: tuple[int, ...] = ()
) -> _Contest | None:
    """Rows and their law.

    None of few or constant rows, and of targets whose evidence is not known here.
    """
    space = _Coordinates.of(data.X, scale.inputs, places)
    if data.size < FEWEST_ROWS or not np.any(varying(space.X)):
        return None
    weights = np.ones(data.size) if data.weights is None else np.asarray(data.weights)
    middle = np.average(space.X, axis=0, weights=weights)
    spread = float(scale.latent[0])
    X, law, of_rows = (space.X - middle) / space.sizes, None, np.ones(data.size)
    is_of_classes = isinstance(likelihood, BinaryResponse | ClassLikelihood)
    if is_of_classes:
        labels = np.asarray(data.y, int)
        y = (labels == np.argmax(np.bincount(labels, weights))).astype(float)
        share = np.average(y, weights=weights)
        level = np.log(share / (1 - share)) if 0 < share < 1 else 0.0
        law = Law(LAWS[Binomial], level, spread)
    else:
        law = law_of(likelihood, 0.0 if scale.level is None else scale.level[0], spread)
        y = _targets(data, likelihood, spread) if law is None else np.asarray(data.y)
        side = data.side_information
        if law is not None:
            of_rows = np.asarray(next(iter(side.values()), np.full(data.size, law.size)))
        bounds = side.get("censored", 0)
        if len(side) > 1 or np.any(np.isin(bounds, (0, 1), invert=True)):
            return None
    if y is None or not np.ptp(y) > 0:
        return None
    contest = _Contest(RowBlock(X, y, weights, of_rows), law, space, middle)
    return contest._replace(families=("RBF",), size=_MORE_ROWS) if is_of_classes else contest


def leaves_time(seconds: float | None, rows: int) -> bool:
    """Whether a choice takes at most a fifth of the seconds that a fit may; None for any number."""
    return seconds is None or seconds >= _LEAST_SECONDS[rows > _MANY_ROWS]


def with_usual_kernel(model: LatentGP, data: Data) -> tuple[LatentGP, tuple[str, ...]]:
    """The model with the usual kernel in place of its own, and why."""
    alone = model.depth == 1 and isinstance(model.kernel, Kernel)
    found = usual_kernel(data, model.likelihood, scales(model, data)) if alone else None
    if found is None:
        return model, (
            "Kernel: the model's own stays, as the choice is for one latent function with noise or "
            "counts.",
        )
    return LatentGP(found.kernel, model.likelihood, model.mean), (found.reason,)


def _targets(data: Data, likelihood: Likelihood, spread: float) -> Float[np.ndarray, "N"] | None:
    """Targets of one latent function and noise; what is far out is drawn in where tails are heavy.

    None of other likelihoods: indicators of classes have steps, which take a rough kernel whatever
    the latent functions are like.
    """
    of_noise = likelihood.is_location and likelihood.latent_size == 1
    if not of_noise or data.y.ndim > 1 or data.side_information:
        return None
    y = (np.asarray(data.y) - np.average(data.y, weights=data.weights)) / spread
    if isinstance(likelihood, Gaussian):
        return y
    middle = np.median(y)
    reach = _WILD * np.median(abs(y - middle))
    return np.clip(y, middle - reach, middle + reach)


def optima_of(contest: _Contest, blocks: Sequence[RowBlock]) -> list[Optimum]:
    """The maxima of all candidates that have an evidence, the best first.

    The search of the RBF starts at typical values.
    """
    space, law, typical = contest.space, contest.law, contest.typical
    inputs = space.lengths
    usual = KernelShape("RBF", inputs)
    base = optimum(usual, blocks, typical, _ITERATIONS, law)
    rough = typical.copy()
    rough[:inputs] -= _ROUGHER
    rough[inputs + 1 :] -= np.log(10.0) if law is None else 0.0
    other = optimum(usual, blocks, rough, law=law)
    if other.log_evidence > base.log_evidence:
        base = optimum(usual, blocks, other.logarithms, _ITERATIONS, law)
    optima = [base]
    for name in contest.families:
        family = FAMILIES[name]
        # Nearest rows do not screen off the others under a mixture of length-scales.
        if name != "RBF" and not (family.is_mixture and len(blocks) > 1 and space.are_few):
            first = base.logarithms.copy()
            first[:inputs] += np.log(family.longer)
            first = np.append(first, 0.0) if family.is_mixture else first
            optima.append(optimum(KernelShape(name, inputs), blocks, first, law=law))
    if inputs > 1 and len(contest.families) > 1 and not space.places:
        best = max(optima, key=attrgetter("log_evidence"))
        first = np.append(best.log_lengthscales.mean(), best.logarithms[inputs:])
        alike = _alike(blocks, contest.log_units)
        optima.append(optimum(KernelShape(best.candidate.family, 1), alike, first, law=law))
    found = [own for own in optima if own.log_evidence > -np.inf]
    return sorted(found, key=attrgetter("log_evidence"), reverse=True)


def _is_ahead(
    other: Optimum,
    bent: RowBlock,
    best: Optimum,
    contest: _Contest,
) -> bool:
    """Whether a kernel of warped inputs is ahead, where there are more rows on those too."""
    if other.log_evidence <= best.log_evidence + MARGIN:
        return False

    chosen = sample(contest._replace(size=_MORE_ROWS))

    def of_more(found: Optimum, rows: RowBlock) -> float:
        more = rows.blocks(chosen)
        more = more if found.candidate.inputs > 1 else _alike(more, contest.log_units)
        return optimum(found.candidate, more, found.logarithms, law=contest.law).log_evidence

    return of_more(other, bent) > of_more(best, contest.rows) + MARGIN


def _alike(blocks: Sequence[RowBlock], log_units: Float[np.ndarray, "D"]) -> list[RowBlock]:
    """Rows whose inputs have one unit."""
    return [block._replace(X=block.X * np.exp(log_units)) for block in blocks]


def _of_long_tails(
    X: Float[np.ndarray, "N D"], weights: Float[np.ndarray, "N"]
) -> InputWarping | None:
    """Columns as normal scores, if one has a long tail; None where there are none."""
    some = X[:: -(-len(X) // _TAIL_ROWS)]
    low, middle, high = np.quantile(some, [0.25, 0.5, 0.75], axis=0)
    third = np.mean((some - some.mean(axis=0)) ** 3, axis=0)
    skewed = np.abs(third) > _SKEW * np.std(some, axis=0) ** 3
    far = np.max(np.abs(some - middle), axis=0) > _FAR * (high - low) / _QUARTILES
    many = np.array([len(np.unique(column)) > _MANY_VALUES for column in some.T])
    if not np.any(many & (far | skewed)):
        return None
    return InputWarping.by_scores(RBF(), X, np.flatnonzero(many).tolist(), weights)


def _between_knots(warping: InputWarping, X: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
    """Warped inputs on straight lines between knots, without a program."""
    each = zip(X.T, warping.knots.T, warping.values.T, strict=True)
    return np.stack([np.interp(*column) for column in each], axis=1)


def sample(contest: _Contest) -> list[Int[np.ndarray, "chosen"]]:
    """Numbers of all rows where they are few; else of some at random and patches of nearest ones.

    Rows at random are too far apart to tell how rough a function is, where families compete. The
    same rows for the same data.
    """
    real, most = np.flatnonzero(contest.rows.weights > 0), contest.size
    X, few = contest.rows.X[real], contest.space.are_few
    number = len(X)
    if number <= most:
        return [real]
    generator = np.random.default_rng(0)
    many = number > 2 * most if few else number > _MANY_ROWS and len(contest.families) > 1
    chosen = [generator.choice(number, most // 2 if few and many else most, replace=False)]
    patches, size = _PATCHES[few]
    for centre in generator.choice(number, patches if many else 0, replace=False):
        distances = np.sum((X - X[centre]) ** 2, axis=1)
        chosen.append(np.argpartition(distances, size)[:size])
    return [real[own] for own in chosen]
