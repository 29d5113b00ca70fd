"""Proposals of blocks of hyper-parameters from their prior."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import Gamma, ImproperUniform, InverseGamma, constraints
from scipy import stats

import latentgp as lgp
from latentgp.extensions.chains.hyperparameters.base import HyperLaw, WarmupHistory
from latentgp.extensions.chains.hyperparameters.prior_blocks import PriorBlocks, PriorLaw, Tally
from latentgp.extensions.chains.posterior import SampledPosterior
from latentgp.hyperparameters.blocks import blocks_given
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.setup.shared_log_normal import SharedLogNormal

pytestmark = pytest.mark.usefixtures("x64")

PRIORS = {"kernel.lengthscale": Gamma(2.0, 2.0), "kernel.variance": InverseGamma(3.0, 2.0)}
MODEL = lgp.LatentGP(lgp.RBF(0.5, 1.5), lgp.Bernoulli())
CHAINS, STEPS = 4000, 40


def test_blocks_are_what_a_prior_draws_at_once():
    weights = lgp.PerLatentSum((lgp.RBF(), lgp.Matern(1.5), lgp.RBF(0.1)), np.ones((2, 3)))
    model = lgp.LatentGP(weights, lgp.Softmax(2))
    joint = {"kernel.weights": lgp.HierarchicalDirichlet(3, 2)}
    space = ParameterSpace(model, frozen=("kernel.parts",), priors=joint)
    np.testing.assert_array_equal(space.blocks(), [[1, 1, 0, 0], [0, 0, 1, 1]])
    alone = ParameterSpace(model, frozen=("kernel.parts",), priors={"kernel.weights": Gamma(2, 2)})
    np.testing.assert_array_equal(alone.blocks(), np.eye(6))
    alike = {"kernel.lengthscale": SharedLogNormal(np.zeros(2), 1.5, 0.5)}
    space = ParameterSpace(lgp.LatentGP(lgp.RBF([1.0, 2.0]), lgp.Bernoulli()), priors=alike)
    np.testing.assert_array_equal(space.blocks(), np.eye(3)[:2])


def test_what_cannot_be_drawn_is_no_block():
    flat = {"kernel.lengthscale": ImproperUniform(constraints.positive, (), ())}
    space = ParameterSpace(MODEL, priors=flat)
    assert not len(space.blocks())
    vector = jnp.asarray(space.to_vector())
    np.testing.assert_array_equal(space.drawn_anew(vector, jax.random.key(0)), vector)
    assert PriorBlocks.of(space, 3) is None


@pytest.mark.parametrize(
    "law",
    [
        lgp.HierarchicalDirichlet(3, latents=2, rate=0.7),
        SharedLogNormal(np.array([0.2, -0.3]), 0.8, 0.6),
    ],
)
def test_blocks_of_a_joint_law_leave_it(law):
    """Blocks are alike, which a draw of one alone must keep."""
    values = old = law.sample(jax.random.key(0), (5000,))
    for number in range(4):
        keys = jax.random.split(jax.random.key(number + 1), len(values))
        anew = jax.vmap(lambda value, key: blocks_given(law, value, key))(values, keys)
        values = values.at[:, number % 2].set(anew[:, number % 2])

    def figures(values):
        one, two = np.sum(np.asarray(values).reshape(5000, 2, -1) ** 2, axis=2).T
        one, two = np.log(one), np.log(two)
        return np.column_stack([one, two, one * two, one**2, two**2])

    before, after = figures(old), figures(values)
    assert np.corrcoef(before[:, 0], before[:, 1])[0, 1] > 0.3
    spread = np.sqrt((before.var(axis=0) + after.var(axis=0)) / len(before))
    assert np.all(np.abs(before.mean(axis=0) - after.mean(axis=0)) < 4.5 * spread)


def test_a_known_density_stays():
    """From draws of the prior to those of a law with two independent parameters."""
    space = ParameterSpace(MODEL, priors=PRIORS)
    blocks = PriorBlocks.of(space, 1)
    assert blocks is not None

    def log_likelihood(vector):
        return -2.0 * jnp.sum((vector - jnp.array([0.3, -0.2])) ** 2)

    def density(vector):
        return space.log_prior(vector) + log_likelihood(vector), vector

    seen = WarmupHistory(jnp.zeros(2), jnp.eye(2))
    law = HyperLaw(density, lambda vector, there: None, seen)  # pyright: ignore
    prior = PriorLaw(space.log_prior, space.drawn_anew)

    def step(vector, key):
        key_block, key_step = jax.random.split(key)
        block = jax.random.randint(key_block, (), 0, 2)
        moved = blocks.step(law, law.at(vector), prior, block, key_step)
        return moved.at.vector, moved.acceptance

    def chain(start, key):
        return jax.lax.scan(step, start, jax.random.split(key, STEPS))

    starts = jnp.asarray(space.prior_vectors(jax.random.key(1), CHAINS))
    keys = jax.random.split(jax.random.key(0), CHAINS)
    ends, acceptance = jax.jit(jax.vmap(chain))(starts, keys)
    assert 0.3 < float(acceptance.mean()) < 0.9
    axis = np.linspace(-12.0, 12.0, 20_001)
    laws = stats.gamma(2.0, scale=0.5), stats.invgamma(3.0, scale=2.0)
    for column, (own, centre) in enumerate(zip(laws, (0.3, -0.2), strict=True)):
        prior_density = np.gradient(own.cdf(np.exp(axis)), axis)
        weights = prior_density * np.exp(-2.0 * (axis - centre) ** 2)
        weights /= weights.sum()
        for power in (1, 2):
            expected = weights @ axis**power
            spread = np.sqrt(weights @ axis ** (2 * power) - expected**2)
            found = np.mean(np.asarray(ends[:, column]) ** power)
            assert abs(found - expected) < 4.5 * spread / np.sqrt(CHAINS)


def test_blocks_that_accept_less_than_usual_moves_are_dropped():
    proposed = jnp.array([[30.0, 30.0, 30.0], [40.0, 40.0, 40.0]])
    accepted = proposed * jnp.array([0.6, 0.1, 0.4])
    tally = jax.vmap(lambda _: Tally.none(3))(jnp.arange(2))
    np.testing.assert_array_equal(jax.vmap(Tally.due)(tally, jnp.array([4, 5])), [1, 0])
    tally = tally._replace(proposed=proposed, accepted=accepted, usual=jnp.array([0.2, 0.4]))
    decided = tally.decided(3)
    np.testing.assert_array_equal(decided.kept, [[True, False, True]] * 2)
    np.testing.assert_array_equal(jax.vmap(Tally.due)(decided, jnp.array([4, 5])), [2, 2])
    np.testing.assert_array_equal(tally.decided(1).number, [1, 1])
    none = tally._replace(usual=jnp.array([0.7, 0.8])).decided(3)
    np.testing.assert_array_equal(none.number, [0, 0])
    never = tally._replace(usual=jnp.zeros(2), accepted=0 * accepted).decided(3)
    np.testing.assert_array_equal(never.number, [0, 0])
    every = PriorBlocks(np.eye(3, dtype=bool), 2)  # without a warm-up that decides
    assert [int(every.tally(jnp.array(warmup)).number) for warmup in (0, 9)] == [2, -1]


@pytest.mark.slow
@pytest.mark.parametrize("coupling", ["sites", "pseudo-marginal", "interwoven"])
def test_without_data_chains_have_the_prior(coupling):
    data = lgp.Data(np.arange(4.0), np.array([0.0, 1, 1, 0]), weights=np.full(4, 1e-9))
    method = lgp.MCMC(
        coupling=coupling, draws=1000, warmup=200, repeats=1, samples=2, prior_proposals=2
    )
    result = lgp.fit(MODEL, data, key=jax.random.key(0), method=method, priors=PRIORS)
    assert isinstance(result.posterior, SampledPosterior)
    statistics = result.posterior.statistics
    assert statistics["prior_accepted"].sum() > 0.99 * statistics["prior_proposed"].sum()
    assert any("100% of" in note for note in result.diagnostics.notes)
    laws = stats.gamma(2.0, scale=0.5), stats.invgamma(3.0, scale=2.0)
    for path, law in zip(PRIORS, laws, strict=True):
        draws = result.posterior.hyperparameters[path].ravel()
        levels = np.array([0.05, 0.5, 0.95])
        found = [np.mean(draws < law.ppf(level)) for level in levels]
        # One block of two is drawn anew by each of two proposals: three sweeps a draw at most.
        spread = np.sqrt(3 * levels * (1 - levels) / draws.size)
        np.testing.assert_array_less(np.abs(found - levels), 4.5 * spread)
