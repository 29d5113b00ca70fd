"""Every method that samples: invariance, Geweke's test, agreement with NUTS, same bits."""

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.extensions.chains.couplings.ancillary import Sites
from latentgp.extensions.chains.latents.base import ResidualValue
from latentgp.extensions.chains.methods.elliptical_slice import EllipticalSliceSampler
from latentgp.extensions.chains.testing import check_joint
from latentgp.testing import check_sampler

POINTS = lgp.Inducing(points=np.array([[0.0], [0.8], [1.6], [2.4], [3.0]]))
EVERY_ROW = lgp.LatentNeighbours(11)
SAMPLERS = {
    "elliptical slice": lgp.EllipticalSlice(draws=1500),
    "elliptical slice through points": lgp.EllipticalSlice(draws=1500, representation=POINTS),
    "sites": lgp.MCMC(warmup=400),
    "sites through points": lgp.MCMC(warmup=400, representation=POINTS),
    "sites, hamiltonian": lgp.MCMC(latents="hmc", hyperparameters="hmc", warmup=400),
    "sites, crank-nicolson, slice": lgp.MCMC(
        latents="crank-nicolson", hyperparameters="slice", warmup=400
    ),
    "pseudo-marginal": lgp.MCMC(coupling="pseudo-marginal", samples=3, warmup=400),
    "pseudo-marginal, correlated": lgp.MCMC(
        coupling="pseudo-marginal", samples=2, correlation=0.9, warmup=400
    ),
    "pseudo-marginal, annealed": lgp.MCMC(
        coupling="pseudo-marginal", samples=2, temperatures=3, warmup=400
    ),
    "manifold": lgp.MCMC(coupling="whitened", hyperparameters="manifold-mala", warmup=400),
    "whitened": lgp.MCMC(
        latents="elliptical-slice", coupling="whitened", warmup=400, draws=1500, repeats=5
    ),
    "whitened, auxiliary gradient": lgp.MCMC(
        latents="auxiliary-gradient", coupling="whitened", warmup=400
    ),
    "centred": lgp.MCMC(latents="hmc", coupling="centred", warmup=400),
    "interwoven": lgp.MCMC(coupling="interwoven", warmup=400, repeats=5),
    "surrogate": lgp.MCMC(coupling="surrogate", warmup=400, repeats=5),
    "mala, crank-nicolson": lgp.MCMC(latents="mala", hyperparameters="crank-nicolson", warmup=400),
    "random walk": lgp.MCMC(latents="random-walk", warmup=400, draws=2000, repeats=5),
    "riemannian": lgp.MCMC(
        latents="riemannian-hmc",
        hyperparameters="riemannian-hmc",
        coupling="centred",
        warmup=150,
        draws=400,
        repeats=1,
    ),
    "riemannian, of sites": lgp.MCMC(latents="riemannian-hmc", warmup=150, draws=400, repeats=1),
    "homogeneous metric": lgp.MCMC(latents="homogeneous-hmc", coupling="whitened", warmup=400),
    "partial": lgp.MCMC(coupling="partial", warmup=400),
    "langevin": lgp.MCMC(latents="langevin", warmup=400),
    "nuts of partial centring": lgp.NUTS(coupling="partial", warmup=200, draws=500),
    "hmc": lgp.HMC(warmup=400, draws=800),
    "hmc, tuned by jumps": lgp.HMC(tuning="jumps", warmup=900, draws=800),
    "nuts of sites": lgp.NUTS(coupling="sites", warmup=200, draws=500),
    "nuts": lgp.NUTS(warmup=200, draws=500),
    "through neighbours": lgp.MCMC(EVERY_ROW, warmup=300, draws=500),
    "interwoven through neighbours": lgp.MCMC(
        EVERY_ROW, coupling="interwoven", warmup=300, draws=500
    ),
    "elliptical slice through neighbours": lgp.EllipticalSlice(
        draws=1000, representation=EVERY_ROW
    ),
    "nuts through points": lgp.NUTS(warmup=200, draws=500, representation=POINTS),
}


# Elsewhere are the density of the first, and those with a metric on a law that is known; parts of
# the others are in other combinations.
SLOW = {
    "nuts of sites",
    "nuts of partial centring",
    "hmc",
    "langevin",
    "whitened",
    "whitened, auxiliary gradient",
    "surrogate",
    "riemannian",
    "riemannian, of sites",
    "homogeneous metric",
    "interwoven",
    "sites, hamiltonian",
    "pseudo-marginal",
    "pseudo-marginal, annealed",
    "manifold",
    "sites, crank-nicolson, slice",
    "mala, crank-nicolson",
    "random walk",
    "elliptical slice through points",
    "through neighbours",
    "interwoven through neighbours",
    "elliptical slice through neighbours",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in SAMPLERS]
)
def test_sampler_conforms(name):
    check_sampler(SAMPLERS[name])


class TiltedSampler(EllipticalSliceSampler):
    """One that takes a point whose likelihood is not high enough now and then."""

    def step(self, state, key):
        after, told = super().step(state, key)
        return ResidualValue(0.97 * after.eps, after.value), told


class Tilted(lgp.EllipticalSlice):
    samples_hyperparameters: ClassVar[bool] = False

    def sampler(self, target):
        return TiltedSampler(target)


class Forgetful(lgp.EllipticalSlice):
    """One whose bits depend on how often it was called."""

    calls: ClassVar[list] = []

    def sample(self, *arguments):
        self.calls.append(0)
        chains = super().sample(*arguments)
        return dataclasses.replace(chains, f=chains.f + 1e-9 * len(self.calls))


@pytest.mark.parametrize("wrong", [Tilted(draws=1500), Forgetful(draws=1500)], ids=["tilt", "bits"])
def test_a_wrong_sampler_is_caught(wrong):
    with pytest.raises(AssertionError, match=type(wrong).__name__):
        check_sampler(wrong)


class WithoutVolume(Sites):
    """A coupling that forgets how coordinates stretch with the hyper-parameters."""

    def density(self, target, vector, held, differentiable):
        value, there = super().density(target, vector, held, differentiable)
        roots = jnp.diagonal(there.coordinates.root, axis1=1, axis2=2)
        return value - jnp.sum(jnp.log(roots)), there


class Stretched(lgp.MCMC):
    def sampler(self, target):
        return eqx.tree_at(lambda s: s.couplings, super().sampler(target), (WithoutVolume(),))


@pytest.mark.slow
def test_a_wrong_coupling_is_caught():
    with pytest.raises(AssertionError, match="Stretched"):
        check_sampler(Stretched(warmup=400))


# Effects of three groups and three items, slopes of groups, by coefficients that have all of f.
GROUP, ITEM, X1 = range(3)
SAME = lgp.kernels.SameGroup()
EFFECTS = 0.5 * SAME.on(GROUP) + 0.3 * SAME.on(ITEM) + lgp.Linear(0.2).on(X1) * SAME.on(GROUP)
OF_EFFECTS = lgp.LatentGP(EFFECTS, lgp.Poisson(), lgp.ConstantMean(0.3))
ROWS = np.column_stack([np.arange(9) // 3, np.arange(9) % 3, np.linspace(-1.0, 1.0, 9)])
EACH_PART = lgp.Inducing(features=lgp.inter_domain.PerPart())


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        lgp.MCMC(EACH_PART),
        lgp.NUTS(representation=EACH_PART),
        lgp.MCMC(EACH_PART, latents="elliptical-slice", coupling="whitened"),
    ],
    ids=["sites", "nuts", "whitened"],
)
def test_variances_of_effects_have_their_joint_law(method):
    check_joint(method, OF_EFFECTS, ROWS, chains=96)


@pytest.mark.slow
def test_wrong_variances_of_effects_are_caught():
    with pytest.raises(AssertionError, match="Stretched"):
        check_joint(Stretched(EACH_PART), OF_EFFECTS, ROWS, chains=96)
