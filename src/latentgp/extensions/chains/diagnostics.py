"""Diagnostics of Markov chains: convergence, effective sample sizes, divergences."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from latentgp.diagnostics import FitDiagnostics, about_jitter, is_ruinous
from latentgp.extensions.chains.draws import Chains, ChainSummary
from latentgp.modules import stored

_R_HAT, _DIVERGED = 1.01, 1e-3
_EVIDENCE_ERROR = 0.8  # relative, of an estimate that holds a chain
_STUCK = 0.02  # share of proposals
_EFFECTIVE_A_CHAIN = 100
_SHORT_OF_MODE = 1e-3  # nats that another Newton step would gain


@stored
@dataclasses.dataclass(frozen=True, kw_only=True)
class ChainDiagnostics(FitDiagnostics):
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
        notes: on how it was computed, such as what neighbours were found by.
        findings: such as of the steps of stochastic gradient Langevin dynamics.
    """

    summary: ChainSummary
    acceptance: float
    divergences: int
    operations: int | None = None

    @property
    def effective_an_operation(self) -> float:
        """The smallest effective sample size by the number of factorisations; NaN if unknown."""
        return self.summary.least / self.operations if self.operations else float("nan")

    @property
    def effective_a_second(self) -> float:
        """The smallest effective sample size by the seconds of the whole fit."""
        return self.summary.least / self.seconds

    @property
    def state(self) -> str:
        return (
            f"{'Chains agree' if self.converged else 'Chains have not converged'} after "
            f"{self.seconds:.1f} s with {type(self.method).__name__} ({self.reason}): R-hat at "
            f"most {self.summary.r_hat:.3f}, at least {self.summary.ess_bulk:.0f} effective draws "
            f"of the bulk and {self.summary.ess_tail:.0f} of the tails, "
            f"{self.effective_a_second:.2g} a second."
        )


def diagnose_chains(
    method: Any,
    problem: Any,
    chains: Chains,
    summary: ChainSummary,
    prior_variance: float,
    *notes: str,
) -> ChainDiagnostics:
    """Convergence, effective sample sizes, divergences; the prior variance is a mean over rows."""
    number = len(chains.f)
    needed, least, warnings = _EFFECTIVE_A_CHAIN * number, summary.least, []
    if number == 1:
        warnings.append("One chain cannot show whether it has converged; run at least four.")
    if not summary.r_hat <= _R_HAT and number > 1:
        warnings.append(
            f"R-hat is {summary.r_hat:.3f}, above {_R_HAT}: the chains have not mixed; raise "
            "warmup and draws."
        )
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
    said = *_refusals(chains), *chains.complaints, *about_jitter(chains.jitter, prior_variance)
    trusted = number > 1 and summary.r_hat <= _R_HAT and least >= needed
    return ChainDiagnostics(
        converged=bool(trusted and diverged <= _DIVERGED * draws and not chains.complaints)
        and not is_ruinous(chains.jitter, prior_variance),
        method=method,
        reason=problem.reason,
        summary=summary,
        acceptance=float(np.mean(chains.statistics["acceptance_rate"].mean(axis=1))),
        divergences=diverged,
        jitter=chains.jitter,
        seconds=problem.seconds,
        warnings=(*warnings, *said),
        operations=_counted(chains),
        notes=(*chains.notes, *notes, *_proposals_from_prior(chains), *_cut_short(chains)),
    )


def _cut_short(chains: Chains) -> list[str]:
    """Sentences about iterations and trajectories that ended at their limits, if any did."""
    none, law = np.zeros(1), "draws are of the same law, and may be less independent."
    left, cut = (chains.statistics.get(n, none) for n in ("decrement", "reached_max_treedepth"))
    short = left > _SHORT_OF_MODE
    told = {
        f"In {short.mean():.1%} of the draws Newton's method ended short of the mode that "
        f"coordinates are made at, by up to {np.max(left):.2g} nats; {law}": short.any(),
        f"{cut.mean():.1%} of the draws came by a trajectory of the greatest length, which had not "
        f"turned; {law}": cut.any(),
    }
    return [sentence for sentence, holds in told.items() if holds]


def _proposals_from_prior(chains: Chains) -> list[str]:
    """A sentence about proposals of hyper-parameters from their prior, where there could be any."""
    made = chains.statistics.get("prior_proposed")
    if made is None:
        return []
    if not made.any():
        return ["Proposals of hyper-parameters from their prior were dropped in the warm-up."]
    rate = np.sum(chains.statistics["prior_accepted"]) / np.sum(made)
    return [f"{rate:.0%} of {np.sum(made):,.0f} proposals from the prior were accepted."]


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
