"""Diagnostics of a finished fit: convergence, warnings, and the remedy for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from latentgp.extensions.batches.staleness import Asynchrony
from latentgp.extensions.black_box.mixtures.summary import MixtureTerms
from latentgp.extensions.chains.draws import Chains, ChainSummary
from latentgp.extensions.iterative.gradients.phase import LangevinPhase
from latentgp.kernels import LatentKernel
from latentgp.likelihoods import Gaussian, Likelihood
from latentgp.likelihoods.noise_shapes import StudentShape
from latentgp.modules import Module
from latentgp.parameters.base import IN_UNITS_OF_INPUTS, ParameterInfo
from latentgp.parameters.space import ParameterSpace
from latentgp.representations.latent_axis import latent_diagonals
from latentgp.representations.variables import places_of
from latentgp.rows.data import Data
from latentgp.rows.spread import WILD
from latentgp.runtime.buckets import apply_in_buckets
from latentgp.setup.residuals import heavy_tails, residuals_of
from latentgp.site_inference.search.hyperparameters import (
    NO_STEP,
    NO_STEP_OF_ESTIMATE,
    OF_OTHERS,
    Learned,
)
from latentgp.site_inference.search.profiled_bound import Converged
from latentgp.typing import Array

_AT_A_BOUND = 1e-2
_SAMPLED_ROWS = 500
_LARGE_JITTER, _RUINOUS_JITTER = 1e-5, 1e-3  # shares of the prior variance
_UNRESOLVED = 1e12
_CONVERGED = 1e-4
_TRACE_TERM_A_ROW = 0.02
_PASSED_OVER, _MOSTLY = 0.05, 0.5
_ROUNDS_A_MEAN, _FALL_A_ROW = 3, 0.02
_NOISE_RATIO = 1e-2
_R_HAT, _DIVERGED = 1.01, 1e-3
_EVIDENCE_ERROR = 0.8  # relative, of an estimate that holds a chain
_STUCK = 0.02  # share of proposals
_EFFECTIVE_A_CHAIN = 100
_MOVED, _HIGHER, _EFFECTIVE_DRAWS = 0.1, 1.0, 500  # deviations, nats, a number
_LEFT_OUT = 0.05  # of the evaluations


class Integration(NamedTuple):
    """Record of the integration over hyper-parameters.

    Attributes:
        points: that the posterior is a mixture of.
        effective_points: one over the sum of their squared weights.
        evaluations: of the bound around the mode.
        left_out: of these, those whose site updates did not converge.
        drop: nats from the mode down to the lowest point of the mixture.
        rise: nats by which the highest place that was seen is above the mode.
        flat: number of directions in which the bound has no curvature at the mode.
        moved: by how much the last further places, twice, moved the log evidence (nats), a
            mean (deviations) or the logarithm of a deviation, whichever most.
        effective_draws: of the weighted draws that marginals and evidence are made of.
        without_prior: paths of hyper-parameters that have no prior.
    """

    points: int
    effective_points: float
    evaluations: int
    left_out: int
    drop: float
    rise: float
    flat: int
    moved: float
    effective_draws: float
    without_prior: tuple[str, ...]

    @property
    def is_trusted(self) -> bool:
        """Whether the density is known well enough all over."""
        known = self.moved <= _MOVED and self.effective_draws >= _EFFECTIVE_DRAWS
        return known and self.rise <= _HIGHER and not self.lacks_many

    @property
    def lacks_many(self) -> bool:
        """Whether more than one in twenty evaluations were left out."""
        return self.left_out > _LEFT_OUT * self.evaluations

    @property
    def verdict(self) -> str:
        """Summary in a sentence."""
        return (
            f"Hyper-parameters were integrated over {self.points} points "
            f"({self.effective_points:.1f} effective, the lowest {self.drop:.1f} nats below the "
            f"mode) of {self.evaluations} evaluations ({self.left_out} left out); the last "
            f"moved means and log deviations by at most {self.moved:.2g} deviations."
        )

    @property
    def warnings(self) -> list[str]:
        """One sentence each: what looks wrong and what to do."""
        sentences = []
        if self.lacks_many:
            sentences.append(
                f"{self.left_out} of {self.evaluations} evaluations around the mode were left out, "
                "as their site updates did not converge or the run was ended; give narrower "
                'priors, or use hyperparameters="sample".'
            )
        if not self.moved <= _MOVED:
            sentences.append(
                "Means and deviations of the hyper-parameters still moved, by up to "
                f"{self.moved:.2g} deviations, when the exploration ended; allow more time, give "
                'narrower priors, or use hyperparameters="sample".'
            )
        elif self.effective_draws < _EFFECTIVE_DRAWS:
            sentences.append(
                f"Marginals of the hyper-parameters rest on {self.effective_draws:.0f} effective "
                "draws only, as their density is far from normal; give narrower priors, or use "
                'hyperparameters="sample".'
            )
        if self.rise > _HIGHER:
            sentences.append(
                f"The density of the hyper-parameters is {self.rise:.1f} nats higher than at the "
                "mode that the search found; add restarts or raise max_evaluations."
            )
        if self.flat:
            sentences.append(
                f"In {self.flat} direction(s) the bound is flat at the mode, and the width of the "
                "prior was guessed there; give priors to what the data do not determine."
            )
        if self.without_prior:
            sentences.append(
                f"{', '.join(self.without_prior)} had no prior, so that the unconstrained value "
                "was taken as uniform and the log evidence has an arbitrary constant; give priors."
            )
        return sentences


@dataclasses.dataclass(frozen=True)
class Diagnostics:
    """Diagnostics of a fit by sites or batches.

    Attributes:
        converged: whether the search for hyper-parameters and the site updates both ended by
            themselves.
        method: the method used.
        reason: why it was chosen.
        ending: why the search ended, in words.
        evaluations: of the bound; of `Stochastic` the rounds of batches.
        site_updates: in the last round; of `Stochastic` the steps.
        site_change: relative change of the bound in the last site update; zero of `Stochastic`,
            whose steps make their sites anew.
        jitter: added to the diagonal of the factorised prior covariance; units of f squared.
        trace_term: nats of the bound lost to too few inducing points (an estimate from the prior
            variance that they leave).
        seconds: of the whole fit, compilation included.
        warnings: one sentence each: what looks wrong and what to do.
        integration: how hyper-parameters were integrated over; None where they were not.
        evidence_error: standard error of the log evidence, in nats; zero where it is no estimate.
        notes: sentences on how solves ended that the result rests on, if there are any.
        terms: of the bound of `BlackBoxVI`; None of other methods.
        asynchrony: staleness of the steps of workers, and how many of these were lost; None
            without workers.
    """

    converged: bool
    method: Module
    reason: str
    ending: str
    evaluations: int
    site_updates: int
    site_change: float
    jitter: float
    trace_term: float
    seconds: float
    warnings: tuple[str, ...]
    integration: Integration | None = None
    evidence_error: float = 0.0
    notes: tuple[str, ...] = ()
    terms: MixtureTerms | None = None
    asynchrony: Asynchrony | None = None

    def by_workers(self, went: Asynchrony | None) -> "Diagnostics":
        """These, completed by how the workers of the search went, if there were any."""
        if went is None:
            return self
        warnings = (*self.warnings, *went.warnings)
        return dataclasses.replace(self, asynchrony=went, warnings=warnings)

    @property
    def _coupling(self) -> str:
        own = getattr(self.method, "method", self.method)  # what is integrated or in batches
        return ", sites coupling the latents of a row" if getattr(own, "coupled", False) else ""

    @property
    def verdict(self) -> str:
        """State of convergence and all warnings, in a few lines."""
        state = "Converged" if self.converged else "Not converged"
        lines = [
            f"{state} after {self.evaluations} evaluations and {self.seconds:.1f} s "
            f"with {type(self.method).__name__}{self._coupling} ({self.reason})."
        ]
        lines += self.notes
        lines += [] if self.asynchrony is None else [self.asynchrony.verdict]
        lines += [] if self.integration is None else [self.integration.verdict]
        return "\n".join([*lines, *(f"- {warning}" for warning in self.warnings)])


def integrated(diagnostics: Diagnostics, integration: Integration, seconds: float) -> Diagnostics:
    """Diagnostics of the mode, completed by those of the integration around it."""
    return dataclasses.replace(
        diagnostics,
        converged=diagnostics.converged and integration.is_trusted,
        seconds=seconds,
        warnings=(*diagnostics.warnings, *integration.warnings),
        integration=integration,
    )


@dataclasses.dataclass(frozen=True)
class ChainDiagnostics:
    """Diagnostics of a fit by Markov chains.

    Attributes:
        converged: whether R-hat and the effective sample sizes are good enough to be trusted
            (Vehtari et al. 2021: below 1.01, and 100 a chain), and at most one draw in a
            thousand came by a trajectory that diverged.
        method: the method used.
        reason: why it was chosen.
        summary: the worst R-hat and effective sample sizes.
        acceptance: mean rate of accept-reject steps, one where all steps are exact.
        divergences: draws on the way to which a Hamiltonian trajectory diverged.
        operations: factorisations of matrices of N rows, or M inducing points, on the way from the
            warm-up to the last draw, of all chains; None where they are not counted.
        jitter: added to the diagonal of the prior covariance; units of f squared.
        seconds: of the whole fit, compilation included.
        warnings: one sentence each: what looks wrong and what to do.
        langevin: how the steps of stochastic gradient Langevin dynamics went; None of others.
        notes: on how it was computed, such as what neighbours were found by.
    """

    converged: bool
    method: Module
    reason: str
    summary: ChainSummary
    acceptance: float
    divergences: int
    jitter: float
    seconds: float
    warnings: tuple[str, ...]
    operations: int | None = None
    langevin: LangevinPhase | None = None
    notes: tuple[str, ...] = ()

    @property
    def effective_an_operation(self) -> float:
        """The smallest effective sample size by the number of factorisations; NaN if unknown."""
        if not self.operations:
            return float("nan")
        return self.summary.least / self.operations

    @property
    def effective_a_second(self) -> float:
        """The smallest effective sample size by the seconds of the whole fit."""
        return self.summary.least / self.seconds

    @property
    def verdict(self) -> str:
        """State of convergence and all warnings, in a few lines."""
        state = "Chains agree" if self.converged else "Chains have not converged"
        lines = [
            f"{state} after {self.seconds:.1f} s with {type(self.method).__name__} "
            f"({self.reason}): R-hat at most {self.summary.r_hat:.3f}, at least "
            f"{self.summary.ess_bulk:.0f} effective draws of the bulk and "
            f"{self.summary.ess_tail:.0f} of the tails, {self.effective_a_second:.2g} a second."
        ]
        if self.langevin is not None:
            lines.append(self.langevin.verdict)
        lines += self.notes
        return "\n".join([*lines, *(f"- {warning}" for warning in self.warnings)])


def with_phase(diagnostics: ChainDiagnostics, phase: LangevinPhase) -> ChainDiagnostics:
    """Diagnostics of chains, completed by those of their Langevin steps."""
    return dataclasses.replace(
        diagnostics,
        converged=diagnostics.converged and not phase.warnings,
        warnings=(*diagnostics.warnings, *phase.warnings),
        langevin=phase,
    )


def diagnose_chains(
    *,
    method: Any,
    reason: str,
    chains: Chains,
    summary: ChainSummary,
    seconds: float,
    prior_variance: float,
    notes: tuple[str, ...] = (),
) -> ChainDiagnostics:
    """Diagnose Markov chains: convergence, effective sample sizes, divergences.

    Args:
        method: the method used.
        reason: why it was chosen.
        chains: the draws.
        summary: their R-hat and effective sample sizes.
        seconds: of the whole fit.
        prior_variance: of f, or of what else has the chains' jitter; their mean over rows.
        notes: on how it was computed.
    """
    number = len(chains.f)
    needed = _EFFECTIVE_A_CHAIN * number
    warnings = []
    if number == 1:
        warnings.append("One chain cannot show whether it has converged; run at least four.")
    if not summary.r_hat <= _R_HAT and number > 1:
        warnings.append(
            f"R-hat is {summary.r_hat:.3f}, above {_R_HAT}: the chains have not mixed; raise "
            "warmup and draws."
        )
    least = summary.least
    if not least >= needed:
        warnings.append(
            f"The smallest effective sample size is {least:.0f}, below {needed} "
            f"({_EFFECTIVE_A_CHAIN} a chain); use more draws, or a larger thin."
        )
    diverged, draws = chains.divergences, chains.f.shape[0] * chains.f.shape[1]
    if diverged:
        warnings.append(
            f"{diverged} of {draws:,} draws ({diverged / draws:.2%}) came by a trajectory that "
            f"diverged{_where_diverged(chains)}, so parts of the posterior may be missing; raise "
            "target_acceptance of NUTS, or choose other moves of MCMC."
        )
    warnings += _refusals(chains)
    warnings += [*chains.complaints, *about_jitter(chains.jitter, prior_variance)]
    trusted = number > 1 and summary.r_hat <= _R_HAT and least >= needed
    return ChainDiagnostics(
        converged=bool(trusted and diverged <= _DIVERGED * draws and not chains.complaints)
        and not is_ruinous(chains.jitter, prior_variance),
        method=method,
        reason=reason,
        summary=summary,
        acceptance=float(np.mean(chains.acceptance)),
        divergences=chains.divergences,
        jitter=chains.jitter,
        seconds=seconds,
        warnings=tuple(warnings),
        operations=_counted(chains),
        notes=(*chains.notes, *notes),
    )


def _counted(chains: Chains) -> int | None:
    """Factorisations between the draws; slices do not tell how many they made."""
    counted = chains.statistics.get("factorisations")
    if counted is None or not np.isfinite(counted).all():
        return None
    return int(counted.sum())


def _refusals(chains: Chains) -> list[str]:
    """Sentences about proposals of hyper-parameters that are hardly ever accepted."""
    moves = chains.statistics.get("hyperparameter_acceptance_rate")
    spread = chains.statistics.get("evidence_error")
    said = []
    if spread is not None and np.median(spread) > _EVIDENCE_ERROR:
        said.append(
            f"The relative error of the evidence's estimate is {np.median(spread):.2g}: it hangs "
            "on few of its samples, and chains wait for lucky ones; raise samples, or use "
            'coupling="sites".'
        )
    if moves is not None and np.mean(moves) < _STUCK:
        said.append(
            f"{np.mean(moves):.1%} of the proposed hyper-parameters were accepted; raise warmup, "
            'or use hyperparameters="random-walk".'
        )
    return said


def _where_diverged(chains: Chains) -> str:
    """Quantiles of the divergent draws' log densities among those of all draws, in words."""
    density = chains.statistics.get("lp")
    if density is None:
        return ""
    own = density[chains.statistics["diverging"].astype(bool)]
    below = [float(np.mean(density < value)) for value in (own.min(), own.max())]
    return f" (log densities at the {below[0]:.0%} to {below[1]:.0%} quantiles of all draws)"


def diagnose(
    *,
    posterior: Any,
    method: Any,
    reason: str,
    data: Data,
    learned: Learned | None,
    records: Sequence[Any],
    space: ParameterSpace,
    bounds: tuple[Float[np.ndarray, "P"], Float[np.ndarray, "P"]],
    converged: Converged,
    seconds: float,
    passed_over: int = 0,
    input_names: Sequence[str] | None = None,
) -> Diagnostics:
    """Diagnose a finished fit by sites or batches."""
    warnings = []
    astray = []
    latent = converged.posterior
    error, complaints = float(latent.evidence_error), latent.complaints
    if method.reads_batches and records:
        astray = _went_astray(records, float(converged.bound), data.total_weight)
    by_noise = learned is not None and NO_STEP_OF_ESTIMATE in learned.reason
    if learned is not None and (by_noise or not learned.converged) and not astray:
        of = " for hyper-parameters" if space.size else ""
        advice = "raise the limit, or continue from the fitted model"
        if learned.reason == NO_STEP:
            advice = "check kernel and likelihood for kinks, or start from other values"
        if learned.reason == OF_OTHERS:
            advice = "fit again from the fitted model, or summarise the rows anew for it"
        if by_noise:
            advice = (
                "bound and gradient are estimates, which agree to their standard errors only, of "
                f"the bound {error:.2g} nats: raise probes or rank of the representation"
            )
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
    if not change <= _CONVERGED:
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
        warnings += _at_bounds(space, learned.vector, bounds, input_names)
    warnings += [*_about_noise(posterior, data), *_without_moments(posterior.model.likelihood)]
    warnings += _wild_inputs(data, input_names)
    trace_term, jitter = float(converged.posterior.trace_term), float(converged.posterior.jitter)
    if trace_term > max(1.0, _TRACE_TERM_A_ROW * data.total_weight):
        warnings.append(
            f"The inducing variables leave about {trace_term:,.0f} nats of the bound at these "
            "hyper-parameters, and may hide others that are higher by more; use more of them, or "
            "of another kind, if time allows."
        )
    # Of each latent function; the jitter reported is that of the largest one.
    scales = mean_prior_variances(posterior.model.kernel, data)
    warnings += about_jitter(jitter, float(np.max(scales)))
    precisions = np.asarray(converged.sites.precisions)
    sharpness = float(np.max(scales * np.max(precisions, axis=0, initial=0.0)))
    if sharpness > _UNRESOLVED:
        warnings.append(
            f"One observation is {sharpness:.0e} times more precise than the prior, beyond double "
            "precision, so predictions may be inaccurate; use smaller weights or a larger noise "
            "variance."
        )
    return Diagnostics(
        converged=(learned is None or learned.converged)
        and change <= _CONVERGED
        and not (improper or astray or complaints or is_ruinous(jitter, float(np.max(scales)))),
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
        notes=latent.notes,
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
    """Prior variance of each latent function at every row."""
    return latent_diagonals(kernel, X).T


def _at_bounds(
    space: ParameterSpace,
    vector: Float[np.ndarray, "P"],
    bounds: tuple[Float[np.ndarray, "P"], Float[np.ndarray, "P"]],
    names: Sequence[str] | None,
) -> list[str]:
    lower, upper = bounds
    sentences = []
    for (label, info), value, low, high in zip(space.entries(), vector, lower, upper, strict=True):
        if value - low < _AT_A_BOUND or high - value < _AT_A_BOUND:
            side = "lower" if value - low < _AT_A_BOUND else "upper"
            advice = "the data do not determine it; give it a prior or freeze it"
            if info.role == "lengthscale" and side == "upper":
                advice = "the function hardly depends on this input"
            if info.path in space.narrowed:
                advice = "the support of its prior ends there; widen it if other values are likely"
            label += _of_input(label, info, names)
            sentences.append(f"{label} is at its {side} search bound: {advice}.")
    return sentences


def _of_input(label: str, info: ParameterInfo, names: Sequence[str] | None) -> str:
    """The name of the input that a length-scale belongs to, in parentheses; or empty."""
    if names is None or info.role not in IN_UNITS_OF_INPUTS or label == info.path:
        return ""
    place = int(label.rpartition("[")[2][:-1])
    return f" (of {names[place if info.dimensions is None else info.dimensions[place]]!r})"


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
    """Warnings about learned Gaussian noise: heavy-tailed residuals, or no signal."""
    likelihood = posterior.model.likelihood
    if not isinstance(likelihood, Gaussian) or data.size < 3:
        return []
    rows = np.arange(0, data.size, max(1, data.size // _SAMPLED_ROWS))
    # Rows that go on a stream may all be in one place.
    sample = np.concatenate([data.X[rows], places_of(posterior.latent.centres)[:_SAMPLED_ROWS]])
    mean = posterior.mean_f(sample)
    sentences = heavy_tails(residuals_of(posterior, data, rows, mean[: len(rows)]))
    if float(np.var(mean)) <= _NOISE_RATIO * float(likelihood.noise_variance):
        sentences.append(
            "No signal was found: the model explains nearly all variation in y as noise; check the "
            "inputs, or start from another length-scale."
        )
    return sentences


def _without_moments(likelihood: Likelihood) -> list[str]:
    """Warning if the noise distribution has no variance."""
    if not isinstance(likelihood, StudentShape):
        return []
    freedom = float(likelihood.degrees_of_freedom)
    if freedom > 2:
        return []
    none, instead = "variance", "intervals and quantiles, and absolute errors for a score"
    if freedom <= 1:
        none, instead = (
            "mean and no variance",
            f"the median (reported as the mean), {instead}",
        )
    return [
        f"Student-t noise of {freedom:.2g} degrees of freedom has no {none}, so predicted standard "
        f"deviations are infinite; use {instead}."
    ]
