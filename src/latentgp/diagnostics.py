"""Diagnostics of a finished fit: convergence, warnings, and the remedy for each."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import jax
import numpy as np
from jaxtyping import Float

from latentgp.hyperparameters.base import IN_UNITS_OF_INPUTS, ParameterInfo, parameters
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.kernels import LatentKernel, Linear, Polynomial
from latentgp.likelihoods import Gaussian, Likelihood
from latentgp.likelihoods.noise_shapes import StudentShape
from latentgp.modules import Module, stored
from latentgp.representations.latent_axis import latent_diagonals
from latentgp.representations.variables import places_of
from latentgp.rows.data import Data
from latentgp.rows.spread import WILD
from latentgp.runtime.buckets import apply_in_buckets
from latentgp.setup.residuals import excess_variation, heavy_tails, residuals_of, wider_law
from latentgp.site_inference.search import hyperparameters as search
from latentgp.site_inference.search.fixed_point import SETTLED
from latentgp.site_inference.search.profiled_bound import ConvergedPosterior
from latentgp.typing import Array

DiagnosticsT = TypeVar("DiagnosticsT", bound="FitDiagnostics")

_AT_A_BOUND = 1e-2
_SAMPLED_ROWS = 500
_LARGE_JITTER, _RUINOUS_JITTER = 1e-5, 1e-3  # shares of the prior variance
_UNRESOLVED = 1e12
_TRACE_TERM_A_ROW = 0.02
_PASSED_OVER, _MOSTLY = 0.05, 0.5
_ROUNDS_A_MEAN, _FALL_A_ROW = 3, 0.02
_NOISE_RATIO = 1e-2


class Finding(ABC):
    """Finding about one part of a fit, brought by the extension that makes that part.

    An extension may override `notes`, further sentences, `warnings`, and `is_trusted`, whether this
    part lets the result be trusted.
    """

    name: ClassVar[str]

    @property
    @abstractmethod
    def verdict(self) -> str:
        """Summary in a sentence."""

    @property
    def notes(self) -> Sequence[str]:
        return ()

    @property
    def warnings(self) -> Sequence[str]:
        return ()

    @property
    def is_trusted(self) -> bool:
        return True


@dataclasses.dataclass(frozen=True, kw_only=True)
class FitDiagnostics:
    """Diagnostics of a fit by any method.

    Attributes:
        converged: whether the result can be trusted.
        method: the method used.
        reason: why it was chosen.
        jitter: added to the diagonal of the prior covariance; units of f squared.
        seconds: of the whole fit, compilation included.
        warnings: one sentence each: what looks wrong and what to do.
        notes: sentences on how it was computed, if there are any.
        findings: about parts of the fit that not every method has.
        stopped_as_meant: whether only a search that was to be short keeps it from having converged.
    """

    converged: bool
    method: Module
    reason: str
    jitter: float
    seconds: float
    warnings: tuple[str, ...]
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    stopped_as_meant: bool = dataclasses.field(default=False, repr=False)

    @property
    @abstractmethod
    def state(self) -> str:
        """State of convergence in a sentence."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """Notes, and verdicts and notes of the findings."""
        return (*self.notes, *(s for own in self.findings for s in (own.verdict, *own.notes)))

    @property
    def verdict(self) -> str:
        """State of convergence, remarks and all warnings, in a few lines."""
        return "\n".join([self.state, *self.remarks, *(f"- {w}" for w in self.warnings)])

    def finding(self, name: str) -> Any:
        """The finding of a name; None if the fit has none.

        Args:
            name: as the method's documentation has it, such as "integration" of `Integrated`.
        """
        return next((own for own in self.findings if own.name == name), None)

    def with_finding(self: DiagnosticsT, finding: Finding) -> DiagnosticsT:
        """These diagnostics, completed by a finding and its warnings."""
        return dataclasses.replace(
            self,
            converged=self.converged and finding.is_trusted,
            stopped_as_meant=self.stopped_as_meant and finding.is_trusted,
            warnings=(*self.warnings, *finding.warnings),
            findings=(*self.findings, finding),
        )


@stored
@dataclasses.dataclass(frozen=True, kw_only=True)
class Diagnostics(FitDiagnostics):
    """Diagnostics of a fit by sites or batches, further to those of any fit.

    Attributes:
        converged: whether the search for hyper-parameters and the site updates ended by themselves.
        ending: why the search ended, in words.
        evaluations: of the bound; of `Stochastic` the rounds of batches.
        site_updates: in the last round; of `Stochastic` the steps.
        site_change: relative change of the bound in the last site update; zero of `Stochastic`.
        trace_term: nats of the bound lost to too few inducing points or neighbours (an estimate
            from the prior variance that they leave).
        evidence_error: standard error of the log evidence, in nats; zero where it is no estimate.
    """

    ending: str
    evaluations: int
    site_updates: int
    site_change: float
    trace_term: float
    evidence_error: float = 0.0

    @property
    def state(self) -> str:
        ended = "Stopped as meant" if self.stopped_as_meant else "Not converged"
        own = getattr(self.method, "method", self.method)  # what is integrated or in batches
        coupled = bool(getattr(own, "coupled", False))
        return (
            f"{'Converged' if self.converged else ended} after {self.evaluations} "
            f"evaluations and {self.seconds:.1f} s with {type(self.method).__name__}"
            f"{', sites coupling the latents of a row' * coupled} ({self.reason})."
        )


def diagnose(
    *,
    posterior: Any,
    method: Any,
    reason: str,
    data: Data,
    learned: search.SearchResult | None,
    records: Sequence[Any],
    space: ParameterSpace,
    bounds: tuple[Float[np.ndarray, "H"], Float[np.ndarray, "H"]],
    converged: ConvergedPosterior,
    seconds: float,
    passed_over: int = 0,
    input_names: Sequence[str] | None = None,
) -> Diagnostics:
    """Diagnose a finished fit by sites or batches."""
    warnings, latent = [], converged.posterior
    error, complaints = float(latent.evidence_error), latent.complaints
    in_batches = method.reads_batches and records
    bound, total = float(converged.bound), data.total_weight
    astray = _went_astray(records, bound, total) if in_batches else []
    agree = (
        "bound and gradient are estimates, which agree to their standard errors only, of the bound "
        f"{error:.2g} nats"
    )
    kind = None if learned is None else learned.kind
    notes, part = latent.notes, getattr(method, "search", None)
    if learned is not None and part is not None and part.rows < data.size:
        of = f"at most {part.rows:,} of {data.size:,} rows"
        notes = (f"Hyper-parameters are learned from {of}.", *notes)
    short = kind == "short"
    if learned is not None and short:
        gains = np.diff(np.unique(np.fmax.accumulate([record.value for record in records])))
        last = f"its last gain was {gains[-1]:.2g} nats" if gains.size else "it gained nothing"
        ended = f"The search for hyper-parameters ended because {learned.reason}"
        notes = (f"{ended}; {last}, and a longer one may find more.", *notes)
    elif learned is not None and learned.converged and kind == "no step by estimates":
        notes = (f"The search for hyper-parameters ended where {learned.reason}; {agree}.", *notes)
    elif learned is not None and not learned.converged and not astray:
        of = " for hyper-parameters" if space.size else ""
        advice = {
            "no step": "check kernel and likelihood for kinks, or start from other values",
            "outdated": "fit again from the fitted model, or summarise the rows anew for it",
            "no step by estimates": f"{agree}: raise probes or rank of the representation",
        }.get(learned.kind, "raise the limit, or continue from the fitted model")
        warnings.append(f"The search{of} ended early because {learned.reason}; {advice}.")
    warnings += complaints
    updates = int(converged.updates)
    if passed_over > _PASSED_OVER * updates:
        warnings.append(
            f"{passed_over} of {updates} steps on batches changed nothing: the update "
            "was not finite, or left the posterior improper; start from other hyper-parameters, "
            "or check the derivatives of kernel and likelihood for NaN."
        )
    warnings += astray
    change = float(converged.change)
    if not change <= SETTLED:
        warnings.append(
            f"The site updates have not converged: the last one changed the bound by {change:.1e} "
            "(relative); start from other hyper-parameters, or look for contradictory rows."
        )
    improper = int(converged.improper_cavities)
    if improper:
        warnings.append(
            f"{improper} row(s) kept a site whose cavity is improper, so that it could not be "
            "updated; use a smaller power, or VariationalInference."
        )
    if learned is not None:
        warnings += at_bounds(space, learned.vector, bounds, input_names, data)
    warnings += [*_about_noise(posterior, data), *_without_moments(posterior.model.likelihood)]
    warnings += _wild_inputs(data, input_names)
    if converged.moved > 0:
        far = f"up to {converged.moved:.2g} posterior deviations from the mode"
        notes = (f"Posterior means are those of the variational bound, {far}.", *notes)
    elif converged.moved != 0:
        stays = (
            "Posterior means are the mode: updates to those of the highest bound did not settle, "
            "or take variances at the rows that are estimates."
        )
        notes = (stays, *notes)
    trace_term, jitter = float(latent.trace_term), float(latent.jitter)
    if trace_term > max(1.0, _TRACE_TERM_A_ROW * total):
        warnings.append(
            f"The representation leaves about {trace_term:,.0f} nats of the bound at these "
            "hyper-parameters, and may hide others that are higher by more; use more inducing "
            "variables or neighbours, or another kind, if time allows."
        )
    # Of each latent function; the jitter reported is that of the largest one.
    scales = mean_prior_variances(posterior.model.kernel, data)
    largest = float(np.max(scales))
    warnings += about_jitter(jitter, largest)
    precisions = np.asarray(converged.sites.precisions)
    sharpness = float(np.max(scales * np.max(precisions, axis=0, initial=0.0)))
    if sharpness > _UNRESOLVED:
        warnings.append(
            f"One observation is {sharpness:.0e} times more precise than the prior, beyond double "
            "precision, so predictions may be inaccurate; use smaller weights or a larger noise "
            "variance."
        )
    if posterior.model.likelihood.is_location and total > 2 and not np.ptp(data.y, axis=0).any():
        warnings = ["The target has one value, which tells of no noise; check it.", *complaints]
    sound = change <= SETTLED
    sound &= not (improper or astray or complaints or is_ruinous(jitter, largest))
    return Diagnostics(
        converged=(learned is None or learned.converged) and sound,
        stopped_as_meant=short and sound,
        method=method,
        reason=reason,
        ending="hyper-parameters were not learned" if learned is None else learned.reason,
        evaluations=len(records),
        site_updates=updates,
        site_change=change,
        jitter=jitter,
        trace_term=trace_term,
        seconds=seconds,
        warnings=tuple(warnings),
        evidence_error=error,
        notes=notes,
    )


def _went_astray(rounds: Sequence[Any], bound: float, rows: float) -> list[str]:
    """Warning if the bound fell over the batches, or hyper-parameters could not move."""
    advice = (
        "give a smaller learning_rate with more epochs, other inducing points, or all rows at once "
        "(CollapsedVI, VariationalInference)"
    )
    held, steps = sum(r.held for r in rounds), rounds[-1].steps
    if held > _MOSTLY * steps:
        return [
            f"Hyper-parameters could not move in {held} of {steps} steps on batches, as the "
            f"posterior would have been improper; {advice}."
        ]
    window = min(len(rounds), max(_ROUNDS_A_MEAN, len(rounds) // 4))
    means = np.convolve([r.bound for r in rounds], np.full(window, 1 / window), mode="valid")
    if means.max() - bound > _FALL_A_ROW * rows:
        return [
            f"Steps on batches led down: the bound is {bound:,.0f} nats, and was "
            f"{means.max():,.0f} on the way; {advice}."
        ]
    return []


def mean_prior_variances(kernel: LatentKernel, data: Data) -> Float[np.ndarray, "#Q"]:
    """Mean prior variance of each latent function over some rows."""
    sample = data.X[:_SAMPLED_ROWS]
    return apply_in_buckets(_prior_variances, kernel, rows=sample).mean(axis=0)


def about_jitter(jitter: float, prior_variance: float) -> list[str]:
    """Warning about jitter that is more than rounding needs."""
    if jitter <= _LARGE_JITTER * prior_variance:
        return []
    return [
        f"The prior covariance of the coefficients needed a jitter of {jitter:.1e} "
        f"(prior variance {prior_variance:.1e}); look for nearly equal inputs or a very long "
        "length-scale."
    ]


def is_ruinous(jitter: float, prior_variance: float) -> bool:
    """Whether jitter is so large that the result is that of another model."""
    return not jitter <= _RUINOUS_JITTER * prior_variance


@jax.jit
def _prior_variances(kernel: LatentKernel, X: Float[Array, "N D"]) -> Float[Array, "N #Q"]:
    return latent_diagonals(kernel, X).T


def at_bounds(
    space: ParameterSpace,
    vector: Float[np.ndarray, "H"],
    bounds: tuple[Float[np.ndarray, "H"], Float[np.ndarray, "H"]],
    names: Sequence[str] | None,
    data: Data,
) -> list[str]:
    """Warnings about hyper-parameters at the bounds of a search."""
    sentences = []
    for (label, info), value, low, high in zip(space.entries(), vector, *bounds, strict=True):
        if value - low < _AT_A_BOUND or high - value < _AT_A_BOUND:
            side = "lower" if value - low < _AT_A_BOUND else "upper"
            advice = "the data do not determine it; give it a prior or freeze it"
            slope = isinstance(info.module, Linear | Polynomial) and info.path.endswith("variance")
            if (info.role, side) == ("lengthscale", "upper") or (slope and side == "lower"):
                advice = "the function hardly depends on this input"
            copies = data.weights is not None and np.max(data.weights) > 1
            if (info.role, side) == ("noise_variance", "lower") and copies:
                advice = "weights count copies, which show no noise; precisions are noise_variance="
            if info.path in space.narrowed:
                advice = "the support of its prior ends there; widen it if other values are likely"
            label += _of_input(label, info, names)
            sentences.append(f"{label} is at its {side} search bound: {advice}.")
    return sentences


def _of_input(label: str, info: ParameterInfo, names: Sequence[str] | None) -> str:
    """The name of the input that a length-scale belongs to, in parentheses; or empty."""
    if names is None or info.role not in IN_UNITS_OF_INPUTS:
        return ""
    seen = names if info.dimensions is None else [names[d] for d in info.dimensions]
    if np.shape(info.value) != (len(seen),):
        return ""
    return f" (of {seen[int(label.rpartition('[')[2][:-1])]!r})"


def _wild_inputs(data: Data, names: Sequence[str] | None) -> list[str]:
    """Warnings about input columns with outliers."""
    spread, stretch = data.input_spread
    sentences = []
    for column in np.flatnonzero(stretch > 1).tolist():
        name = f"Column {column} of X" if names is None else f"The column {names[column]!r}"
        values = data.X[:, column]
        middle = np.median(values)
        distance = np.abs(values - middle)
        sentences.append(
            f"{name} has {np.sum(distance > WILD * spread[column])} value(s) far from all others, "
            f"such as {values[np.argmax(distance)]:.6g} where {middle:.4g} is usual; drop or fill "
            "these rows if the values mark missing data, or take the logarithm of the column."
        )
    return sentences


def _about_noise(posterior: Any, data: Data) -> list[str]:
    """Warnings about noise: heavy tails, counts that vary more, or no signal beside it."""
    likelihood = posterior.model.likelihood
    wider = wider_law(likelihood)
    if not (isinstance(likelihood, Gaussian) or wider) or data.size < 3:
        return []
    rows = np.arange(0, data.size, max(1, data.size // _SAMPLED_ROWS))
    if wider:
        return excess_variation(wider, data.select(rows), posterior.mean_f(data.X[rows]))
    # Rows that go on a stream may all be in one place.
    sample = np.concatenate([data.X[rows], places_of(posterior.latent.centres)[:_SAMPLED_ROWS]])
    mean = posterior.mean_f(sample)
    sentences = heavy_tails(residuals_of(posterior, data, rows, mean[: len(rows)]))
    if float(np.var(mean)) <= _NOISE_RATIO * float(likelihood.noise_variance):
        known = parameters(posterior.model.kernel).values()
        other = ", or start from another length-scale" * any(p.role == "lengthscale" for p in known)
        said = "No signal was found: the model explains nearly all variation in y as noise"
        sentences.append(f"{said}; check the inputs{other}.")
    return sentences


def _without_moments(likelihood: Likelihood) -> list[str]:
    """Warning if the noise distribution has no variance."""
    shaped = isinstance(likelihood, StudentShape)
    if not shaped or (freedom := float(likelihood.degrees_of_freedom)) > 2:
        return []
    none, instead = "variance", "intervals and quantiles, and absolute errors for a score"
    if freedom <= 1:
        none, instead = ("mean and no variance", f"the median (reported as the mean), {instead}")
    return [
        f"Student-t noise of {freedom:.2g} degrees of freedom has no {none}, so predicted standard "
        f"deviations are infinite; use {instead}."
    ]
