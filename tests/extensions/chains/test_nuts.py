"""The no-U-turn sampler in coordinates of sites: its density, positions, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.support.white_targets import log_density, target_of

import latentgp as lgp
from latentgp.extensions.chains import hmc
from latentgp.extensions.chains.hmc import JointState, NUTSSampler
from latentgp.extensions.chains.joint import JointPosition

KEY = jax.random.key(0)


@pytest.fixture
def sampler(x64):
    target = target_of("poisson")
    return NUTSSampler.of(target, None, warmup=1, target_acceptance=0.8, coupling="sites")


def test_the_density_is_that_of_the_white_coefficients(sampler):
    for seed in range(3):
        key_vector, key_eps = jax.random.split(jax.random.key(seed))
        vector = sampler.target.centre + 0.5 * jax.random.normal(key_vector, (3,))
        eps = jax.random.normal(key_eps, (1, 7))
        expected = log_density(sampler.target, vector, sampler.coordinates(vector), eps)
        found = sampler.log_density(JointPosition(vector, eps, jnp.zeros(0)))
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_position_is_the_one_it_was_moved_to(sampler):
    import blackjax

    start = JointPosition(sampler.target.centre, jnp.zeros((1, 7)), jnp.zeros(0))
    state = JointState(blackjax.nuts.init(start, sampler.log_density), {})
    position = sampler.position(state)._replace(white=jnp.arange(7.0)[None] / 5)
    moved = sampler.position(sampler.moved(state, position))
    np.testing.assert_allclose(moved.white, position.white, atol=1e-9)


@pytest.mark.slow
def test_held_hyper_parameters_are_followed_in_coordinates_that_stay():
    model = lgp.LatentGP(lgp.RBF(), lgp.Poisson())
    data = lgp.Data(np.linspace(0, 3, 8), np.array([1.0, 3, 4, 4, 1, 0, 0, 1]))
    method = lgp.NUTS(coupling="sites", chains=2, warmup=100, draws=200)
    settings = {"key": KEY, "learn_hyperparameters": False}
    fitted = lgp.fit(model, data, method=method, **settings)
    near = lgp.fit(model, data, method=lgp.VariationalInference(), **settings)
    np.testing.assert_allclose(
        fitted.posterior.f.mean((0, 1))[:, 0], near.posterior.mean_f(data.X), atol=0.2
    )
    assert float(fitted.posterior.statistics["n_steps"].mean()) < 8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"coupling": "centred"}, "must be one of sites, partial"),
        ({"coupling": "sites", "augmented": True}, "works with white coefficients"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, message):
    with pytest.raises(lgp.InputError, match=message):
        lgp.NUTS(**settings)


@pytest.mark.slow
@pytest.mark.parametrize("deepest", [10, 1])
def test_trajectories_that_are_cut_off_are_noted(deepest, monkeypatch):
    jax.clear_caches()
    monkeypatch.setattr(hmc, "_DEEPEST", deepest)
    X = np.linspace(0.0, 4.0, 8)
    model = lgp.LatentGP(lgp.RBF(), lgp.Bernoulli())
    method = lgp.NUTS(chains=2, warmup=50, draws=20)
    found = lgp.fit(
        model, lgp.Data(X, (X > 2.0) * 1.0), key=jax.random.key(0), method=method
    ).diagnostics
    assert any("had not turned" in note for note in found.notes) == (deepest == 1)
    jax.clear_caches()
