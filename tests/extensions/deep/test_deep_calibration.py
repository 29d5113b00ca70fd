"""Simulation-based calibration of two-layer models: true f has a uniform rank among the draws."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.extensions.chains.target import Position
from latentgp.extensions.deep.inference.family import Architecture
from latentgp.extensions.deep.inference.samplers import HiddenSlices, ScaledSGHMC, WeightNUTS
from latentgp.extensions.deep.inference.targets import ProcessTarget, WeightTarget
from latentgp.extensions.deep.models import Layout
from latentgp.hyperparameters.base import parameters
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.testing.calibration import Calibration, check_ranks

KEY = jax.random.key(5)
NOISE = 0.2
INPUTS = np.linspace(-1.7, 1.7, 12)[:, None]
PLACES = jnp.arange(len(INPUTS))
DRAWS = 19
LAYERS = [lgp.Layer(lgp.RBF(1.0), 1)]
MODEL = lgp.DeepGP(lgp.RBF(0.8), lgp.Gaussian(NOISE), layers=LAYERS, feed_inputs=False)


def space_and_rows(noise, y=None):
    """Of the model, its hyper-parameters held."""
    model = lgp.replace(MODEL, {"likelihood.noise_variance": noise})
    space = ParameterSpace(model, frozen=tuple(parameters(model)))
    rows = lgp.Data(INPUTS, np.zeros(len(INPUTS))).to_device()
    return space, rows if y is None else eqx.tree_at(lambda rows: rows.y, rows, y)


class Weights:
    """Random features that all data sets share."""

    def __init__(self, make, integrates, noise=NOISE):
        self.make, self.integrates, self.noise = make, integrates, noise
        self.architecture = Architecture.of(MODEL, INPUTS, 6, None, "fixed", KEY)

    def target(self, integrates, y=None):
        space, rows = space_and_rows(self.noise, y)
        return WeightTarget.of(space, rows, self.architecture, integrates=integrates)

    def simulate(self, key):
        """Latent functions at the rows from the prior."""
        target = self.target(integrates=False)
        white = jax.random.normal(key, (1, target.size))
        return target.draw(Position(jnp.zeros(0), white), key, PLACES).f[:, 0]

    def sampler(self, y):
        """Chains given targets."""
        return self.make(self.target(self.integrates, y))


class Processes:
    """The covariances themselves."""

    def simulate(self, key):
        """Latent functions at the rows from the prior."""
        key_hidden, key_f = jax.random.split(key)
        target = self.sampler(jnp.zeros(len(INPUTS))).target
        hidden = target.hidden(jax.random.normal(key_hidden, (1, len(INPUTS))))
        gram = MODEL.kernel.symmetric_gram(hidden) + 1e-8 * jnp.eye(len(INPUTS))
        return jnp.linalg.cholesky(gram) @ jax.random.normal(key_f, (len(INPUTS),))

    def sampler(self, y):
        """Chains given targets."""
        space, rows = space_and_rows(NOISE, y)
        return HiddenSlices(ProcessTarget.of(space, Layout.of(MODEL, INPUTS), rows))


def ranks(family, *, warmup, thin, replications):
    """Ranks of f from the prior among draws given targets, of so many data sets."""

    def count_below(key):
        key_f, key_noise, key_start, key_run = jax.random.split(key, 4)
        f = family.simulate(key_f)
        y = f + jnp.sqrt(NOISE) * jax.random.normal(key_noise, f.shape)
        sampler = family.sampler(y)

        def draw(state, key):
            keys = jax.random.split(key, thin)
            state, _ = jax.lax.scan(lambda s, k: (sampler.step(s, k)[0], None), state, keys)
            return state, sampler.record(state, key, PLACES).f[:, 0]

        keys = jax.random.split(key_run, warmup // thin + DRAWS)
        _, draws = jax.lax.scan(draw, sampler.init(key_start), keys)
        return jnp.sum(draws[-DRAWS:] < f, axis=0)

    counts = jax.jit(lambda keys: jax.lax.map(count_below, keys))(
        jax.random.split(KEY, replications)
    )
    ties = np.random.default_rng(0).uniform(size=counts.shape)
    below = ((np.asarray(counts) + ties) / (DRAWS + 1))[..., None]
    return Calibration(below, np.ones(replications, bool))


def trajectories(target):
    return WeightNUTS(target, 150, 0.8)


def gradients(target):
    return ScaledSGHMC(target, 100, 2000, jnp.asarray(0.05), jnp.asarray(0.05))


FAMILIES = {
    "trajectories": (Weights(trajectories, integrates=True), 0, 8),
    "trajectories, all weights": (Weights(trajectories, integrates=False), 0, 8),
    "stochastic gradients": (Weights(gradients, integrates=False), 3000, 100),
    "slices": (Processes(), 300, 30),
}


@pytest.mark.slow
def test_trajectories_are_calibrated(x64):
    family, warmup, thin = FAMILIES["trajectories"]
    check_ranks(ranks(family, warmup=warmup, thin=thin, replications=40), "DeepMCMC")


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_chains_are_calibrated(x64, name):
    family, warmup, thin = FAMILIES[name]
    check_ranks(ranks(family, warmup=warmup, thin=thin, replications=200), name)


@pytest.mark.slow
def test_chains_of_another_noise_are_caught(x64):
    family = Weights(trajectories, integrates=True, noise=0.25 * NOISE)
    with pytest.raises(AssertionError, match="is not calibrated"):
        check_ranks(ranks(family, warmup=0, thin=8, replications=200), "too sure")
