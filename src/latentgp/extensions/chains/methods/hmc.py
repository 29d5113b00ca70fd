"""Hamiltonian Monte Carlo."""

from __future__ import annotations

from typing import cast

import equinox as eqx

from latentgp.errors import check_choices, check_ranges
from latentgp.extensions.chains.coordinates import Kind
from latentgp.extensions.chains.hmc import HMCSampler, Tuning
from latentgp.extensions.chains.methods.sampling import SamplingMethod
from latentgp.extensions.chains.target import WhiteTarget
from latentgp.representations import Dense, Representation
from latentgp.representations.needs import Needs


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
