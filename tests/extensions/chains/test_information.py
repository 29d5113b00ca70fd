"""Metrics of manifold moves: Fisher information by its definition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.support.white_targets import target_of

from latentgp.extensions.chains.coordinates import ModelAtRows
from latentgp.extensions.chains.information import (
    information_of_latents,
    information_of_map,
    information_of_targets,
    with_prior,
)
from latentgp.site_inference.search.algorithm import prior_mean


def law_of(target, vector, latent):
    """Mean and covariance of one latent function at the rows."""
    model = target.space.to_model(vector)
    features = target.whitening(model).features
    mean = prior_mean(model, target.data)[:, latent]
    return mean, features[latent % len(features)].T @ features[latent % len(features)]


def fisher(law, vector):
    """Of N(mean, covariance), by derivatives of both."""
    _, covariance = law(vector)
    mean_slope, slope = jax.jacrev(law)(vector)
    solved = jnp.einsum("ab,bcp->pac", jnp.linalg.inv(covariance), slope)
    of_mean = mean_slope.T @ jnp.linalg.solve(covariance, mean_slope)
    return of_mean + 0.5 * jnp.einsum("iab,jba->ij", solved, solved)


@pytest.mark.parametrize(
    ("name", "inducing"),
    [pytest.param("student", False, marks=pytest.mark.slow), ("softmax", False), ("poisson", True)],
)
def test_of_targets(x64, name, inducing):
    target = target_of(name, inducing)
    latents = target.space.model.likelihood.latent_size
    precision = np.random.default_rng(0).gamma(1.0, size=(7, latents))
    vector = target.centre + 0.1
    expected = 0.0
    for latent in range(latents):

        def law(vector, latent=latent):
            mean, covariance = law_of(target, vector, latent)
            return mean, covariance + jnp.diag(1 / precision[:, latent])

        expected = expected + fisher(law, vector)
    found = information_of_targets(target, vector, jnp.asarray(precision))
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", ["student", "softmax"])
def test_of_latents(x64, name):
    target = target_of(name)
    vector = target.centre + 0.1
    latents = target.space.model.likelihood.latent_size
    expected = sum(
        fisher(lambda v, latent=latent: law_of(target, v, latent), vector)
        for latent in range(latents)
    )
    np.testing.assert_allclose(
        information_of_latents(target, vector), expected, rtol=1e-6, atol=1e-8
    )


@pytest.mark.parametrize("inducing", [False, True], ids=["dense", "inducing"])
def test_of_the_map(x64, inducing):
    target = target_of("poisson", inducing)
    vector = target.centre + 0.1
    coefficients = 4 if inducing else 7
    white = jax.random.normal(jax.random.key(0), (1, coefficients))

    def f(vector):
        return target.conditional(target.space.to_model(vector), white).mean

    model = target.space.to_model(vector)
    _, precision = ModelAtRows.of(target, model).sites(f(vector))
    slope = jax.jacrev(f)(vector)[:, 0]
    expected = slope.T @ (precision * slope)
    np.testing.assert_allclose(information_of_map(target, vector, white), expected, rtol=1e-7)


def test_the_law_tells_nothing_about_the_likelihood(x64):
    target = target_of("gaussian")
    fisher = information_of_latents(target, target.centre)
    matrix, known = with_prior(target, target.centre, fisher)
    silent = [label.startswith("likelihood") for label, _ in target.space.entries()]
    np.testing.assert_array_equal(known, np.logical_not(silent))
    np.testing.assert_array_equal(np.diag(matrix)[silent], 0.0)
    assert np.all(np.diag(matrix)[known] > 0.1)
