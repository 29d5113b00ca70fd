"""Ascents of mixtures: diagonal means, mirror images, draws of several latent functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from bounded import check_bounds_are_told
from latentgp.extensions.black_box.mixtures.expectations import Expectations
from latentgp.likelihoods.base import Marginals
from latentgp.sites.gaussian import Rows

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


EXACT = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.05))


@pytest.mark.usefixtures("x64")
def test_linear_covariances_by_plain_gradients_are_the_exact_posterior():
    """Theorem 2 of Bonilla, Krauth & Dezfouli, with a number a row and as many coefficients."""
    data, settings = lgp.Data(X, np.sin(X[:, 0])), {"key": KEY, "learn_hyperparameters": False}
    exact = lgp.fit(EXACT, data, method=lgp.ExactGP(), **settings).posterior
    method = lgp.BlackBoxVI(optimiser="alternating", covariance="linear")
    found = lgp.fit(EXACT, data, method=method, **settings).posterior
    assert float(found.log_evidence) == pytest.approx(float(exact.log_evidence), abs=1e-2)
    np.testing.assert_allclose(found.predict_f(X).variance, exact.predict_f(X).variance, rtol=0.1)


def test_starts_are_at_the_rows_as_they_are_given():
    """Steps of next to no length leave the mean where it starts; a row is there twice."""
    rows = np.array([5.0, 1.0, 3.0, 0.0, 4.0, 1.0])
    start = np.array([1.0, -1.0, 2.0, 0.5, -2.0, -1.0])
    settings = {"estimator": "score", "steps": 1, "delay": 1e6, "start_variance": 1e-4}
    method = lgp.BlackBoxVI(start_means=start[None, :, None], **settings)
    model, data = lgp.LatentGP(lgp.RBF(), lgp.Bernoulli()), lgp.Data(rows, start > 0)
    fit = lgp.fit(model, data, key=KEY, method=method, learn_hyperparameters=False)
    np.testing.assert_allclose(fit.posterior.predict_f(rows).mean, start, atol=0.01)
    with pytest.raises(lgp.InputError, match="inducing points that are known"):
        lgp.BlackBoxVI(lgp.Inducing(3), start_means=np.zeros((1, 3, 1)))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    "settings",
    [
        {"optimiser": "alternating"},
        {"optimiser": "adadelta", "steps": 3},
        {"representation": lgp.Inducing(4), "batch_size": 6, "steps": 3},
    ],
    ids=["alternating", "adadelta", "batches"],
)
def test_a_history_has_the_bound_and_the_log_prior_apart(settings):
    data = lgp.Data(X, np.sin(X[:, 0]))
    history = lgp.fit(EXACT, data, key=KEY, method=lgp.BlackBoxVI(**settings)).history
    assert np.all(np.abs(np.subtract(history.value, history.bound)) > 1e-3)


def test_plain_gradients_tell_of_values_that_failed():
    """Half of the draws of every row fail, though a tenth of the rows would be enough."""

    class Failing(lgp.Likelihood):
        def log_prob(self, y, f, side):
            return jnp.where(f[0] > 0, jnp.nan, -((y - f[0]) ** 2))

    model, data = lgp.LatentGP(lgp.RBF(), Failing()), lgp.Data(X, np.sin(X[:, 0]))
    method = lgp.BlackBoxVI(optimiser="adadelta", estimator="score", steps=2)
    fit = lgp.fit(model, data, key=KEY, method=method, learn_hyperparameters=False)
    assert any("were not finite and counted as the lowest" in w for w in fit.diagnostics.warnings)


def test_values_along_parameters_are_those_of_the_expectations():
    """Where a draw has no value both take the lowest of its row."""

    class Failing(lgp.Likelihood):
        def log_prob(self, y, f, side):
            return jnp.where(f[0] > 0, -jnp.inf, -((y - f[0]) ** 2))

    rows, ones = Rows(jnp.zeros(3), None, {}), jnp.ones((3, 1))
    own = Expectations("score", 100), (Failing(), rows, Marginals(0 * ones, ones), KEY)
    np.testing.assert_allclose(own[0].worth(*own[1]), own[0](*own[1]).value, rtol=1e-5)
