"""Chains of hyper-parameters beside quadrature of their exact posterior."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest
from numpyro.distributions import InverseGamma, LogNormal
from scipy.stats import invgamma, lognorm, multivariate_normal

import latentgp as lgp

X = np.linspace(0.0, 3.0, 6)
Y = np.array([0.4, 1.1, 0.2, -0.8, -0.3, 0.9])
NOISE = 0.2
PRIORS = {"kernel.variance": InverseGamma(3.0, 2.0), "kernel.lengthscale": LogNormal(0.0, 0.5)}
METHODS = {
    f"manifold, {coupling}": lgp.MCMC(hyperparameters="manifold-mala", coupling=coupling)
    for coupling in ("sites", "whitened", "centred", "surrogate")
}


@pytest.fixture(scope="module")
def expected():
    """Means and standard deviations of the logs of variance and length-scale."""
    logs = np.linspace(-3.5, 4.0, 151), np.linspace(-3.0, 3.0, 121)
    squares = (X[:, None] - X) ** 2
    weights = np.zeros((151, 121))
    for (i, a), (j, b) in itertools.product(enumerate(logs[0]), enumerate(logs[1])):
        C = np.exp(a) * np.exp(-0.5 * squares / np.exp(2 * b)) + NOISE * np.eye(6)
        weights[i, j] = multivariate_normal(np.zeros(6), C).logpdf(Y) + a + b
        weights[i, j] += invgamma(3.0, scale=2.0).logpdf(np.exp(a)) + lognorm(0.5).logpdf(np.exp(b))
    weights = np.exp(weights - weights.max())
    weights /= weights.sum()
    moments = []
    for axis, values in enumerate(logs):
        marginal = weights.sum(axis=1 - axis)
        mean = marginal @ values
        moments.append((mean, np.sqrt(marginal @ (values - mean) ** 2)))
    return moments


@pytest.mark.parametrize("name", METHODS)
def test_hyperparameters_have_their_posterior(name, expected):
    model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(NOISE))
    method = dataclasses.replace(METHODS[name], draws=3000, warmup=500)
    fitted = lgp.fit(
        model,
        lgp.Data(X, Y),
        key=jax.random.key(1),
        method=method,
        priors=PRIORS,
        frozen=("likelihood",),
    )
    assert float(np.mean(fitted.posterior.statistics["hyperparameter_acceptance_rate"])) > 0.2
    for path, (mean, deviation) in zip(PRIORS, expected, strict=True):
        draws = np.log(fitted.posterior.hyperparameters[path])
        parts = draws.reshape(4 * 20, 150)
        error = parts.mean(axis=1).std() / np.sqrt(80)
        assert error < 0.15 * deviation
        assert abs(draws.mean() - mean) < 4.5 * error
        squares = ((parts - mean) ** 2).mean(axis=1)
        assert abs(squares.mean() - deviation**2) < 4.5 * squares.std() / np.sqrt(80)
