"""Degrees of freedom by moments of the estimated variance (Satterthwaite 1946)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpyro.distributions import Distribution

from latentgp.errors import refuse
from latentgp.extensions.groups.inference.contrasts import TermTest
from latentgp.extensions.groups.inference.design import FixedDesign
from latentgp.extensions.groups.inference.law import EffectsLaw
from latentgp.likelihoods import Gaussian
from latentgp.methods.base import Method
from latentgp.posteriors.posterior import Posterior
from latentgp.representations.protocols import finished
from latentgp.rows.data import MergedRows
from latentgp.runtime.blas_threads import one_blas_thread
from latentgp.runtime.x64 import double_precision
from latentgp.site_inference.methods.at_optimum import at_optimum
from latentgp.site_inference.search.profiled_bound import evaluate_and_converge, model_at
from latentgp.typing import HyperVector

STEP = 1e-3  # of unconstrained hyper-parameters, such as logarithms
_FLAT = 1e-4  # curvature in nats, of a direction of which the rows say nothing
_KNOWN = 1e-10  # relative variance of a variance that is none
_EQUAL = 1e-8  # relative, of degrees of freedom


class Satterthwaite(EffectsLaw):
    """Fixed effects whose t tests have Satterthwaite's degrees of freedom.

    Attributes:
        names: of the fixed effects.
        estimate: of these, shape (effects,).
        covariance: C given the variance parameters, shape (effects, effects).
        slopes: derivatives of C in the H variance parameters, shape (H, effects, effects).
        spread: covariance A of these parameters, shape (H, H); without any, tests are by the normal
            law.
        held: number of their directions of which the evidence says nothing, as of a variance of
            zero; they are held fixed.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    estimate: Float[np.ndarray, "effects"]
    covariance: Float[np.ndarray, "effects effects"]
    slopes: Float[np.ndarray, "H effects effects"]
    spread: Float[np.ndarray, "H H"]
    held: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        said = (
            f"Tests take {self.held} of {len(self.spread)} directions of the parameters for known: "
            "the rows say nothing of them, as of a variance of zero."
        )
        return (said,) if self.held else ()

    def degrees(self, weights: Float[np.ndarray, "sums effects"]) -> Float[np.ndarray, "sums"]:
        """2 (l'C l)^2 / (g'A g), g the slopes of l'C l (Kuznetsova et al. 2017, 3.1)."""
        variance = np.einsum("ci,ij,cj->c", weights, self.covariance, weights)
        slopes = np.einsum("ci,hij,cj->ch", weights, self.slopes, weights)
        spread = np.einsum("ch,hk,ck->c", slopes, self.spread, slopes)
        known = spread > _KNOWN * variance**2
        return np.where(known, 2 * variance**2 / np.where(known, spread, 1.0), np.inf)

    def f_test(self, weights: Float[np.ndarray, "rank effects"]) -> TermTest:
        """The mean of independent squared t statistics (Kuznetsova et al. 2017, 3.2)."""
        variances, axes = np.linalg.eigh(weights @ self.covariance @ weights.T)
        rows = axes.T @ weights
        statistic = np.mean((rows @ self.estimate) ** 2 / variances)
        return TermTest.of(statistic, len(rows), _denominator(self.degrees(rows)))


def normal_tests(
    names: Sequence[str],
    estimate: Float[np.ndarray, "effects"],
    covariance: Float[np.ndarray, "effects effects"],
) -> Satterthwaite:
    """Fixed effects whose tests are by the normal law: without variance parameters.

    Example:
        >>> normal_tests(["slope"], np.array([2.0]), np.eye(1)).coefficients().p_value.round(4)
        array([0.0455])
    """
    none = np.zeros((0, *covariance.shape)), np.zeros((0, 0))
    return Satterthwaite(tuple(names), estimate, covariance, *none)


def _denominator(degrees: Float[np.ndarray, "rank"]) -> float:
    """Degrees of freedom of F, whose mean is that of the sum of squared t variables."""
    if np.all(np.isinf(degrees)) or np.ptp(degrees) <= _EQUAL * min(degrees):
        return float(degrees[0])
    if np.any(degrees <= 2):
        return 2.0
    # Of infinitely many the mean of t^2 is one.
    total = float(np.sum(1 + 2 / (degrees - 2)))
    return 2 * total / (total - len(degrees))


@double_precision
@one_blas_thread()
def satterthwaite(
    posterior: Posterior,
    method: Method,
    rows: MergedRows,
    priors: Mapping[str, Distribution | None],
    names: Sequence[str] | None = None,
) -> Satterthwaite:
    """Fixed effects of a fit with Gaussian noise, with Satterthwaite's degrees of freedom.

    The covariance A of the variance parameters is the inverse of minus the Hessian of the
    restricted log likelihood (and log prior, where they have one) at their estimates (Kuznetsova,
    Brockhoff & Christensen 2017, 3.1). Both derivatives are central differences, the Hessian's of
    exact gradients: two evaluations for each parameter.

    Args:
        posterior: of the fit.
        method: of the fit, one by sites.
        rows: that were fitted.
        priors: of the learned parameters by path, None of one without.
        names: of all columns of the inputs; their numbers unless given.

    Raises:
        InputError: another likelihood, no fixed effects, nothing that was learned, other rows; an
            evidence that is estimated.

    Example:
        >>> import jax, latentgp as lgp
        >>> from latentgp.kernels import FixedEffects, SameGroup
        >>> group, treated = np.arange(40) // 4, np.arange(40) % 2
        >>> y = np.sin(group) + 0.3 * treated + 0.1 * np.cos(7 * np.arange(40))
        >>> kernel = FixedEffects(1e4).on(0, 1) + lgp.Constant() * SameGroup().on(2)
        >>> data = lgp.Data(np.column_stack([np.ones(40), treated, group]), y)
        >>> model = lgp.LatentGP(kernel, lgp.Gaussian(0.1))
        >>> fit = lgp.fit(model, data, key=jax.random.key(0), priors=None)
        >>> own = fit.posterior, fit.diagnostics.method, fit.rows, fit.priors
        >>> lgp.groups.satterthwaite(*own).coefficients().degrees.round()
        array([ 9., 29.])
    """
    is_gaussian = isinstance(posterior.model.likelihood, Gaussian)
    refuse(
        {
            "Degrees of freedom are those of Gaussian noise; tests of other likelihoods are by the "
            "normal law, as in mixed_summary().": not is_gaussian
        }
    )
    design = FixedDesign.of(posterior.model.kernel, rows.merged.X.shape[1])
    own = design.effects(posterior, names)
    refuse(
        {
            "Degrees of freedom are derivatives of an exact log evidence, and that by conjugate "
            "gradients is an estimate; take SparseEffects(exact=True), or tests by the normal "
            "law.": float(posterior.latent.evidence_error) > 0
        }
    )
    space, found = at_optimum(posterior, method, rows, priors)
    vector, sites = space.to_vector(), found.converged.sites

    def at(place: HyperVector) -> tuple[np.ndarray, np.ndarray]:
        """Gradient of the log evidence and covariance of the fixed effects."""
        place = jnp.asarray(place)
        own = found.algorithm, space, place, found.rows, sites
        evaluation, converged = evaluate_and_converge(*own)
        latent = finished(found.algorithm.representation, converged.posterior, found.rows)
        there = Posterior.gaussian(model_at(space, place), latent, posterior.log_evidence)
        return np.asarray(evaluation.gradient), design.effects(there, names).covariance

    pairs = [(at(vector + step), at(vector - step)) for step in STEP * np.eye(len(vector))]
    hessian = np.stack([up[0] - down[0] for up, down in pairs]) / (2 * STEP)
    slopes = np.stack([up[1] - down[1] for up, down in pairs]) / (2 * STEP)
    return Satterthwaite(own.names, own.estimate, own.covariance, slopes, *spread_of(hessian))


def spread_of(
    hessian: Float[np.ndarray, "H H"],
) -> tuple[Float[np.ndarray, "H H"], int]:
    """Covariance of parameters by the curvature of their log likelihood.

    Directions of which that says nothing are held, and their number comes second.

    Example:
        >>> spread, held = spread_of(np.diag([-4.0, 0.0]))
        >>> spread.tolist(), held
        ([[0.25, 0.0], [0.0, 0.0]], 1)
    """
    curvature, axes = np.linalg.eigh(-0.5 * (hessian + hessian.T))
    kept = curvature > _FLAT
    return axes[:, kept] / curvature[kept] @ axes[:, kept].T, int(sum(~kept))
