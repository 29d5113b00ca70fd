"""Markov chains in blocks: three choices."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax.numpy as jnp

from latentgp.errors import check_choices, check_ranges, refuse
from latentgp.extensions.chains.couplings.ancillary import Partial, Sites, Whitened
from latentgp.extensions.chains.couplings.annealed import Annealed
from latentgp.extensions.chains.couplings.base import Coupling
from latentgp.extensions.chains.couplings.centred import Centred
from latentgp.extensions.chains.couplings.pseudo_marginal import PseudoMarginal
from latentgp.extensions.chains.couplings.surrogate import Surrogate
from latentgp.extensions.chains.hyperparameters.base import HyperMove
from latentgp.extensions.chains.hyperparameters.conjugate import ConjugateVariances
from latentgp.extensions.chains.hyperparameters.crank_nicolson import HyperCrankNicolson
from latentgp.extensions.chains.hyperparameters.emulated import HyperEmulated
from latentgp.extensions.chains.hyperparameters.hamiltonian import HyperHamiltonian
from latentgp.extensions.chains.hyperparameters.manifold import HyperManifoldMALA
from latentgp.extensions.chains.hyperparameters.prior_blocks import PriorBlocks
from latentgp.extensions.chains.hyperparameters.random_walk import HyperRandomWalk
from latentgp.extensions.chains.hyperparameters.riemannian import HyperRiemannian
from latentgp.extensions.chains.hyperparameters.slice_sampling import HyperSlice
from latentgp.extensions.chains.latents.auxiliary_gradient import AuxiliaryGradient
from latentgp.extensions.chains.latents.base import LatentMove
from latentgp.extensions.chains.latents.crank_nicolson import CrankNicolson, RandomWalk
from latentgp.extensions.chains.latents.elliptical_slice import EllipticalSlice
from latentgp.extensions.chains.latents.hamiltonian import Hamiltonian
from latentgp.extensions.chains.latents.langevin import Langevin
from latentgp.extensions.chains.latents.mala import MALA
from latentgp.extensions.chains.latents.riemannian import RiemannianHamiltonian
from latentgp.extensions.chains.latents.rotations import ANTITHETIC, Rotations
from latentgp.extensions.chains.methods.sampling import SamplingMethod
from latentgp.extensions.chains.sweep import SweepSampler
from latentgp.extensions.chains.target import WhiteTarget
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.representations import Dense, Representation
from latentgp.representations.needs import Needs

LATENTS: dict[str, LatentMove] = {
    "rotations": Rotations(),
    "langevin": Langevin(),
    "auxiliary-gradient": AuxiliaryGradient(),
    "crank-nicolson": CrankNicolson(),
    "elliptical-slice": EllipticalSlice(),
    "random-walk": RandomWalk(),
    "mala": MALA(),
    "hmc": Hamiltonian(),
    "riemannian-hmc": RiemannianHamiltonian(),
    "homogeneous-hmc": RiemannianHamiltonian("homogeneous"),
    "identity-hmc": RiemannianHamiltonian("identity"),
}
HYPERPARAMETERS: dict[str, HyperMove] = {
    "random-walk": HyperRandomWalk(),
    "crank-nicolson": HyperCrankNicolson(),
    "emulated": HyperEmulated(),
    "slice": HyperSlice(),
    "hmc": HyperHamiltonian(),
    "riemannian-hmc": HyperRiemannian(),
    "identity-hmc": HyperRiemannian("identity"),
    "manifold-mala": HyperManifoldMALA(),
}
COUPLINGS: dict[str, tuple[Coupling, ...]] = {
    "sites": (Sites(),),
    "partial": (Partial(),),
    "pseudo-marginal": (PseudoMarginal(),),
    "whitened": (Whitened(),),
    "centred": (Centred(),),
    "interwoven": (Centred(), Whitened()),
    "surrogate": (Surrogate(),),
}
_BY_SITES = "sites", "partial", "pseudo-marginal"
_BY_MATRICES = {  # settings that work with dense factors alone
    "coupling": ("pseudo-marginal", "surrogate"),
    "latents": ("auxiliary-gradient", "riemannian-hmc", "homogeneous-hmc", "identity-hmc"),
    "hyperparameters": ("manifold-mala", "riemannian-hmc"),
}
_CURVED = "riemannian-hmc", "homogeneous-hmc"  # metrics of the likelihood's curvature
_OVERHEAD = 20.0  # gradients that a move's share of the factorisations of hyper-parameters costs
_OVERHEAD_HELD = 2.0  # 2.3 of 250 rows, 0.5 of 1,000
_PRIOR_PROPOSALS = 3
_WITHOUT_GRADIENT = "crank-nicolson", "elliptical-slice", "random-walk"


class MCMC(SamplingMethod):
    """Markov chains of latent functions and hyper-parameters, in blocks.

    A sweep moves the hyper-parameters while something of the latent functions is held, then these.
    The couplings: "sites" holds standard normal coordinates of a Gaussian approximation, in which
    the posterior is nearly N(0, I) whatever the hyper-parameters are; "partial" those of sites that
    are made once, for less than half the work; "whitened" those of the prior (ancillary
    augmentation), "centred" f itself (sufficient), "interwoven" one after the other (Yu & Meng
    2011), "surrogate" coordinates given noisy copies of f (Murray & Adams 2010). "pseudo-marginal"
    holds nothing: it integrates the latent functions out by importance sampling (Filippone &
    Girolami 2014). All are exact. With `Inducing` the target is the free-form variational posterior
    of the inducing variables.

    Args:
        representation: `Dense()`, `Neighbours(...)` or `Inducing(...)`.
        latents: "rotations" (trajectories of as many Langevin steps as the warm-up finds best),
            "langevin" (one preconditioned Crank-Nicolson Langevin step), "auxiliary-gradient",
            "crank-nicolson", "elliptical-slice", "random-walk", "mala" or "hmc". Coordinates are
            the masses: with coupling="sites" the curvature of the posterior, with "whitened" that
            of the prior. "riemannian-hmc" has the curvature at f as its metric, "homogeneous-hmc"
            that at a constant f, "identity-hmc" the identity for f.
        hyperparameters: "emulated" (by an emulator of the evidence that the warm-up saw, with
            coupling="sites", "partial" or "pseudo-marginal"), "crank-nicolson", "random-walk",
            "slice", "hmc", "manifold-mala" (simplified manifold Langevin steps, Girolami &
            Calderhead 2011), "riemannian-hmc" (given f, with coupling="centred") or "identity-hmc";
            None for "emulated" where it can be used, else "random-walk".
        coupling: "sites", "partial", "pseudo-marginal", "whitened", "centred", "interwoven" or
            "surrogate"; None for "sites", or for "partial" with `Neighbours`, which takes no
            "pseudo-marginal" and "surrogate".
        chains: how many, side by side.
        draws: kept of each chain.
        warmup: sweeps of each chain that adapt scales, and are thrown away; None for 1,000, or for
            100 of "rotations" where `repeats` is 1 by default: a scale is all that is adapted.
        thin: keeps every `thin`-th state.
        repeats: moves of the latent functions a sweep; None for 5, or for one where
            hyper-parameters are held and coupling="sites" or "partial", in whose coordinates a move
            nearly makes an independent draw, with dense factors.
        samples: of the likelihood, which coupling="sites", "partial" and "pseudo-marginal" average
            over.
        correlation: of its draws from step to step, in [0, 1).
        temperatures: of the pseudo-marginal estimate by annealed importance sampling (Neal 2001),
            which varies less where the Gaussian approximation is poor; 1 for importance sampling.
        conjugate_variance: a sweep also draws variances that scale a kernel and have an
            InverseGamma prior from their law given f (Filippone et al. 2013, A.1), which is far
            quicker than other moves with coupling="centred". Not through `Inducing`.
        prior_proposals: proposals a sweep, at most, of one block of hyper-parameters from its prior
            given the others (independence sampler, Tierney 1994, 2.3.3). A block is an entry, or
            what a joint prior draws at once. Blocks that accept less often than the usual moves
            are dropped in the warm-up; notes of the diagnostics have the rate. Each costs as much
            as another move of hyper-parameters. None for 3 with hyperparameters="emulated",
            else for 0.

    Raises:
        InputError: settings outside their range.

    Example:
        >>> import jax, latentgp as lgp
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Poisson())
        >>> rows = lgp.Data([0.0, 1.0, 2.0], [0.0, 2.0, 7.0])
        >>> method = lgp.MCMC(chains=2, draws=100, warmup=100)
        >>> result = lgp.fit(model, rows, key=jax.random.key(0), method=method)
        >>> result.posterior.predict([0.0, 2.0]).mean.shape
        (2,)
    """

    representation: Representation = Dense()
    latents: str = eqx.field(static=True, default="rotations")
    hyperparameters: str | None = eqx.field(static=True, default=None)
    coupling: str | None = eqx.field(static=True, default=None)
    chains: int = eqx.field(static=True, default=4)
    draws: int = eqx.field(static=True, default=1000)
    warmup: int | None = eqx.field(static=True, default=None)
    thin: int = eqx.field(static=True, default=1)
    repeats: int | None = eqx.field(static=True, default=None)
    samples: int = eqx.field(static=True, default=8)
    correlation: float = eqx.field(static=True, default=0.0)
    temperatures: int = eqx.field(static=True, default=1)
    conjugate_variance: bool = eqx.field(static=True, default=False)
    prior_proposals: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        known = (*HYPERPARAMETERS, None)
        check_choices(self, latents=LATENTS, coupling=(*COUPLINGS, None), hyperparameters=known)
        self._check_matrices()
        least = dict.fromkeys(("repeats", "samples", "temperatures"), "at least 1")
        check_ranges(self, **least, correlation="[0, 1)", prior_proposals="at least 0")
        move, name, coupling = self._hyper_move(), self.hyperparameters, self._coupling
        anneals, marginal = self.temperatures > 1, coupling == "pseudo-marginal"
        sentences = {
            f"MCMC(temperatures={self.temperatures}) anneals the draws of a pseudo-marginal "
            'estimate, each anew; use it with coupling="pseudo-marginal" and no correlation.': (
                anneals and (not marginal or self.correlation)
            ),
            "MCMC(temperatures=...) estimates its error from several samples, got one; use two.": (
                anneals and self.samples < 2
            ),
            'MCMC(coupling="pseudo-marginal") proposes hyper-parameters and draws together, which '
            f'hyperparameters="{name}" does not; use "emulated", "crank-nicolson" or '
            '"random-walk", or coupling="sites".': marginal and not move.proposes_once,
            f'MCMC(hyperparameters="{name}") emulates the evidence by sites, which '
            f'coupling="{coupling}" does not compute; use "sites".': (
                move.emulates and coupling not in _BY_SITES
            ),
            'MCMC(hyperparameters="riemannian-hmc") has a metric of hyper-parameters given f; use '
            f'coupling="centred", not "{coupling}".': (
                name == "riemannian-hmc" and coupling != "centred"
            ),
        }
        refuse(sentences)
        at_rows = Needs(latents_at_rows=True)
        if coupling in ("centred", "interwoven"):
            at_rows.check(f'MCMC(coupling="{coupling}")', representation=self.representation)
        if self.conjugate_variance:
            at_rows.check("MCMC(conjugate_variance=True)", representation=self.representation)

    def _check_matrices(self) -> None:
        if self.representation.traits.dense_factors:
            return
        own, by_sites = self.representation, self._coupling in _BY_SITES
        for name, refused in _BY_MATRICES.items():
            if (got := getattr(self, name)) in refused:
                Needs(dense_factors=True).check(
                    f'MCMC({name}="{got}")',
                    representation=own,
                    instead='coupling="partial", "sites", "whitened", "centred" or "interwoven" '
                    "with other moves than Riemannian, manifold and auxiliary ones, or Dense()",
                )
        if by_sites:
            Needs(coordinates_of_sites=True).check(
                f'MCMC(coupling="{self._coupling}")',
                representation=own,
                instead='"whitened", "centred" or "interwoven", or Dense()',
            )
        if by_sites and self._hyper_move().differentiates:
            Needs(dense_factors=True).check(
                f'MCMC(hyperparameters="{self.hyperparameters}")',
                representation=own,
                instead='"emulated" or "random-walk", or coupling="whitened"',
            )

    @property
    def _coupling(self) -> str:
        traits = self.representation.traits
        by_sites = "sites" if traits.dense_factors else "partial"
        return self.coupling or (by_sites if traits.coordinates_of_sites else "whitened")

    @property
    def needs(self) -> Needs:
        needs_gradient = (
            self.latents not in _WITHOUT_GRADIENT
            or self._coupling in (*_BY_SITES, "surrogate")
            or self._hyper_move().differentiates
        )
        return Needs(positive=True, concave=self.latents in _CURVED, continuous=needs_gradient)

    def settled(self, space: ParameterSpace) -> MCMC:
        dense = self.representation.traits.dense_factors
        one_is_enough = dense and self._coupling in ("sites", "partial") and not space.size
        few = one_is_enough and self.latents == "rotations"
        usual = {"repeats": 1 if one_is_enough else 5, "warmup": 100 if few else 1000}
        missing = {name: own for name, own in usual.items() if getattr(self, name) is None}
        return dataclasses.replace(self, **missing) if missing else self

    def sampler(self, target: WhiteTarget) -> SweepSampler:
        proposals = _PRIOR_PROPOSALS if self._hyper_move().emulates else 0
        proposals = proposals if self.prior_proposals is None else self.prior_proposals
        couplings, settled = COUPLINGS[self._coupling], self.settled(target.space)
        if self._coupling in ("sites", "partial"):
            couplings = (dataclasses.replace(couplings[0], samples=self.samples),)
        if self._coupling == "pseudo-marginal":
            plain = PseudoMarginal(self.samples, self.correlation)
            annealed = Annealed(self.samples, self.temperatures)
            couplings = (annealed if self.temperatures > 1 else plain,)
        draws_variances = self.conjugate_variance and target.space.size
        latents = LATENTS[self.latents]
        if isinstance(latents, Rotations) and target.space.size:
            latents = dataclasses.replace(latents, overhead=_OVERHEAD)
        elif isinstance(latents, Rotations) and settled.repeats == 1:
            latents = dataclasses.replace(latents, turn=ANTITHETIC, overhead=_OVERHEAD_HELD)
        return SweepSampler.of(
            target,
            prior_blocks=PriorBlocks.of(target.space, proposals),
            variances=ConjugateVariances.of(target) if draws_variances else None,
            couplings=couplings,
            latents=latents,
            hyperparameters=self._hyper_move(),
            repeats=settled.repeats,
            warmup=jnp.asarray(settled.warmup),
            chains=self.chains,
        )

    def _hyper_move(self) -> HyperMove:
        usual = "emulated" if self._coupling in _BY_SITES else "random-walk"
        return HYPERPARAMETERS[self.hyperparameters or usual]
