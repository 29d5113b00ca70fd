"""What a fit says about itself at its end: converged or not, what looks wrong, and the remedy."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from latentgp.data import Data
from latentgp.inference.driver import Record
from latentgp.inference.hyperparameters import Learned
from latentgp.inference.methods import Method
from latentgp.inference.site_inference import Settled
from latentgp.likelihoods import Gaussian
from latentgp.parameters import ParameterSpace

_AT_A_BOUND = 1e-2
_SAMPLED_ROWS = 500
_LARGE_JITTER = 1e-5
_UNRESOLVED = 1e12
_SETTLED = 1e-4
_PULL = 1e-6
_DEFICIT_A_ROW = 0.02
_NOISE_RATIO = 1e-2


@dataclasses.dataclass(frozen=True)
class Diagnostics:
    """What happened in a fit.

    Attributes:
        converged: whether the search for hyper-parameters and the site updates both ended by
            themselves.
        method: the method used.
        reason: why it was chosen.
        ending: why the search ended, in words.
        evaluations: of the bound.
        site_updates: in the last round.
        site_change: relative change of the bound in the last site update.
        jitter: added to the diagonal of the factorised prior covariance; units of f squared.
        deficit: nats of the bound lost to too few inducing points (an estimate from the prior
            variance that they leave).
        seconds: of the whole fit, compilation included.
        warnings: one sentence each: what looks wrong and what to do.
    """

    converged: bool
    method: Method
    reason: str
    ending: str
    evaluations: int
    site_updates: int
    site_change: float
    jitter: float
    deficit: float
    seconds: float
    warnings: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """The whole story in a few lines."""
        state = "Converged" if self.converged else "Not converged"
        lines = [
            f"{state} after {self.evaluations} evaluations and {self.seconds:.1f} s "
            f"with {type(self.method).__name__} ({self.reason})."
        ]
        return "\n".join([*lines, *(f"- {warning}" for warning in self.warnings)])


def judge(
    *,
    posterior: Any,
    method: Method,
    reason: str,
    data: Data,
    learned: Learned | None,
    records: list[Record],
    space: ParameterSpace,
    bounds: tuple[Float[np.ndarray, "P"], Float[np.ndarray, "P"]],
    settled: Settled,
    seconds: float,
) -> Diagnostics:
    """Look at a finished fit."""
    warnings = []
    if learned is not None and not learned.converged:
        warnings.append(
            f"The search for hyper-parameters ended early because {learned.reason}; "
            "allow more, or continue from the model it returned."
        )
    change = float(settled.change)
    if change > _SETTLED:
        warnings.append(
            f"The sites still change the bound by {change:.1e} (relative); start from other "
            "hyper-parameters, or look for rows that contradict each other."
        )
    if learned is not None:
        warnings += _at_bounds(space, learned.vector, bounds)
    warnings += _all_noise(posterior, data)
    deficit, jitter = float(settled.posterior.deficit), float(settled.posterior.jitter)
    if deficit > max(1.0, _DEFICIT_A_ROW * data.size):
        warnings.append(
            f"The inducing points leave about {deficit:,.0f} nats of the bound; "
            "use more of them if time allows."
        )
    scale = float(np.mean(posterior.model.kernel.diagonal(data.X[:_SAMPLED_ROWS])))
    if jitter > _LARGE_JITTER * scale:
        warnings.append(
            f"The prior covariance of the coefficients needed a jitter of {jitter:.1e} "
            f"(prior variance {scale:.1e}); look for nearly equal points or a very long "
            "length-scale."
        )
    held = _held_sites(settled)
    if held:
        warnings.append(
            f"The likelihood is not log-concave at {held} row(s), whose sites are held at "
            "precision zero; the gradient that led the search is only approximate there."
        )
    sharpness = float(np.max(settled.sites.precision, initial=0.0)) * scale
    if sharpness > _UNRESOLVED:
        warnings.append(
            f"A row says {sharpness:.0e} times more about f than the prior, more than double "
            "precision resolves, so predictions may be wrong; give smaller weights or a larger "
            "noise variance."
        )
    return Diagnostics(
        converged=(learned is None or learned.converged) and change <= _SETTLED,
        method=method,
        reason=reason,
        ending="hyper-parameters were not learned" if learned is None else learned.reason,
        evaluations=len(records),
        site_updates=int(settled.updates),
        site_change=change,
        jitter=jitter,
        deficit=deficit,
        seconds=seconds,
        warnings=tuple(warnings),
    )


def _held_sites(settled: Settled) -> int:
    """Rows that pull at f although their precision was cut off at zero."""
    linear, precision = np.abs(settled.sites.linear), np.asarray(settled.sites.precision)
    pulls = linear > _PULL * np.max(linear, initial=0.0)
    return int(np.sum(np.any((precision <= 0) & pulls, axis=1)))


def _at_bounds(
    space: ParameterSpace,
    vector: Float[np.ndarray, "P"],
    bounds: tuple[Float[np.ndarray, "P"], Float[np.ndarray, "P"]],
) -> list[str]:
    lower, upper = bounds
    sentences = []
    for (label, info), value, low, high in zip(space.entries(), vector, lower, upper, strict=True):
        if value - low < _AT_A_BOUND or high - value < _AT_A_BOUND:
            side = "lower" if value - low < _AT_A_BOUND else "upper"
            advice = (
                "this input hardly matters"
                if info.role == "lengthscale" and side == "upper"
                else "the data do not determine it; give it a prior or freeze it"
            )
            sentences.append(f"{label} went to its {side} search bound: {advice}.")
    return sentences


def _all_noise(posterior: Any, data: Data) -> list[str]:
    likelihood = posterior.model.likelihood
    if not isinstance(likelihood, Gaussian) or data.size < 3:
        return []
    sample = data.X[:: max(1, data.size // 500)]
    signal = float(np.var(posterior.mean_f(sample)))
    if signal > _NOISE_RATIO * float(likelihood.noise_variance):
        return []
    return [
        "No signal was found: the model calls nearly all variation in y noise; check the inputs, "
        "or start from another length-scale."
    ]
