"""Scores of predictions on rows whose target is known."""

import jax
import numpy as np
import pytest

import latentgp as lgp
from latentgp.surfaces.evaluation import metrics
from latentgp.surfaces.tables.scores import _crps

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
