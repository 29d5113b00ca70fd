"""Ascents of mixtures: diagonal means, mirror images, draws of several latent functions."""

import jax
import numpy as np
import pytest

import latentgp as lgp
from bounded import check_bounds_are_told

KEY = jax.random.key(0)
X = np.linspace(0.0, 3.0, 12)[:, None]


def test_a_diagonal_mean_is_that_of_the_exact_posterior_though_values_are_correlated():
    """The best diagonal Gaussian has its mean and the diagonal of its precision."""
    X = np.linspace(0.0, 3.0, 6)[:, None]
    y, noise = np.sin(X[:, 0]), 0.01
    model = lgp.LatentGP(lgp.RBF(1.5, 1.0), lgp.Gaussian(noise))
    method = lgp.BlackBoxVI(covariance="diagonal", coordinates="values")
    fit = lgp.fit(model, lgp.Data(X, y), key=KEY, method=method, learn_hyperparameters=False)
    K = np.exp(-0.5 * ((X - X.T) / 1.5) ** 2)
    f = fit.posterior.predict_f(X)
    np.testing.assert_allclose(f.mean, K @ np.linalg.solve(K + noise * np.eye(6), y), atol=1e-3)
    assert fit.diagnostics.site_updates < 10
    assert fit.diagnostics.converged


@pytest.mark.slow
def test_components_in_mirrored_modes_are_draws_of_both():
    """A network with no mean of its weights does not know the sign of function and weights."""
    likelihood = lgp.GPRegressionNetwork([[0.0], [0.0]], noise_variance=0.05)
    model = lgp.LatentGP(lgp.RBF(1.0, 1.0), likelihood)
    y = np.stack([1.5 + 0 * X[:, 0], -1.0 - 0.2 * X[:, 0]], axis=1)
    method = lgp.BlackBoxVI(components=2)
    fit = lgp.fit(model, lgp.Data(X, y), key=KEY, method=method, learn_hyperparameters=False)
    np.testing.assert_allclose(fit.diagnostics.finding("terms").weights, 0.5, atol=1e-3)
    draws = fit.posterior.sample_f(X, key=KEY, number=200)
    assert draws.shape == (200, 12, 3)
    positive = draws[:, :, 0].mean(axis=1) > 0
    assert 0.35 < positive.mean() < 0.65
    products = draws[:, :, :1] * draws[:, :, 1:]
    np.testing.assert_allclose(products.mean(axis=0), y, atol=0.4)


@pytest.mark.usefixtures("x64")
def test_an_ascent_that_is_cut_off_says_so(monkeypatch):
    from latentgp.extensions.black_box.mixtures import search

    monkeypatch.setattr(search, "_MOST_ALONE", 2)
    model = lgp.LatentGP(lgp.RBF(), lgp.Poisson())
    data = lgp.Data(X, np.arange(12.0))
    fit = lgp.fit(model, data, key=KEY, method=lgp.BlackBoxVI(), learn_hyperparameters=False)
    assert not fit.diagnostics.converged
    assert "still rose after 2 steps" in fit.diagnostics.verdict


@pytest.mark.usefixtures("x64")
def test_a_search_through_ascents_that_are_cut_off_says_so(monkeypatch):
    """Hyper-parameters stand still, but the mixture at the best of them does not."""
    from latentgp.extensions.black_box.mixtures import search

    model = lgp.LatentGP(lgp.RBF(), lgp.Poisson())
    data = lgp.Data(X, np.arange(12.0))
    whole = lgp.fit(model, data, key=KEY, method=lgp.BlackBoxVI())
    assert whole.diagnostics.converged
    monkeypatch.setattr(search, "_MOST_STEPS", 1)
    fit = lgp.fit(model, data, key=KEY, method=lgp.BlackBoxVI(), max_evaluations=100)
    assert not fit.diagnostics.converged
    assert "still rose after 1 steps" in fit.diagnostics.verdict


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("steps", "ended"), [(40, "too few"), (400, "still moved")])
def test_steps_that_end_while_the_bound_rises_have_not_converged(steps, ended):
    """Steps of next to no length have far to go."""
    data = lgp.Data(X, 20 * np.arange(12.0))
    method = lgp.BlackBoxVI(estimator="reparameterised", steps=steps, delay=1e4)
    model = lgp.LatentGP(lgp.RBF(), lgp.Poisson())
    fit = lgp.fit(model, data, key=KEY, method=method, learn_hyperparameters=False)
    assert not fit.diagnostics.converged
    assert ended in fit.diagnostics.ending


@pytest.mark.usefixtures("x64")
def test_a_line_search_that_fails_ends_a_search_only_where_the_gradient_promises_nothing(
    monkeypatch,
):
    """Along the wrong gradient no step raises the bound, whatever there is to be gained."""
    from latentgp.extensions.black_box.mixtures import search

    right = search.profiled

    def wrong(*given):
        at = right(*given)
        return at._replace(gradient=-at.gradient)

    model, data = lgp.LatentGP(lgp.RBF(), lgp.Poisson()), lgp.Data(X, np.arange(12.0))
    monkeypatch.setattr(search, "profiled", wrong)
    fit = lgp.fit(model, data, key=KEY, method=lgp.BlackBoxVI())
    assert fit.diagnostics.ending == search.NO_STEP
    assert not fit.diagnostics.converged
    assert "ended early because no step along the gradient" in fit.diagnostics.verdict


@pytest.mark.usefixtures("x64")
def test_groups_in_turn_that_no_step_raises_have_not_converged(monkeypatch):
    """A round gains nothing where every line search fails."""
    from latentgp.extensions.black_box.mixtures import gradient

    right = gradient._value_and_gradient

    def wrong(*given):
        value, slope = right(*given)
        return value, jax.tree.map(lambda own: -own, slope)

    model, data = lgp.LatentGP(lgp.RBF(), lgp.Poisson()), lgp.Data(X, np.arange(12.0))
    method = lgp.BlackBoxVI(optimiser="alternating")
    whole = lgp.fit(model, data, key=KEY, method=method, learn_hyperparameters=False)
    assert whole.diagnostics.converged
    monkeypatch.setattr(gradient, "_value_and_gradient", wrong)
    fit = lgp.fit(model, data, key=KEY, method=method, learn_hyperparameters=False)
    assert not fit.diagnostics.converged
    assert "but no step along the gradient" in fit.diagnostics.verdict


def test_a_search_that_ends_at_its_bounds_says_so(monkeypatch):
    check_bounds_are_told(lgp.BlackBoxVI(), monkeypatch)
