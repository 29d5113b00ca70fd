"""Gaussian variational inference by natural gradients."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx

from latentgp.errors import check_ranges
from latentgp.models import LatentGP
from latentgp.representations import Dense, Representation
from latentgp.site_inference.methods.base import CouplingMethod
from latentgp.site_inference.rules.variational import VariationalRule
from latentgp.site_inference.search.algorithm import SiteInference


class VariationalInference(CouplingMethod):
    """Gaussian variational inference by natural gradients (Khan & Lin 2017), any likelihood.

    Expectations are by Gauss-Hermite quadrature for one or two latents, by fixed quasi-Monte
    Carlo for more, in closed form where the likelihood has one. The covariance is full, or diagonal
    with `Inducing(covariance="diagonal")`.

    Args:
        representation: `Dense()` or `Inducing(...)`.
        coupled: whether sites couple the latents of a row, so that these are correlated; None where
            it pays: with `Dense()` and at most 1,500 rows times latents, and in streams of what was
            coupled.
        step_size: of the natural-gradient steps, in (0, 1].
        tolerance: relative change of the bound below which site updates stop.
        max_updates: at most so many site updates an evaluation of the hyper-parameters.

    Raises:
        InputError: a step size outside (0, 1].
    """

    works_in_batches: ClassVar[bool] = True

    representation: Representation = Dense()
    step_size: float = eqx.field(static=True, default=0.7)
    tolerance: float = eqx.field(static=True, default=1e-5)
    max_updates: int = eqx.field(static=True, default=8)

    def __check_init__(self) -> None:
        check_ranges(self, step_size="(0, 1]")

    def algorithm(self, model: LatentGP) -> SiteInference:
        rule = VariationalRule(step_size=self.step_size, coupled=self.couples(model))
        return SiteInference.of(model, self.representation, rule, self.tolerance, self.max_updates)
