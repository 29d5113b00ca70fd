"""Moves of hyper-parameters: a known density stays, whatever the emulator makes of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from latentgp.extensions.chains.hyperparameters.base import HyperLaw, WarmupHistory
from latentgp.extensions.chains.hyperparameters.crank_nicolson import HyperCrankNicolson
from latentgp.extensions.chains.hyperparameters.emulated import Emulator, HyperEmulated
from latentgp.extensions.chains.hyperparameters.hamiltonian import HyperHamiltonian
from latentgp.extensions.chains.hyperparameters.random_walk import HyperRandomWalk
from latentgp.extensions.chains.latents.hamiltonian import Hamiltonian

CHAINS, STEPS = 2000, 60


def log_density(vector):
    """Skewed and bent: a Gumbel law, and a Gaussian about half its square."""
    return vector[0] - jnp.exp(vector[0]) - 2 * (vector[1] - 0.5 * vector[0] ** 2) ** 2


def moments_on_a_grid():
    axis = np.linspace(-12, 4, 801), np.linspace(-4, 60, 3201)
    grid = np.stack(np.meshgrid(*axis, indexing="ij"))
    weights = np.exp(np.asarray(log_density(jnp.asarray(grid))))
    weights /= weights.sum()
    mean = (grid * weights).sum((1, 2))
    return mean, np.sqrt((((grid - mean[:, None, None]) ** 2) * weights).sum((1, 2)))


def seen_with(emulator_of):
    seen = WarmupHistory(jnp.array([-0.5, 0.8]), jnp.array([[1.2, 0.0], [-0.5, 1.3]]))
    return seen._replace(emulator=emulator_of(seen))


def of_evaluations(number):
    """An emulator of so many evaluations, spread over some standard deviations."""

    def fit(seen):
        noise = 1.8 * jax.random.normal(jax.random.key(1), (number, 2))
        vectors = seen.mean + noise @ seen.root.T
        return Emulator.fit(seen, vectors, jax.vmap(log_density)(vectors))

    return fit


@pytest.mark.parametrize(
    ("move", "emulator"),
    [
        (HyperRandomWalk(), lambda seen: None),
        (HyperCrankNicolson(), lambda seen: None),
        (HyperEmulated(), lambda seen: Emulator.none(5, seen.mean)),
        (HyperEmulated(), of_evaluations(14)),
        (HyperEmulated(), of_evaluations(80)),
    ],
)
def test_a_known_density_stays(x64, move, emulator):
    seen = seen_with(emulator)

    def density(vector):
        return log_density(vector), vector

    def information(vector, there):
        raise NotImplementedError  # none of these moves asks

    law = HyperLaw(density, information, seen)

    def step(state, key):
        moved = move.step(law, law.at(state), jnp.array(0.7), key)
        return moved.at.vector, moved.acceptance

    def chain(key):
        key_start, key_steps = jax.random.split(key)
        first = jnp.log(jax.random.exponential(key_start))
        second = 0.5 * first**2 + 0.5 * jax.random.normal(jax.random.fold_in(key_start, 1))
        start = jnp.stack([first, second])
        return jax.lax.scan(step, start, jax.random.split(key_steps, STEPS))

    ends, acceptance = jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(0), CHAINS))
    mean, sd = moments_on_a_grid()
    assert 0.05 < float(acceptance.mean()) < 0.99
    np.testing.assert_array_less(np.abs(ends.mean(0) - mean), 4.5 * sd / CHAINS**0.5)
    # Exact starts that some move spoils would show in a few thousand chains.
    quantiles = np.quantile(np.exp(np.asarray(ends[:, 0])), [0.1, 0.5, 0.9])
    expected = -np.log1p(-np.array([0.1, 0.5, 0.9]))
    errors = np.sqrt(0.09 / CHAINS), np.sqrt(0.25 / CHAINS), np.sqrt(0.09 / CHAINS)
    slopes = np.exp(expected)  # one over the density at the quantile
    np.testing.assert_array_less(np.abs(quantiles - expected), 4.5 * slopes * errors)


def test_an_emulator_follows_what_it_was_fitted_to(x64):
    seen = seen_with(of_evaluations(300))
    noise = jax.random.normal(jax.random.key(2), (500, 2))
    vectors = seen.mean + noise @ seen.root.T
    truth = jax.vmap(log_density)(vectors)
    found = jax.vmap(lambda v: seen.emulator(seen.standardised(v)))(vectors)
    error = np.asarray(found - truth)
    likely = np.asarray(truth > truth.max() - 6)
    assert bool(seen.emulator.fitted)
    assert np.std(error[likely]) < 0.05


def test_moves_by_an_exact_emulator_lie_on_the_other_side_of_the_mean(x64):
    """Of a normal law a turn by h gives the correlation cos(h): -0.31 on average, by leapfrogs
    -0.33, times nine moves in ten; walks of scale zero stay."""

    def normal(vector):
        return -0.5 * jnp.sum(vector**2)

    seen = WarmupHistory(jnp.zeros(3), jnp.eye(3))
    vectors = 1.5 * jax.random.normal(jax.random.key(1), (400, 3))
    seen = seen._replace(emulator=Emulator.fit(seen, vectors, jax.vmap(normal)(vectors)))
    law = HyperLaw(lambda vector: (normal(vector), None), lambda *_: None, seen)

    def step(vector, key):
        moved = HyperEmulated().step(law, law.at(vector), jnp.zeros(()), key)
        return moved.at.vector, moved.acceptance

    starts = jax.random.normal(jax.random.key(2), (CHAINS, 3))
    keys = jax.random.split(jax.random.key(3), CHAINS)
    ends, acceptance = jax.jit(jax.vmap(step))(starts, keys)
    assert acceptance.mean() > 0.95
    products = np.asarray(starts * ends)
    correlation = products.mean()
    error = products.mean(axis=1).std() / CHAINS**0.5
    assert abs(correlation - (0.1 - 0.9 * 0.32)) < 0.05 + 4 * error


def test_an_emulator_of_nothing_finite_is_not_fitted(x64):
    seen = seen_with(lambda seen: None)
    emulator = Emulator.fit(seen, jnp.ones((20, 2)), jnp.full(20, -jnp.inf))
    assert not bool(emulator.fitted)
    np.testing.assert_array_equal(emulator.coefficients, 0.0)


@pytest.mark.parametrize(("scale", "diverges"), [(1e-3, False), (1.0, True)])
def test_trajectories_that_diverge_are_told(x64, scale, diverges):
    """Of hyper-parameters and latent functions, beside which a quartic well is steep."""
    start, key = jnp.ones(2), jax.random.key(0)

    def well(place):
        return -1e4 * jnp.sum(place**4)

    law = HyperLaw(
        lambda vector: (well(vector), vector), lambda *_: None, WarmupHistory(start, jnp.eye(2))
    )
    moved = HyperHamiltonian().step(law, law.at(start), jnp.asarray(scale), key)
    assert bool(moved.failed) == diverges
    move = Hamiltonian()
    begun = move.init(well, start[None])
    assert bool(move.step(well, begun, jnp.asarray(scale), key)[1].failed) == diverges
