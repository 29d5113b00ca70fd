"""Scores of predictions on rows whose target is known."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binom, kstest

import latentgp as lgp
from latentgp.likelihoods.base import JointMarginals, Marginals
from latentgp.likelihoods.joint import jointly
from latentgp.posteriors.components import Law
from latentgp.posteriors.predictive import _mean_of, _moments, _quantiles_of_few
from latentgp.surfaces.evaluation import metrics
from latentgp.surfaces.evaluation.draws import LatentDraws, scores_of_draws
from latentgp.surfaces.evaluation.row_scores import RowScores, mixed
from latentgp.surfaces.tables.scores import _crps, distances, spread_evenly

pytestmark = pytest.mark.usefixtures("x64")
RNG = np.random.default_rng(0)
LAWS = {
    "Gaussian": (lgp.Gaussian(0.1), RNG.normal(size=40)),
    "LogNormal": (lgp.LogNormal(0.8), np.exp(RNG.normal(size=40))),
    "StudentT": (lgp.StudentT(0.3, degrees_of_freedom=2.5), RNG.standard_t(2.5, 40)),
    "Hurdle": (lgp.Hurdle(lgp.Gamma(2.0)), np.maximum(RNG.normal(size=40), 0.0)),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n == "Hurdle")) for n in LAWS]
)
def test_crps_by_distribution_functions_is_that_of_many_quantiles(name):
    likelihood, y = LAWS[name]
    X = RNG.uniform(0, 3, (40, 1))
    model = lgp.LatentGP(lgp.RBF(), likelihood)
    method, key = lgp.VariationalInference(), jax.random.key(0)
    fit = lgp.fit(model, lgp.Data(X, y), key=key, method=method, learn_hyperparameters=False)
    predictive, seen = fit.posterior.predict(X), RNG.random(40) < 0.8
    levels = (np.arange(199) + 0.5) / 199
    expected = metrics.crps_quantiles(y[seen], predictive.quantiles(levels)[seen])
    assert np.mean(_crps(y[seen], predictive, seen)) == pytest.approx(expected, rel=1e-3)


def test_crps_of_a_mixture_is_not_that_of_its_moments():
    X, y = np.linspace(0, 3, 20)[:, None], np.sin(np.arange(20.0))
    parts = []
    for noise in (0.01, 4.0):
        model, key = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(noise)), jax.random.key(0)
        data, held = lgp.Data(X, y), {"learn_hyperparameters": False}
        parts.append(lgp.fit(model, data, key=key, method=lgp.ExactGP(), **held).posterior)
    both, counts = lgp.Posterior.mixture(parts, [0.5, 0.5]), np.ones(20)
    for posterior in (parts[0], both):
        predictive, seen = posterior.predict(X), np.ones(20, bool)
        estimator: Any = SimpleNamespace(posterior_=posterior)
        found = distances(estimator, predictive, y, seen, counts)["CRPS"]
        levels = (np.arange(999) + 0.5) / 999
        expected = metrics.crps_quantiles(y, predictive.quantiles(levels))
        assert found == pytest.approx(expected, rel=3e-3)


def test_deviance_of_counts_among_trials_is_the_binomial():
    X, trials = np.linspace(0, 3, 20)[:, None], np.full(20, 10.0)
    y = np.round(5 + 4 * np.sin(np.arange(20.0)))
    model, key = lgp.LatentGP(lgp.RBF(), lgp.Binomial()), jax.random.key(0)
    data, held = lgp.Data(X, y, trials=trials), {"learn_hyperparameters": False}
    posterior = lgp.fit(model, data, key=key, method=lgp.Laplace(), **held).posterior
    estimator: Any = SimpleNamespace(posterior_=posterior)
    predictive = posterior.predict(X, trials=trials)
    found = distances(estimator, predictive, y, np.ones(20, bool), np.ones(20))
    saturated = binom.logpmf(y, 10, y / 10) - binom.logpmf(y, 10, predictive.mean / 10)
    assert found["binomial deviance"] == pytest.approx(2 * np.mean(saturated))


ATOMS = {
    "Tweedie": lgp.Tweedie(),
    "Hurdle": lgp.Hurdle(lgp.Gamma(2.0), 0.4),
    "ZeroOneInflated": lgp.ZeroOneInflated(lgp.Beta(), 0.5, ones=0.3),
}


@pytest.mark.parametrize("name", ATOMS)
def test_transforms_of_the_true_law_are_uniform_though_some_values_have_a_mass(name):
    law, f = ATOMS[name], np.full((2000, 1), 0.2)
    keys = jax.random.split(jax.random.key(3), 2000)
    y = np.asarray(jax.vmap(lambda key, f: law.sample(key, f, {}))(keys, f))
    assert np.isin(y, law.atoms).mean() > 0.1
    scores = scores_of_draws(LatentDraws(f[None], law, False), y, {})
    assert kstest(spread_evenly(scores.below[0], scores.up_to[0]), "uniform").pvalue > 0.01
    at = np.isin(y, law.atoms)
    np.testing.assert_allclose(scores.below[0][y == 0], 0.0, atol=1e-12)
    np.testing.assert_array_equal(scores.below[0][~at], scores.up_to[0][~at])


def test_transforms_of_rows_observed_from_a_time_on_are_given_that_it_was_exceeded():
    y = np.random.default_rng(0).exponential(size=3000)
    entry = np.random.default_rng(1).exponential(size=3000)
    y, entry = y[y > entry], entry[y > entry]
    f = np.zeros((1, len(y), 1))
    law = LatentDraws(f, lgp.Censored(lgp.Weibull(1.0)), False)
    scores = scores_of_draws(law, y, {"entry": entry})
    assert kstest(scores.up_to[0], "uniform").pvalue > 0.01
    np.testing.assert_array_equal(scores.below, scores.up_to)


def test_components_without_weight_say_nothing_though_infinite():
    log_weights = np.array([-np.inf, np.log(0.25), np.log(0.75)])
    found = _mean_of(jnp.array([[np.inf], [1.0], [3.0]]), jnp.asarray(log_weights))
    np.testing.assert_allclose(found, [2.5])
    means, variances = np.array([[np.inf], [1.0], [3.0]]), np.array([[np.inf], [1.0], [1.0]])
    scores = mixed(RowScores(means, None, None, means, variances), log_weights[:, None])
    np.testing.assert_allclose((scores.mean, scores.variance), [[2.5], [1.75]])
    every = mixed(RowScores(means, None, None, means, variances), np.log(np.full((3, 1), 1 / 3)))
    assert np.all(np.isposinf((every.mean, every.variance)))
    law = Law(lgp.LogNormal(0.5), jnp.asarray(log_weights), False, True)
    mean, variance = jnp.array([[[800.0], [0.0], [0.1]]]), jnp.full((1, 3, 1), 0.1)
    assert np.all(np.isfinite(_moments(law, (), mean, variance, {})))


def test_quantiles_of_a_mixture_are_at_an_atom_where_it_has_them():
    # A quarter of the law is at each end, of the first component a tenth.
    few, many = (lgp.ZeroOneInflated(lgp.Beta(), share, ones=0.5) for share in (0.2, 0.8))
    both = jax.tree.map(lambda *leaves: jnp.stack(leaves), few, many)
    law = Law(both, jnp.log(jnp.array([0.5, 0.5])), own=True, by_quadrature=True)
    mean, variance = jnp.array([[[0.0], [1.0]]]), jnp.full((1, 2, 1), 0.1)
    levels = jnp.array([0.05, 0.2, 0.24, 0.76, 0.9])
    found = _quantiles_of_few(law, levels, mean, variance, {})[0]
    np.testing.assert_array_equal(found, [0, 0, 0, 1, 1])
    inside = _quantiles_of_few(law, jnp.array([0.3]), mean, variance, {})[0, 0]
    assert 0 < inside < 1


def test_coupled_latents_keep_the_atoms():
    law = lgp.Hurdle(lgp.Gamma(2.0), 0.4, varying=True)
    mean, variance = jnp.array([[0.2, -0.3]]), jnp.array([[0.3, 0.2]])
    apart = Marginals(mean, variance)
    levels = jnp.array([0.05, 0.3, 0.6, 0.9])
    whitened, *given = jointly(law, JointMarginals.independent(apart), {})
    found = whitened.predictive_quantiles(levels, *given)
    np.testing.assert_allclose(found, law.predictive_quantiles(levels, apart, {}), rtol=1e-3)
    assert found[0, 0] == 0
    assert np.all(found >= 0)
