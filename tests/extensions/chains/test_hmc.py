"""Hamiltonian Monte Carlo: what tuning by jumps finds, and refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.extensions.chains.hmc import Trials

KEY = jax.random.key(0)


@pytest.mark.quick
def test_belief_in_settings_follows_the_trials(x64):
    """Against the formulas of Gaussian-process regression, trials that are not made left out."""
    grid = Trials.grid(20, jnp.float64)
    assert grid.places.shape[1] == 2
    assert float(jnp.min(grid.places)) == 0.0
    assert float(jnp.max(grid.places)) <= 1.0 + 1e-9
    tried, figures = jnp.array([3, 100, 240, 0]), jnp.array([1.0, 5.0, 2.0, 99.0])
    mean, deviation = grid.believed(tried, figures, jnp.asarray(3))
    X, y = np.asarray(grid.places)[[3, 100, 240]], np.array([1.0, 5.0, 2.0])
    y = (y - y.mean()) / y.std()

    def kernel(a, b):
        return np.exp(-0.5 * ((a[:, None] - b) ** 2).sum(axis=2) / 0.25**2)

    gram, cross = kernel(X, X) + 0.1 * np.eye(3), kernel(np.asarray(grid.places), X)
    np.testing.assert_allclose(mean, cross @ np.linalg.solve(gram, y), rtol=1e-9)
    variance = 1 - np.sum(cross * np.linalg.solve(gram, cross.T).T, axis=1)
    np.testing.assert_allclose(deviation, np.sqrt(variance), rtol=1e-7)
    assert mean[100] > mean[240] > mean[3]


@pytest.mark.slow
def test_trajectories_tuned_by_jumps_go_far_and_are_accepted():
    X = np.linspace(0.0, 4.0, 20)
    y = np.random.default_rng(0).poisson(np.exp(np.sin(X))).astype(float)
    model = lgp.LatentGP(lgp.RBF(), lgp.Poisson())
    method = lgp.HMC(POINTS, chains=4, warmup=900, draws=300, tuning="jumps")
    fitted = lgp.fit(model, lgp.Data(X, y), key=KEY, method=method)
    statistics = fitted.posterior.statistics
    assert np.all(statistics["step_size"] > 0.02)
    assert np.all(statistics["longest"] >= 3)
    assert 0.5 < statistics["acceptance_rate"].mean() < 1.0
    assert statistics["n_steps"].max() <= 20
    assert fitted.diagnostics.summary.ess_bulk > 40


POINTS = lgp.Inducing(points=np.linspace(0.0, 4.0, 6)[:, None])


@pytest.mark.quick
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"warmup": 0}, "warmup must be at least 1"),
        ({"tuning": "luck"}, "HMC.tuning must be one of windows, jumps, got 'luck'"),
        ({"coupling": "centred"}, "HMC.coupling must be one of sites"),
        ({"target_acceptance": 1.0}, "HMC.target_acceptance"),
    ],
)
def test_settings_outside_their_range_are_refused(settings, message):
    with pytest.raises(lgp.InputError, match=message):
        lgp.HMC(**settings)


@pytest.mark.quick
@pytest.mark.slow
def test_steps_have_no_gradient():
    data = lgp.Data(np.arange(4.0), np.array([0.0, 1, 2, 1]))
    model = lgp.LatentGP(lgp.RBF(), lgp.RobustMax(3))
    with pytest.raises(lgp.InputError, match="step function"):
        lgp.fit(model, data, key=KEY, method=lgp.HMC())
