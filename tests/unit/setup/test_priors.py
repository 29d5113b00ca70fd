"""Default priors, and where a search may start."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import LogNormal
from scipy.stats import multivariate_normal

import latentgp as lgp
from latentgp.hyperparameters.base import parameters
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.setup.priors import around, other_starts, scales, typical_start, weak_priors
from latentgp.setup.shared_log_normal import SharedLogNormal

LAW = SharedLogNormal(np.array([0.3, -1.0, 2.0]), 1.5, 0.4)


def test_a_shared_log_normal_law_is_normal_in_logarithms(x64):
    logarithms = np.random.default_rng(0).normal(size=(5, 3))
    covariance = 1.5**2 + 0.4**2 * np.eye(3)
    expected = multivariate_normal(LAW.loc, covariance).logpdf(logarithms)
    expected -= logarithms.sum(axis=1)  # the change of variables
    np.testing.assert_allclose(LAW.log_prob(jnp.exp(logarithms)), expected, rtol=1e-12)


def test_draws_of_a_shared_log_normal_law_have_its_moments(x64):
    logarithms = np.log(LAW.sample(jax.random.key(0), (40_000,)))
    np.testing.assert_allclose(logarithms.mean(axis=0), LAW.loc, atol=0.04)
    covariance = 1.5**2 + 0.4**2 * np.eye(3)
    np.testing.assert_allclose(np.cov(logarithms.T), covariance, atol=0.08)


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    return lgp.Data(rng.normal(size=(30, 3)) * [1.0, 100.0, 1e-3], rng.normal(size=30))


def priors_of(kernel, data):
    model = lgp.LatentGP(kernel, lgp.Gaussian())
    return model, weak_priors(model, scales(model, data))


def test_length_scales_of_several_inputs_are_shrunk_to_each_other_in_their_units(table):
    _, priors = priors_of(lgp.RBF(np.ones(3)), table)
    law, spread = priors["kernel.lengthscale"], table.X.std(axis=0)
    alike = law.log_prob(5 * spread) + np.sum(np.log(5 * spread))
    apart = np.array([1.0, 5.0, 25.0]) * spread
    assert alike - law.log_prob(apart) - np.sum(np.log(apart)) > 5
    # All longer by the same factor costs what it did for one.
    steps = np.array([0.0, np.log(10.0)])
    medians = np.exp(law.loc) * np.exp(steps)[:, None]
    fall = -np.diff(law.log_prob(medians) + np.sum(np.log(medians), axis=1))
    np.testing.assert_allclose(fall, steps[1] ** 2 / 2 / 3.0, rtol=0.1)


def test_one_length_scale_has_a_log_normal_prior(table):
    for kernel in (lgp.RBF(), lgp.RBF(np.ones(1)).on(1)):
        _, priors = priors_of(kernel, table)
        assert all(isinstance(prior, LogNormal) for prior in priors.values())


def test_priors_of_rows_that_go_on_are_around_the_models_values(table):
    model, priors = priors_of(lgp.RBF([2.0, 3.0, 4.0], variance=5.0), table)
    moved = around(parameters(model), priors)
    np.testing.assert_allclose(moved["kernel.lengthscale"].loc, np.log([2.0, 3.0, 4.0]))
    assert isinstance(moved["kernel.lengthscale"], SharedLogNormal)
    np.testing.assert_allclose(moved["kernel.variance"].loc, np.log(5.0))


def test_further_starts_are_rougher_with_less_noise_and_noisier(table):
    model = lgp.LatentGP(lgp.RBF([2.0, 3.0, 4.0]), lgp.Gaussian(noise_variance=0.5))
    space = ParameterSpace(model)
    scale = scales(model, table)
    rough, noisy = map(space.to_model, other_starts(space, scale, table.X))
    assert np.all(rough.kernel.lengthscale < model.kernel.lengthscale)
    assert rough.kernel.variance == pytest.approx(1.0)
    assert rough.likelihood.noise_variance < 0.5 < noisy.likelihood.noise_variance
    np.testing.assert_allclose(noisy.kernel.lengthscale, model.kernel.lengthscale)
    frozen = ParameterSpace(model, frozen=["kernel.lengthscale"])
    assert other_starts(frozen, scale, table.X) == ()
    no_noise = ParameterSpace(model, frozen=["likelihood"])
    assert len(other_starts(no_noise, scale, table.X)) == 1
    same = space.to_model(other_starts(space, scale, np.ones((4, 3)))[0])
    assert np.all(same.kernel.lengthscale < model.kernel.lengthscale)


@pytest.mark.parametrize("rows", [40, 600])
def test_the_search_finds_a_rough_function_under_a_trend(rows):
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0, 10, rows))[:, None]
    y = np.sin((rows / 8) ** 0.5 * 3 * X[:, 0]) + X[:, 0] / 2 + 0.1 * rng.normal(size=rows)
    fitted = lgp.GPRegressor(random_state=0).fit(X, y)
    # The mode of a smooth function with much noise has the deviation of the sine, 0.7.
    assert fitted.model_.likelihood.noise_variance < 0.1**2 * 4
    runs, evaluations = np.unique(fitted.history_.restart, return_counts=True)
    assert dict(zip(runs, evaluations, strict=True)).keys() == {-4, -3, -2, 0}


def test_the_search_finds_a_smooth_function_that_a_rough_one_is_ahead_of():
    """One cell of a grid is large, with noise; six rows a cell differ in what does not matter."""
    rng = np.random.default_rng(24)
    X = np.stack(np.meshgrid(*map(np.arange, (5, 5, 6)), indexing="ij"), -1).reshape(-1, 3) * 1.0
    large = (X[:, 0] == 3) & (X[:, 1] == 3)
    y = 0.3 * np.abs(rng.normal(size=150)) * (rng.uniform(size=150) < 0.3)
    y = np.where(large, 5 + 1.3 * rng.normal(size=150), y)
    default, told = (
        lgp.GPRegressor(kernel, random_state=0).fit(X, y)
        for kernel in (None, lgp.RBF([0.8, 0.8, 10.0]))
    )
    assert float(default.posterior_.log_evidence) > float(told.posterior_.log_evidence) - 1


@pytest.mark.parametrize("factor", [1.0, 1000.0])
def test_a_start_at_typical_lengthscales_is_as_near_as_is_asked(table, factor):
    """Deep models have one unless theirs are near, so that units of the inputs matter less."""
    data = lgp.Data(factor * table.X[:, :1], table.y)
    model = lgp.LatentGP(lgp.RBF(2.5), lgp.Gaussian())
    space, scale = ParameterSpace(model), scales(model, data)
    assert (typical_start(space, scale) is None) == (factor == 1.0)
    found = space.to_model(typical_start(space, scale, 1.5)).kernel.lengthscale
    np.testing.assert_allclose(found, scale.inputs[0], rtol=1e-5)
    typical = ParameterSpace(lgp.LatentGP(lgp.RBF(found), lgp.Gaussian()))
    assert typical_start(typical, scale, 1.5) is None


def test_one_length_scale_of_several_inputs_starts_at_a_typical_distance(table):
    """An input that hardly varies changes no distance, and so nothing."""
    for columns in ([0, 1], [0, 1, 2]):
        data = lgp.Data(table.X[:, columns], table.y)
        model = lgp.LatentGP(lgp.RBF(1e-3), lgp.Gaussian())
        space, scale = ParameterSpace(model), scales(model, data)
        found = space.to_model(typical_start(space, scale)).kernel.lengthscale
        np.testing.assert_allclose(found, np.hypot(*scale.inputs[:2]), rtol=1e-5)
