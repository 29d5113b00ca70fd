"""Laplace's approximation."""

from __future__ import annotations

import equinox as eqx

from latentgp.inference.sites.algorithm import SiteInference
from latentgp.methods.sites import CouplingMethod
from latentgp.models import LatentGP
from latentgp.representations import Dense, Representation
from latentgp.rules.laplace import LaplaceRule


class Laplace(CouplingMethod):
    """Laplace's approximation: the mode of the latents and the curvature there (R&W 2006, 3.4).

    Newton's method, its steps shortened where the posterior density would fall, so that it ends
    at a mode for likelihoods that are not log-concave too. The gradient of the evidence has the
    implicit term of the mode. Of several latents the curvature's diagonal is used: what ties
    the latents of one row together at the mode is left out of the covariance. With `Inducing`
    the prior is that of FITC.

    Args:
        representation: `Dense()` or `Inducing(...)`.
        tolerance: relative change of the log density below which Newton's method stops.
        max_updates: at most so many Newton steps an evaluation of the hyper-parameters.
    """

    representation: Representation = Dense()
    tolerance: float = eqx.field(static=True, default=1e-10)
    max_updates: int = eqx.field(static=True, default=50)

    def algorithm(self, model: LatentGP) -> SiteInference:
        rule = LaplaceRule(coupled=self.couples(model))
        return SiteInference.of(model, self.representation, rule, self.tolerance, self.max_updates)
