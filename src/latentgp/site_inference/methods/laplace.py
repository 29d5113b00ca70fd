"""Laplace's approximation."""

from __future__ import annotations

import equinox as eqx

from latentgp.likelihoods import Likelihood
from latentgp.likelihoods.row_modes import is_concave
from latentgp.models import LatentGP
from latentgp.representations import Dense, Representation
from latentgp.site_inference.methods.base import CouplingMethod
from latentgp.site_inference.rules.laplace import LaplaceRule
from latentgp.site_inference.search.algorithm import SiteInference


class Laplace(CouplingMethod):
    """Laplace's approximation: the curvature at the mode of the latents (R&W 2006, 3.4).

    Newton's method, its steps shortened where the posterior density would fall, so that it ends
    at a mode for likelihoods that are not log-concave too. The gradient of the evidence has the
    implicit term of the mode. With coupled sites the curvature of a row is the whole matrix (the
    same, 3.5); else its diagonal, and what ties the latents of a row together at the mode is left
    out of the covariance. With `Inducing` the prior is that of FITC, with `MatrixFree` all is by
    solves (Cutajar et al. 2016, appendix B), for log-concave likelihoods.

    Args:
        representation: `Dense()`, `Inducing(...)` or `MatrixFree()`.
        coupled: whether sites couple the latents of a row; None where it pays: of targets that are
            no classes unless means are corrected, with `Dense()` and at most 1,500 rows times
            latents.
        tolerance: relative change of the log density below which Newton's method stops.
        max_updates: at most so many Newton steps an evaluation of the hyper-parameters.
        correct_mean: move the posterior mean from the mode to where the variational bound is
            highest given Laplace's covariance (van Niekerk & Rue 2024), of likelihoods that are
            concave in the latents of a row, unless variances at the rows are rough estimates, as
            by `MatrixFree()`. The evidence stays Laplace's.
    """

    representation: Representation = Dense()
    tolerance: float = eqx.field(static=True, default=1e-10)
    max_updates: int = eqx.field(static=True, default=50)
    correct_mean: bool = eqx.field(static=True, default=True)

    def _gains(self, likelihood: Likelihood) -> bool:
        # The mode of classes is too near zero: wider covariances make probabilities duller still.
        return self._corrects(likelihood) or likelihood.targets != "class"

    def _corrects(self, likelihood: Likelihood) -> bool:
        # Where log p(y | f) is concave the bound has one highest mean.
        return self.correct_mean and is_concave(likelihood) and likelihood.is_positive

    def algorithm(self, model: LatentGP) -> SiteInference:
        corrected = self._corrects(model.likelihood)
        rule = LaplaceRule(coupled=self.couples(model), corrected=corrected)
        return SiteInference.of(model, self.representation, rule, self.tolerance, self.max_updates)
