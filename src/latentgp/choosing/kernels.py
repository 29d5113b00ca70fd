"""Choice of a stationary kernel by its evidence on a sample of rows, in NumPy: nothing compiles.

The evidence is that of Gaussian noise, or of counts by Laplace's approximation, with the weak
priors of hyper-parameters, maximised for each candidate (Rasmussen & Williams 2006, 5.4.1, 5.5.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from jaxtyping import Float

from latentgp.choosing.evidence import (
    FAMILIES,
    NOISE,
    KernelShape,
    Optimum,
    RowBlock,
    optimum,
)
from latentgp.choosing.laplace import Law, law_of
from latentgp.kernels import Kernel
from latentgp.likelihoods import Gaussian, Likelihood
from latentgp.models import LatentGP
from latentgp.modules import stored
from latentgp.rows.data import Data
from latentgp.rows.spread import varying
from latentgp.runtime.blas_threads import one_blas_thread
from latentgp.setup.priors import Scales, scales
from latentgp.setup.typical import median_distance

LEAST_SECONDS = 5.0  # of a fit, a fifth of which a choice may take
_ROWS = 200
_PATCHES, _PATCH = 10, 50  # of nearest rows, where rows are many and inputs few
_FEW_INPUTS = 3
_FEWEST = 10
_MARGIN = 2.0  # nats ahead of the RBF
_ROUGHER = 1.2  # logarithm by which length-scales of the second start are shorter
_ITERATIONS = 60  # of the RBF's search
_WILD = 5.0  # median deviations, beyond which targets with heavy tails are drawn in


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
        The choice; None where rows are few, or targets are neither a function and noise nor counts.
    """
    spread, columns = float(scale.latent[0]), np.flatnonzero(varying(data.X))
    law = law_of(likelihood, 0.0 if scale.level is None else scale.level[0], spread)
    y = _targets(data, likelihood, spread) if law is None else np.asarray(data.y)
    if y is None or data.size < _FEWEST or not columns.size or not np.ptp(y) > 0:
        return None
    inputs, sizes = len(columns), scale.inputs[columns]
    weights = np.ones(data.size) if data.weights is None else np.asarray(data.weights)
    X = (data.X[:, columns] - np.average(data.X[:, columns], axis=0, weights=weights)) / sizes
    of_counts = next(iter(data.side_information.values()), 1.0)
    blocks = sample(RowBlock(X, y, weights, np.broadcast_to(of_counts, y.shape)))
    distance = np.log(median_distance(X, weights))
    own = [np.log(NOISE)] if law is None else [0.0] * law.has_parameter
    typical = np.concatenate([np.full(inputs, distance), [0.0], own])
    optima = _optima(blocks, typical, np.log(sizes) - np.mean(np.log(sizes)), law)
    base = next(o for o in optima if o.candidate == KernelShape("RBF", inputs))
    best = optima[0] if optima[0].log_evidence > base.log_evidence + _MARGIN else base
    number, family = best.candidate.inputs, FAMILIES[best.candidate.family]
    start = np.round(best.logarithms, 1)  # the same whatever the last digits of the rows
    if len(blocks) > 1:  # patches do not say how far a function is correlated
        start = np.append(np.full(number, distance + np.log(family.longer)), 0.0)
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


def _optima(
    blocks: Sequence[RowBlock],
    typical: Float[np.ndarray, "H"],
    log_units: Float[np.ndarray, "D"],
    law: Law | None = None,
) -> list[Optimum]:
    """The maxima of all candidates, the best first.

    Args:
        blocks: rows.
        typical: where the search of the RBF starts.
        log_units: logarithms of the inputs' sizes over their geometric mean.
        law: of counts.
    """
    inputs = len(log_units)
    usual = KernelShape("RBF", inputs)
    base = optimum(usual, blocks, typical, _ITERATIONS, law)
    rough = typical.copy()
    rough[:inputs] -= _ROUGHER
    rough[inputs + 1 :] -= np.log(10.0) if law is None else 0.0
    other = optimum(usual, blocks, rough, law=law)
    if other.log_evidence > base.log_evidence:
        base = optimum(usual, blocks, other.logarithms, _ITERATIONS, law)
    optima = [base]
    for name, family in FAMILIES.items():
        # Nearest rows do not screen off the others under a mixture of length-scales.
        if name != "RBF" and not (family.is_mixture and len(blocks) > 1):
            first = base.logarithms.copy()
            first[:inputs] += np.log(family.longer)
            first = np.append(first, 0.0) if family.is_mixture else first
            optima.append(optimum(KernelShape(name, inputs), blocks, first, law=law))
    if inputs > 1:
        best = max(optima, key=attrgetter("log_evidence"))
        alike = [block._replace(X=block.X * np.exp(log_units)) for block in blocks]
        first = np.append(best.log_lengthscales.mean(), best.logarithms[inputs:])
        optima.append(optimum(KernelShape(best.candidate.family, 1), alike, first, law=law))
    return sorted(optima, key=attrgetter("log_evidence"), reverse=True)


def sample(rows: RowBlock) -> list[RowBlock]:
    """All rows where they are few; else some at random and, of few inputs, patches of nearest ones.

    Rows at random are too far apart to tell how rough a function is. The same rows for the same
    data.
    """
    counts = rows.weights > 0
    rows = rows.of(counts)
    number, inputs = rows.X.shape
    if number <= _ROWS:
        return [rows]
    generator = np.random.default_rng(0)
    near = inputs <= _FEW_INPUTS and number > 2 * _ROWS
    chosen = [generator.choice(number, _ROWS // 2 if near else _ROWS, replace=False)]
    for centre in generator.choice(number, _PATCHES if near else 0, replace=False):
        distances = np.sum((rows.X - rows.X[centre]) ** 2, axis=1)
        chosen.append(np.argpartition(distances, _PATCH)[:_PATCH])
    return [rows.of(own) for own in chosen]
