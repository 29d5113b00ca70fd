"""Gibbs sampling in an augmented model."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx

from latentgp.errors import check_ranges, refuse
from latentgp.extensions.chains.gibbs import GibbsSampler, HyperUpdate
from latentgp.extensions.chains.methods.sampling import SamplingMethod
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.models import LatentGP
from latentgp.representations import Dense, Representation
from latentgp.representations.needs import Needs, usual_method
from latentgp.rows.data import Data
from latentgp.site_inference.methods.augmented import AugmentedVI
from latentgp.site_inference.methods.base import SiteMethod
from latentgp.site_inference.rules.augmentation import AugmentationRule
from latentgp.sites.augmentations import Augmentation


class GibbsSampling(SamplingMethod):
    """Exact posterior draws of an augmented likelihood, by turns (Galy-Fajou et al. 2020, alg. 2).

    With `Neighbours` draws are by solves, and kernel parameters move with the white coefficients
    held, as an evidence that solves estimate would not be exact. With `Inducing`, latents are drawn
    from the optimal sparse Gaussian given the auxiliary variables (VI-Gibbs: Galy-Fajou 2022, 7.5).
    `SpaceTime` draws likewise, exactly where all places are points.

    Args:
        representation: `Dense()`, `Neighbours(...)`, `Inducing(...)`, `Markov()` or
            `SpaceTime(...)`.
        chains: how many, side by side.
        draws: kept of each chain.
        warmup: sweeps of each chain that are thrown away.
        thin: keeps every `thin`-th state.
        augmentation: which one, where a likelihood has several; None is the registered one.
        hyperparameters: how they are updated in a sweep where they are learned: "slice" or
            "metropolis".
        power: of the prior variance given the inducing variables, in [0, 1]: 0 is variational,
            1 is FITC.
        over_relaxation: in [0, 1): how far each draw of the latents goes past the mean of their
            conditional, away from the last one (Adler 1981), with `Dense` and wherever kernel
            parameters are not drawn with the latents integrated out. Still exact; means mix
            faster, variances slower.
        slow_rows: how many rows that mix slowly, found in the warm-up, are updated ten times a
            sweep with the other rows' latents integrated out; for scale mixtures with `Dense`.

    Raises:
        InputError: settings outside their range.
    """

    needs_augmentation: ClassVar[bool] = True

    representation: Representation = Dense()
    chains: int = eqx.field(static=True, default=4)
    draws: int = eqx.field(static=True, default=1000)
    warmup: int = eqx.field(static=True, default=300)
    thin: int = eqx.field(static=True, default=1)
    augmentation: Augmentation | None = None
    hyperparameters: HyperUpdate = eqx.field(static=True, default="slice")
    power: float = eqx.field(static=True, default=0.0)
    over_relaxation: float = eqx.field(static=True, default=0.3)
    slow_rows: int = eqx.field(static=True, default=8)

    def __check_init__(self) -> None:
        check_ranges(self, power="[0, 1]", over_relaxation="[0, 1)", slow_rows="at least 0")

    def check(self, model: LatentGP, learns_hyperparameters: bool) -> None:
        if self.augmentation is None:
            usual = usual_method(model.likelihood)
            instead = f"NUTS for draws, or {usual}" if model.likelihood.is_continuous else usual
            needs = Needs(augmentation=True)
            needs.check("GibbsSampling", likelihood=model.likelihood, instead=instead)
        rule = AugmentationRule(augmentation=self.augmentation)
        rule.check(model.likelihood)
        through_points = not self.representation.traits.one_coefficient_a_row
        apart = len(rule.blocks(model.likelihood)) > 1 or self.power > 0
        sentence = (
            "Hyper-parameters are sampled through inducing points only with power=0 and a "
            "likelihood whose latents are drawn together; pass learn_hyperparameters=False "
            "to fit, or use Dense() with some thousand rows at most."
        )
        refuse({sentence: through_points and learns_hyperparameters and apart})

    def transition(
        self, representation: Representation, space: ParameterSpace, data: Data
    ) -> GibbsSampler:
        rule = AugmentationRule(augmentation=self.augmentation)
        return GibbsSampler.of(
            representation,
            rule,
            space,
            data,
            slow_rows=self.slow_rows,
            update=self.hyperparameters,
            power=self.power,
            over_relaxation=self.over_relaxation,
        )

    def starting_method(self) -> SiteMethod:
        return AugmentedVI(self.representation, self.augmentation)
