"""Hamiltonian Monte Carlo, and the no-U-turn sampler."""

from __future__ import annotations

from typing import cast

import equinox as eqx
import numpy as np

from latentgp.distributions import TiltedScaleMixture
from latentgp.errors import InputError, check_choices, check_ranges, refuse
from latentgp.extensions.chains.coordinates import Kind
from latentgp.extensions.chains.copies import copies_of
from latentgp.extensions.chains.hmc import HMCSampler, NUTSSampler, Tuning
from latentgp.extensions.chains.methods.sampling import SamplingMethod
from latentgp.extensions.chains.target import WhiteTarget
from latentgp.likelihoods import ScaleMixture
from latentgp.models import LatentGP
from latentgp.representations import Dense, Representation
from latentgp.representations.needs import Needs
from latentgp.site_inference.rules.augmentation import AugmentationRule
from latentgp.site_inference.search.algorithm import rows_of
from latentgp.sites.augmentations import Automatic


class HMC(SamplingMethod):
    """Hamiltonian Monte Carlo jointly of hyper-parameters and latents (Neal 2011).

    Trajectories have 1 to `steps` leapfrogs, drawn evenly. Through `Inducing` this is the sampler
    of Hensman, Matthews, Filippone & Ghahramani (2015): a Gaussian fit, chains that start from
    its hyper-parameters, tuning, sampling. `NUTS` needs no number of steps, and `MCMC` is faster
    where its coordinates of sites fit.

    Args:
        representation: `Dense()`, `Neighbours(...)` or `Inducing(...)`.
        chains: how many, side by side.
        draws: kept of each chain.
        warmup: steps of each chain that tune it.
        thin: keeps every `thin`-th state.
        steps: of the longest trajectory; with tuning="jumps" the most that it may have.
        tuning: "windows" adapts step size and masses (Stan's warm-up); "jumps" finds step size
            and longest trajectory, at unit masses, by Bayesian optimisation of the squared jump
            distance over the root of the longest trajectory, in trials of 30 draws.
        target_acceptance: that "windows" adapts the step size to, in (0, 1).
        coupling: coordinates of the latent functions, "sites", "partial" or "whitened", as of
            `NUTS`.

    Raises:
        InputError: settings outside their range.

    Example:
        >>> import jax, latentgp as lgp
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Poisson())
        >>> rows = lgp.Data([0.0, 1.0, 2.0], [0.0, 2.0, 7.0])
        >>> method = lgp.HMC(chains=2, draws=100, warmup=100)
        >>> result = lgp.fit(model, rows, key=jax.random.key(0), method=method)
        >>> result.posterior.predict([0.0, 2.0]).mean.shape
        (2,)
    """

    representation: Representation = Dense()
    chains: int = eqx.field(static=True, default=4)
    draws: int = eqx.field(static=True, default=1000)
    warmup: int = eqx.field(static=True, default=900)
    thin: int = eqx.field(static=True, default=1)
    steps: int = eqx.field(static=True, default=20)
    tuning: str = eqx.field(static=True, default="windows")
    target_acceptance: float = eqx.field(static=True, default=0.8)
    coupling: str = eqx.field(static=True, default="whitened")

    def __check_init__(self) -> None:
        ranges = {"target_acceptance": "(0, 1)", "steps": "at least 1", "warmup": "at least 1"}
        check_ranges(self, **ranges)
        check_choices(self, tuning=Tuning, coupling=Kind)
        self._check_coordinates(self.coupling)

    @property
    def needs(self) -> Needs:
        return Needs(continuous=True)

    def sampler(self, target: WhiteTarget) -> HMCSampler:
        return HMCSampler.of(
            target,
            warmup=self.warmup,
            target_acceptance=self.target_acceptance,
            coupling=cast(Kind, self.coupling),
            steps=self.steps,
            tuning=cast(Tuning, self.tuning),
        )


class NUTS(SamplingMethod):
    """The no-U-turn sampler (Hoffman & Gelman 2014), jointly of hyper-parameters and latents.

    Any smooth likelihood. The latent functions move in coordinates in which they are nearly
    N(0, I) under the posterior whatever the hyper-parameters are ("sites": the mean and factor of a
    Gaussian approximation, which trajectories follow through the implicit derivative; "partial":
    those of one that is made once, at half the cost a step), or under the prior ("whitened":
    cheaper still, many more steps). `MCMC` moves them in turn, at less a draw.

    With `Inducing` the target is the free-form variational posterior of the inducing variables,
    exp(E log p(y | f)) p(v) (Hensman et al. 2015, eq. 7): no Gaussian is fitted to it.

    Args:
        representation: `Dense()`, `Neighbours(...)` or `Inducing(...)`.
        chains: how many, side by side.
        draws: kept of each chain.
        warmup: steps of each chain that adapt its step size and masses.
        thin: keeps every `thin`-th state.
        augmented: sample the auxiliary variables of a scale mixture too, as Galy-Fajou (2022,
            7.3) compares; seldom of use.
        target_acceptance: that the step size is adapted to, in (0, 1).
        coupling: "sites", "partial" or "whitened".

    Raises:
        InputError: settings outside their range.
    """

    representation: Representation = Dense()
    chains: int = eqx.field(static=True, default=4)
    draws: int = eqx.field(static=True, default=1000)
    warmup: int = eqx.field(static=True, default=500)
    thin: int = eqx.field(static=True, default=1)
    augmented: bool = eqx.field(static=True, default=False)
    target_acceptance: float = eqx.field(static=True, default=0.8)
    coupling: str = eqx.field(static=True, default="whitened")

    def __check_init__(self) -> None:
        check_ranges(self, target_acceptance="(0, 1)", warmup="at least 1")
        check_choices(self, coupling=Kind)
        self._check_coordinates(self.coupling)
        white = 'NUTS(augmented=True) works with white coefficients; leave the coupling "whitened".'
        refuse({white: self.augmented and self.coupling != "whitened"})
        if self.augmented:
            at_rows = Needs(latents_at_rows=True)
            at_rows.check("NUTS(augmented=True)", representation=self.representation)

    @property
    def needs(self) -> Needs:
        return Needs(continuous=True)

    def check(self, model: LatentGP, learns_hyperparameters: bool) -> None:
        likelihood = model.likelihood
        if not self.augmented:
            return
        augmentation = AugmentationRule().chosen(likelihood)
        if isinstance(augmentation, Automatic) and isinstance(likelihood, ScaleMixture):
            law = likelihood.auxiliary_law(np.ones(1))
            if not isinstance(law, TiltedScaleMixture):
                return
        raise InputError(
            f"The auxiliary variables of {type(likelihood).__name__} are discrete or have no "
            "density in closed form, so no trajectory can follow it; use GibbsSampling, or NUTS "
            "without augmented=True."
        )

    def sampler(self, target: WhiteTarget) -> NUTSSampler:
        copies = copies_of(rows_of(target.data)) if self.augmented else None
        return NUTSSampler.of(
            target,
            copies,
            warmup=self.warmup,
            target_acceptance=self.target_acceptance,
            coupling=cast(Kind, self.coupling),
        )
