"""Expectation propagation and its powers."""

from __future__ import annotations

import equinox as eqx

from latentgp.errors import check_ranges
from latentgp.likelihoods import Likelihood
from latentgp.likelihoods.joint import turned
from latentgp.models import LatentGP
from latentgp.representations import Dense, Representation
from latentgp.site_inference.methods.base import CouplingMethod
from latentgp.site_inference.rules.expectation_propagation import MomentRule
from latentgp.site_inference.search.algorithm import SiteInference


class ExpectationPropagation(CouplingMethod):
    """Expectation propagation (Minka 2001) and its powers (Minka 2004), parallel and damped.

    Site updates go on until they stand still; one that would move the sites more than the last
    is taken back and shortened. Rows whose cavity is improper keep their site for that time; with
    such rows at its end a fit has not converged. With `Inducing` it is the sparse power
    expectation propagation of Bui, Yan & Turner (2017): power 1 has FITC's prior.

    Args:
        representation: `Dense()` or `Inducing(...)`.
        coupled: whether sites couple the latents of a row, by moments of all of them; None where
            it pays: of up to three latents, or where these moments have a closed form, with
            `Dense()` and at most 1,500 rows times latents.
        power: in (0, 1]; 1 is expectation propagation, towards 0 it becomes variational.
        step_size: of the updates, in (0, 1].
        tolerance: size of an update, relative to the log evidence, below which they stop.
        max_updates: at most so many site updates an evaluation of the hyper-parameters.

    Raises:
        InputError: a power or step size outside (0, 1].
    """

    representation: Representation = Dense()
    power: float = eqx.field(static=True, default=1.0)
    step_size: float = eqx.field(static=True, default=0.8)
    tolerance: float = eqx.field(static=True, default=1e-8)
    max_updates: int = eqx.field(static=True, default=50)

    def __check_init__(self) -> None:
        check_ranges(self, power="(0, 1]", step_size="(0, 1]")

    def _gains(self, likelihood: Likelihood) -> bool:
        # By quasi-random points updates hardly settle.
        return turned(likelihood).has_sure_moments

    def algorithm(self, model: LatentGP) -> SiteInference:
        rule = MomentRule(step_size=self.step_size, power=self.power, coupled=self.couples(model))
        return SiteInference.of(model, self.representation, rule, self.tolerance, self.max_updates)
