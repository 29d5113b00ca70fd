"""Draws of every kind of posterior in ArviZ."""

import jax
import numpy as np
import pytest

import latentgp as lgp
from arviz_figures import groups_of, loo_of
from latentgp.posteriors import posterior
from latentgp.rows import subsets

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(0, 6, 20))
GROUPS = ["posterior", "posterior_predictive", "log_likelihood", "observed_data", "constant_data"]


@pytest.mark.filterwarnings("ignore")
def test_gaussian_posteriors():
    model = lgp.LatentGP(lgp.RBF(1.0), lgp.Gaussian(0.09))
    data = lgp.Data(X, np.sin(X) + 0.3 * RNG.normal(size=20))
    fit = lgp.fit(model, data, key=KEY, learn_hyperparameters=False)
    found = fit.posterior.to_arviz(data, draws=4000)
    assert groups_of(found) == GROUPS
    f = found.posterior["f"]
    assert f.dims == ("chain", "draw", "row", "latent")
    assert f.shape == (1, 4000, 20, 1)
    marginals = fit.posterior.predict_f(X)
    np.testing.assert_allclose(f.mean(("chain", "draw"))[:, 0], marginals.mean, atol=0.02)
    predictive = fit.posterior.predict(X)
    replicates = found.posterior_predictive["y"].var(("chain", "draw"))
    np.testing.assert_allclose(replicates, predictive.variance, rtol=0.15)
    np.testing.assert_allclose(found.posterior["X"], X)
    # Noise is Gaussian, and the posterior exact: so is what ArviZ makes of its draws.
    exact = fit.leave_one_out()
    np.testing.assert_allclose(loo_of(found).pointwise, exact.log_density, atol=0.15)
    with pytest.raises(lgp.InputError, match=r"to_arviz\(data\)"):
        fit.posterior.to_arviz()


@pytest.mark.slow
def test_hyperparameters_that_differ_are_there():
    model = lgp.LatentGP(lgp.RBF(1.0), lgp.Gaussian(0.09))
    data = lgp.Data(X, np.sin(X) + 0.3 * RNG.normal(size=20))
    fit = lgp.fit(model, data, key=KEY, method=lgp.Integrated(lgp.ExactGP()))
    posterior = fit.posterior.to_arviz(data).posterior
    marginal = fit.posterior.hyperparameter_marginals["kernel.lengthscale"]
    drawn = posterior["kernel.lengthscale"]
    assert drawn.shape == (1, 1000)
    assert float(drawn.mean()) == pytest.approx(marginal.mean, rel=0.1)
    assert "likelihood.noise_variance" in posterior


def test_of_many_rows_as_many_are_there_as_can_be(monkeypatch):
    monkeypatch.setattr(subsets, "_WATCHED_NUMBERS", 1)
    monkeypatch.setattr(posterior, "_DRAWN_ROWS", 150)
    X = np.linspace(0, 6, 400)
    model, data = lgp.LatentGP(lgp.RBF(1.0), lgp.Gaussian(0.09)), lgp.Data(X, np.sin(X))
    fit = lgp.fit(model, data, key=KEY, learn_hyperparameters=False)
    rows = fit.posterior.to_arviz(data, draws=3).posterior["row"].values
    assert len(rows) == 150
    assert (rows[0], rows[-1]) == (0, 399)


def test_rows_that_do_not_count_are_not_there():
    model = lgp.LatentGP(lgp.RBF(1.0), lgp.Gaussian(0.09))
    weights = np.where(np.arange(20) == 3, 0.0, 2.0)
    data = lgp.Data(X, np.sin(X), weights=weights)
    fit = lgp.fit(model, data, key=KEY, learn_hyperparameters=False)
    found = fit.posterior.to_arviz(data, draws=5)
    assert found.posterior["row"].values.tolist() == [*range(3), *range(4, 20)]
    f, y = found.posterior["f"].values[0, :, :, 0], np.delete(data.y, 3)
    expected = -0.5 * (y - f) ** 2 / 0.09 - 0.5 * np.log(2 * np.pi * 0.09)
    np.testing.assert_allclose(found.log_likelihood["y"].values[0], 2 * expected, rtol=1e-6)
