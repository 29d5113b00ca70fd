"""Choice of a stationary kernel by its evidence on a sample of rows, in NumPy: nothing compiles.

The evidence is that of Gaussian noise, with the weak priors of hyper-parameters, maximised for each
candidate (Rasmussen & Williams 2006, 5.4.1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import get_lapack_funcs

from latentgp.kernels import RBF, Kernel, Matern12, Matern32, Matern52, RationalQuadratic
from latentgp.likelihoods import Gaussian, Likelihood
from latentgp.models import LatentGP
from latentgp.modules import stored
from latentgp.rows.data import Data
from latentgp.rows.spread import varying
from latentgp.runtime.blas_threads import one_blas_thread
from latentgp.setup.priors import LENGTHSCALES, OWN_LENGTHSCALE, Scales, scales
from latentgp.setup.typical import median_distance

_ROWS = 200
_PATCHES, _PATCH = 10, 50  # of nearest rows, where rows are many and inputs few
_FEW_INPUTS = 3
_FEWEST = 10
_MARGIN = 2.0  # nats ahead of the RBF
_ROUGHER = 1.2  # logarithm by which length-scales of the second start are shorter
_JITTER = 1e-8
_ITERATIONS, _FURTHER = 60, 20  # of the RBF's search, and of others from there
_OWN = OWN_LENGTHSCALE**2  # of the variance of a log length-scale; what is left is shared
_SHARED = LENGTHSCALES - _OWN
_WIDE = 2.0  # deviation of log variances
_NOISE = 0.1
_WILD = 5.0  # median deviations, beyond which targets with heavy tails are drawn in

_potrf, _potri, _potrs = get_lapack_funcs(("potrf", "potri", "potrs"), dtype=np.float64)

# Correlation, and its derivatives in the squared scaled distance and in the mixing's logarithm.
Correlation = tuple[np.ndarray, np.ndarray, np.ndarray | None]


def _rbf(squared: np.ndarray, mixing: float) -> Correlation:
    value = np.exp(-0.5 * squared)
    return value, -0.5 * value, None


def _matern12(squared: np.ndarray, mixing: float) -> Correlation:
    r = np.sqrt(squared)
    value = np.exp(-r)
    return value, -0.5 * value / np.maximum(r, 1e-9), None


def _matern32(squared: np.ndarray, mixing: float) -> Correlation:
    s = np.sqrt(3 * squared)
    decay = np.exp(-s)
    return (1 + s) * decay, -1.5 * decay, None


def _matern52(squared: np.ndarray, mixing: float) -> Correlation:
    s = np.sqrt(5 * squared)
    decay = np.exp(-s)
    return (1 + s + s**2 / 3) * decay, -5 / 6 * (1 + s) * decay, None


def _rational_quadratic(squared: np.ndarray, mixing: float) -> Correlation:
    scaled = squared / (2 * mixing)
    logarithm = np.log1p(scaled)
    value = np.exp(-mixing * logarithm)
    slope = -0.5 * value / (1 + scaled)
    return value, slope, mixing * value * (scaled / (1 + scaled) - logarithm)


class Family(NamedTuple):
    """A family of stationary kernels.

    Attributes:
        kernel: its class.
        correlation: of squared scaled distances.
        longer: its length-scales over those of an RBF that fits as well.
        is_mixture: whether it has a mixing parameter.
    """

    kernel: Callable[..., Kernel]
    correlation: Callable[[np.ndarray, float], Correlation]
    longer: float
    is_mixture: bool = False


FAMILIES = {
    "RBF": Family(RBF, _rbf, 1.0),
    "Matern52": Family(Matern52, _matern52, 1.4),
    "Matern32": Family(Matern32, _matern32, 1.8),
    "Matern12": Family(Matern12, _matern12, 4.0),
    "RationalQuadratic": Family(RationalQuadratic, _rational_quadratic, 1.0, is_mixture=True),
}


class RowBlock(NamedTuple):
    """Rows in standard deviations, independent of those of other blocks.

    Attributes:
        X: inputs, shape (N, D).
        y: targets, shape (N,).
        weights: shape (N,).
    """

    X: Float[np.ndarray, "N D"]
    y: Float[np.ndarray, "N"]
    weights: Float[np.ndarray, "N"]


class KernelShape(NamedTuple):
    """A family, with one length-scale or one an input.

    Attributes:
        family: its name.
        inputs: the number of length-scales.
    """

    family: str
    inputs: int

    def words(self, inputs: int) -> str:
        """Its name, among candidates for so many inputs."""
        return self.family if self.inputs == inputs else f"{self.family} of one length-scale"


class Optimum(NamedTuple):
    """The maximum of a candidate's evidence.

    Attributes:
        candidate: whose it is.
        log_evidence: with the log priors of hyper-parameters.
        logarithms: of length-scales, variance, noise variance and mixing.
    """

    candidate: KernelShape
    log_evidence: float
    logarithms: Float[np.ndarray, "H"]

    @property
    def log_lengthscales(self) -> Float[np.ndarray, "*D"]:
        """Of the inputs in standard deviations."""
        return self.logarithms[: self.candidate.inputs]


@stored
@dataclass(frozen=True)
class KernelChoice:
    """A kernel, and how far its evidence is ahead.

    Attributes:
        kernel: started at typical sizes or the sample's best, in the units of the rows.
        family: its name.
        log_evidences: of all candidates in nats, by name, the best first; with log priors.
        rows: number of rows of the sample.
    """

    kernel: Kernel
    family: str
    log_evidences: dict[str, float]
    rows: int

    @property
    def reason(self) -> str:
        """Why, in a sentence."""
        names = list(self.log_evidences)
        first, second = names[0], names[1]
        ahead = self.log_evidences[first] - self.log_evidences[second]
        of_rows = f"by the evidence of {self.rows} rows"
        if self.family == first:
            return f"Kernel: {first}, {ahead:.1f} nats ahead of {second} {of_rows}."
        short = self.log_evidences[first] - self.log_evidences[self.family]
        return (
            f"Kernel: {self.family}, the usual one, as {first} is ahead by {short:.1f} nats alone "
            f"{of_rows}."
        )


def negative_log_evidence(
    logarithms: Float[np.ndarray, "H"], candidate: KernelShape, blocks: Sequence[RowBlock]
) -> tuple[float, Float[np.ndarray, "H"]]:
    """Minus the log evidence of independent blocks of rows and the log priors, and its gradient.

    Infinite, with a zero gradient, where a covariance has no Cholesky factor.

    Args:
        logarithms: of length-scales, variance, noise variance and mixing.
        candidate: the kernel.
        blocks: rows of which those of one block are correlated.
    """
    number, of_family = candidate.inputs, FAMILIES[candidate.family].correlation
    values = np.exp(logarithms)
    variance, noise = values[number : number + 2]
    mixing = values[-1] if len(values) > number + 2 else 1.0
    total, gradient = _log_prior(logarithms, number, blocks[0].X.shape[1])
    total, gradient = -total, -gradient
    for X, y, weights in blocks:
        Z = X / values[:number]
        norms = np.sum(Z**2, axis=1)
        squared = np.maximum(norms[:, None] + norms - 2 * Z @ Z.T, 0)
        np.fill_diagonal(squared, 0)
        correlation, slope, of_mixing = of_family(squared, mixing)
        covariance = variance * correlation
        covariance[np.diag_indices(len(X))] += noise / weights + _JITTER * variance
        factor, failed = _potrf(covariance, lower=1, overwrite_a=0)
        if failed:
            return np.inf, np.zeros_like(logarithms)
        solved = _potrs(factor, y, lower=1)[0]
        lower = _potri(factor, lower=1)[0]  # zero above the diagonal, as the factor is
        inverse = lower + lower.T
        inverse[np.diag_indices(len(X))] /= 2
        log_scale = np.sum(np.log(np.diag(factor))) + 0.5 * len(X) * np.log(2 * np.pi)
        total += 0.5 * y @ solved + log_scale
        # Derivatives in the covariance, then in the squared distances.
        inner = 0.5 * (inverse - np.outer(solved, solved))
        by_distance = inner * (variance * slope)
        each = -4 * (by_distance.sum(1) @ Z**2 - np.sum(Z * (by_distance @ Z), axis=0))
        gradient[:number] += each if number > 1 else each.sum()
        gradient[number] += np.sum(inner * correlation) * variance
        gradient[number + 1] += np.sum(np.diag(inner) / weights) * noise
        if of_mixing is not None:
            gradient[-1] += np.sum(inner * of_mixing) * variance
    return float(total), gradient


def _log_prior(
    logarithms: Float[np.ndarray, "H"], number: int, inputs: int
) -> tuple[float, Float[np.ndarray, "H"]]:
    """Of the logarithms: length-scales alike around sqrt(D), variances wide, and the gradient."""
    error = logarithms.copy()
    error[:number] -= 0.5 * np.log(inputs)
    error[number + 1] -= np.log(_NOISE)
    wide = error[number:] / _WIDE
    shared = _OWN + number * _SHARED
    own = error[:number] - _SHARED / shared * error[:number].sum()
    scale = (number - 1) * np.log(_OWN) + np.log(shared) + 2 * len(wide) * np.log(_WIDE)
    squares = error[:number] @ own / _OWN + wide @ wide
    total = -0.5 * (squares + scale + len(error) * np.log(2 * np.pi))
    return total, -np.concatenate([own / _OWN, wide / _WIDE])


def optimum(
    candidate: KernelShape,
    blocks: Sequence[RowBlock],
    start: Float[np.ndarray, "H"],
    iterations: int = _FURTHER,
) -> Optimum:
    """The maximum of the evidence by L-BFGS from a start, or what it has come to."""
    from scipy.optimize import minimize  # takes long to import

    number = candidate.inputs
    bounds = [(-12, 12)] * (number + 1) + [(-23, 5)] + [(-5, 7)] * (len(start) - number - 2)
    found = minimize(
        negative_log_evidence,
        start,
        (candidate, blocks),
        jac=True,
        bounds=bounds,
        options={"maxiter": iterations},
    )
    return Optimum(candidate, -float(found.fun), found.x)


@one_blas_thread()
def usual_kernel(data: Data, likelihood: Likelihood, scale: Scales) -> KernelChoice | None:
    """The kernel whose evidence is highest on a sample of rows.

    An RBF with one length-scale an input, unless another is two nats ahead of it: Matérn kernels
    and a rational quadratic (not of places, where nearest rows stand for all), and the best of
    these with one length-scale for all inputs.

    Args:
        data: merged rows.
        likelihood: of the targets.
        scale: of the data.

    Returns:
        The choice; None where rows are few, or the evidence of Gaussian noise says nothing.
    """
    y, columns = _targets(data, likelihood), np.flatnonzero(varying(data.X))
    if y is None or data.size < _FEWEST or not columns.size or not np.ptp(y) > 0:
        return None
    spread, inputs, sizes = float(scale.latent[0]), len(columns), scale.inputs[columns]
    weights = np.ones(data.size) if data.weights is None else np.asarray(data.weights)
    X = (data.X[:, columns] - np.average(data.X[:, columns], axis=0, weights=weights)) / sizes
    blocks = sample(RowBlock(X, y / spread, weights))
    typical = np.append(np.full(inputs, np.log(median_distance(X, weights))), [0, np.log(_NOISE)])
    optima = _optima(blocks, typical, np.log(sizes) - np.mean(np.log(sizes)))
    base = next(o for o in optima if o.candidate == KernelShape("RBF", inputs))
    best = optima[0] if optima[0].log_evidence > base.log_evidence + _MARGIN else base
    number, family = best.candidate.inputs, FAMILIES[best.candidate.family]
    start = np.round(best.logarithms, 1)  # the same whatever the last digits of the rows
    if len(blocks) > 1:  # patches do not say how far a function is correlated
        start = np.append(np.full(number, typical[0] + np.log(family.longer)), 0.0)
    unit = sizes if number == inputs else np.exp(np.mean(np.log(sizes)))
    settings = {
        "lengthscale": np.exp(start[:number]) * unit,
        "variance": spread**2 * np.exp(start[number]),
    }
    if family.is_mixture:
        settings["mixing"] = np.exp(np.round(best.logarithms[-1], 1))
    kernel = family.kernel(**settings)
    kernel = kernel.on(*columns.tolist()) if inputs < data.X.shape[1] else kernel
    evidences = {o.candidate.words(inputs): o.log_evidence for o in optima}
    rows = sum(len(block.X) for block in blocks)
    return KernelChoice(kernel, best.candidate.words(inputs), evidences, rows)


def with_usual_kernel(model: LatentGP, data: Data) -> tuple[LatentGP, tuple[str, ...]]:
    """The model with the usual kernel in place of its own, and why."""
    alone = model.depth == 1 and isinstance(model.kernel, Kernel)
    found = usual_kernel(data, model.likelihood, scales(model, data)) if alone else None
    if found is None:
        return model, (
            "Kernel: the model's own stays, as the choice is for one latent function and noise.",
        )
    return LatentGP(found.kernel, model.likelihood, model.mean), (found.reason,)


def _targets(data: Data, likelihood: Likelihood) -> Float[np.ndarray, "N"] | None:
    """Targets of one latent function and noise; what is far out is drawn in where tails are heavy.

    None of other likelihoods: indicators of classes have steps, which take a rough kernel whatever
    the latent functions are like.
    """
    of_noise = likelihood.is_location and likelihood.latent_size == 1
    if not of_noise or data.y.ndim > 1 or data.side_information:
        return None
    y = np.asarray(data.y) - np.average(data.y, weights=data.weights)
    if isinstance(likelihood, Gaussian):
        return y
    middle = np.median(y)
    reach = _WILD * np.median(abs(y - middle))
    return np.clip(y, middle - reach, middle + reach)


def _optima(
    blocks: Sequence[RowBlock],
    typical: Float[np.ndarray, "H"],
    log_units: Float[np.ndarray, "D"],
) -> list[Optimum]:
    """The maxima of all candidates, the best first.

    Args:
        blocks: rows.
        typical: where the search of the RBF starts.
        log_units: logarithms of the inputs' sizes over their geometric mean.
    """
    inputs = len(log_units)
    usual = KernelShape("RBF", inputs)
    base = optimum(usual, blocks, typical, _ITERATIONS)
    rough = typical - np.append(np.full(inputs, _ROUGHER), [0.0, np.log(10.0)])
    other = optimum(usual, blocks, rough)
    if other.log_evidence > base.log_evidence:
        base = optimum(usual, blocks, other.logarithms, _ITERATIONS)
    optima = [base]
    for name, family in FAMILIES.items():
        # Nearest rows do not screen off the others under a mixture of length-scales.
        if name != "RBF" and not (family.is_mixture and len(blocks) > 1):
            first = base.logarithms.copy()
            first[:inputs] += np.log(family.longer)
            first = np.append(first, 0.0) if family.is_mixture else first
            optima.append(optimum(KernelShape(name, inputs), blocks, first))
    if inputs > 1:
        best = max(optima, key=attrgetter("log_evidence"))
        alike = [block._replace(X=block.X * np.exp(log_units)) for block in blocks]
        first = np.append(best.log_lengthscales.mean(), best.logarithms[inputs:])
        optima.append(optimum(KernelShape(best.candidate.family, 1), alike, first))
    return sorted(optima, key=attrgetter("log_evidence"), reverse=True)


def sample(rows: RowBlock) -> list[RowBlock]:
    """All rows where they are few; else some at random and, of few inputs, patches of nearest ones.

    Rows at random are too far apart to tell how rough a function is. The same rows for the same
    data.
    """
    counts = rows.weights > 0
    rows = RowBlock(*(array[counts] for array in rows))
    number, inputs = rows.X.shape
    if number <= _ROWS:
        return [rows]
    generator = np.random.default_rng(0)
    near = inputs <= _FEW_INPUTS and number > 2 * _ROWS
    chosen = [generator.choice(number, _ROWS // 2 if near else _ROWS, replace=False)]
    for centre in generator.choice(number, _PATCHES if near else 0, replace=False):
        distances = np.sum((rows.X - rows.X[centre]) ** 2, axis=1)
        chosen.append(np.argpartition(distances, _PATCH)[:_PATCH])
    return [RowBlock(*(array[own] for array in rows)) for own in chosen]
