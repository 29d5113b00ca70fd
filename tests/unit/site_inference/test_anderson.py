"""Anderson acceleration of site updates, and updates that are taken back."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.likelihoods import Marginals
from latentgp.site_inference.search.anderson import History, Update, accelerated
from latentgp.site_inference.search.profiled_bound import converge, initial_sites
from latentgp.sites.gaussian import GaussianSites

ROWS, LATENTS = 3, 2
SIZE = ROWS * LATENTS


def sites_of(vector):
    linear, precision = np.reshape(vector, (2, ROWS, LATENTS))
    return GaussianSites(jnp.asarray(linear), jnp.asarray(precision), jnp.zeros(ROWS))


def vector_of(sites):
    return np.concatenate([np.ravel(sites.linear), np.ravel(sites.precision)])


@pytest.fixture
def contraction(x64):
    """A slow linear map of rank four about a fixed point, its precisions well above zero."""
    generator = np.random.default_rng(0)
    basis = np.linalg.qr(generator.normal(size=(2 * SIZE, 4)))[0]
    matrix = basis @ np.diag([0.99, 0.97, -0.95, 0.9]) @ basis.T
    fixed = np.concatenate([generator.normal(size=SIZE), generator.uniform(5, 6, SIZE)])
    return lambda vector: fixed + matrix @ (vector - fixed), fixed


def iterate(function, fixed, number, unit=1.0):
    """Distances from the fixed point, where f is measured in so many units."""
    units = np.concatenate([np.full(SIZE, 1 / unit), np.full(SIZE, 1 / unit**2)])
    shape = (ROWS, LATENTS)
    mean, variance = jnp.full(shape, 0.3 * unit), jnp.full(shape, 0.5 * unit**2)
    start = fixed + 0.1 * np.random.default_rng(1).normal(size=2 * SIZE)
    sites, before = sites_of(start * units), None
    history, distances = History.empty(sites), []
    for _ in range(number):
        target = sites_of(function(vector_of(sites) / units) * units)
        update = Update(sites, target, Marginals(mean, variance))
        history = history if before is None else history.between(before, update)
        sites, before = accelerated(history, update, 1.0), update
        distances.append(np.linalg.norm(vector_of(sites) / units - fixed))
    return np.array(distances)


def test_a_linear_map_of_rank_four_is_solved_in_five_secants(contraction):
    distances = iterate(*contraction, 9)
    assert distances[0] > 0.1  # a plain update
    assert distances[-1] < 1e-6


def test_units_of_the_latents_do_not_matter(contraction):
    distances = iterate(*contraction, 5)
    np.testing.assert_allclose(iterate(*contraction, 5, unit=1e3), distances, rtol=1e-4)
    np.testing.assert_allclose(iterate(*contraction, 5, unit=1e-3), distances, rtol=1e-4)


def test_without_history_it_is_a_damped_step(x64):
    old, new = sites_of(np.arange(12.0)), sites_of(np.arange(12.0)[::-1])
    update = Update(old, new, Marginals(jnp.zeros((ROWS, LATENTS)), jnp.ones((ROWS, LATENTS))))
    stepped = accelerated(History.empty(old), update, 0.3)
    for one, other in zip(stepped, old.damped(new, 0.3), strict=True):
        np.testing.assert_array_equal(one, other)


def test_precisions_stay_at_zero_or_above(x64):
    down = np.concatenate([np.zeros(SIZE), np.full(SIZE, 1.0)])
    marginals = Marginals(jnp.zeros((ROWS, LATENTS)), jnp.ones((ROWS, LATENTS)))
    first = Update(sites_of(2.0 * down), sites_of(1.9 * down), marginals)
    second = Update(sites_of(1.9 * down), sites_of(1.81 * down), marginals)
    history = History.empty(first.sites).between(first, second)
    # The secant's end is at 1.0; a step from there in the wrong direction is not taken past zero.
    np.testing.assert_allclose(vector_of(accelerated(history, second, 1.0)), down, atol=1e-8)
    far = second._replace(target=sites_of(-50.0 * down))
    assert np.all(np.asarray(accelerated(History.empty(first.sites), far, 1.0).precision) == 0)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", [lgp.Softmax(7), lgp.LogisticSoftmax(7)])
def test_a_wide_prior_settles_where_small_plain_steps_lead(x64, likelihood):
    inputs = np.random.default_rng(0).normal(size=(150, 2))
    y = np.digitize(inputs[:, 0], np.quantile(inputs[:, 0], np.arange(1, 7) / 7))
    data = lgp.Data(inputs, y.astype(float)).to_device()
    model = lgp.LatentGP(lgp.RBF(3.0, variance=1000.0), likelihood)
    method = lgp.VariationalInference(lgp.Inducing(points=inputs[:20]))
    algorithm = method.algorithm(model)
    start = initial_sites(algorithm, model, data)
    converged = converge(
        dataclasses.replace(algorithm, tolerance=1e-9, max_updates=2_000), model, data, start
    )
    # It ends where no step raises the bound any more; a step of 0.02 lowers it by this / 35.
    assert converged.change < 1e-4
    # Rounding of the start, by 1e-12, makes that 400 to 900 updates of the softmax.
    assert converged.updates < 2_000

    def plain(step_size, number):
        rule = dataclasses.replace(algorithm.rule, step_size=step_size)
        stepping = dataclasses.replace(algorithm, rule=rule)
        state = stepping.resume(model, data, start)
        return jax.lax.scan(lambda s, _: stepping.step(s, data), state, length=number)[1].bound

    assert converged.bound > plain(0.05, 1000)[-1]
    if isinstance(likelihood, lgp.Softmax):  # by whole steps plain updates swing
        assert np.min(np.diff(plain(1.0, 50))) < -1e4
