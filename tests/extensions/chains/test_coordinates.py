"""Coordinates by sites: the density that they carry, whatever the sites are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.support.white_targets import MODELS, X, log_density, target_of

import latentgp as lgp
from latentgp.extensions.chains.coordinates import (
    ModelAtRows,
    _mode,
    coordinates_at,
    coordinates_of_sites,
)
from slow import slow_parameters


@pytest.mark.parametrize("inducing", [False, True], ids=["dense", "inducing"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("sites", ["laplace", "any", *slow_parameters("whitened")])
def test_the_density_is_that_of_the_white_coefficients(x64, name, inducing, sites):
    target = target_of(name, inducing)
    vector = target.centre + 0.1
    model = target.space.to_model(vector)
    anchor = jnp.zeros((7, model.likelihood.latent_size))
    if sites == "any":
        rng = np.random.default_rng(0)
        linear, precision = rng.normal(size=anchor.shape), rng.gamma(1.0, size=anchor.shape)
        coordinates = coordinates_of_sites(ModelAtRows.of(target, model), linear, precision)
    else:
        kind = "sites" if sites == "laplace" else "whitened"
        coordinates = coordinates_at(target, model, kind, anchor)
    eps = jax.random.normal(jax.random.key(1), coordinates.root.shape[:2])
    own = coordinates.log_evidence + coordinates.residual(target, model, eps)
    own = own + target.space.log_prior(vector) - 0.5 * jnp.sum(eps**2)
    np.testing.assert_allclose(own, log_density(target, vector, coordinates, eps), rtol=1e-9)
    np.testing.assert_allclose(coordinates.of_white(coordinates.white(eps)), eps, atol=1e-9)
    f = target.conditional(model, coordinates.white(eps)).mean
    np.testing.assert_allclose(coordinates.centre + coordinates.shift(eps), f, atol=1e-9)


def test_the_residual_of_gaussian_noise_is_zero_and_the_evidence_exact(x64):
    target = target_of("gaussian")
    model = target.space.model
    coordinates = coordinates_at(target, model, "sites", jnp.full((7, 1), 5.0))
    eps = jax.random.normal(jax.random.key(1), (1, 7))
    np.testing.assert_allclose(coordinates.residual(target, model, eps), 0.0, atol=1e-9)
    evidence = lgp.fit(
        model,
        lgp.Data(X, MODELS["gaussian"][1], weights=np.asarray(target.data.weights)),
        key=jax.random.key(0),
        method=lgp.ExactGP(),
        learn_hyperparameters=False,
    ).posterior.log_evidence.value
    np.testing.assert_allclose(coordinates.log_evidence, evidence, rtol=1e-8)


def test_one_variational_update_from_the_mode_leaves_less_to_the_residual(x64):
    """Far less where the posterior is skewed; the certificate is that of the mode."""
    target = target_of("poisson")
    model = target.space.model
    coordinates = coordinates_at(target, model, "sites", jnp.full((7, 1), 3.0))
    assert coordinates.decrement < 1e-9
    eps = jax.random.normal(jax.random.key(0), (500, 1, 7))

    def spread(coordinates):
        return float(jnp.std(jax.vmap(lambda e: coordinates.residual(target, model, e))(eps)))

    at = ModelAtRows.of(target, model)
    mode = _mode(at, jnp.full((7, 1), 3.0)).mode
    np.testing.assert_allclose(mode, _mode(at, jnp.full((7, 1), -1.0)).mode, atol=1e-8)
    assert spread(coordinates) < 0.6 * spread(coordinates_of_sites(at, *at.sites(mode)))


@pytest.mark.parametrize("name", ["poisson", "student", "gaussian"])
def test_derivatives_are_those_of_differences(x64, name):
    target = target_of(name)
    anchor = jnp.zeros((7, target.space.model.likelihood.latent_size))
    eps = jax.random.normal(jax.random.key(1), (anchor.shape[1], 7))

    def value(vector):
        model = target.space.to_model(vector)
        coordinates = coordinates_at(target, model, "sites", anchor, differentiable=True)
        return coordinates.log_evidence + coordinates.residual(target, model, eps)

    gradient = jax.grad(value)(target.centre)
    for number, direction in enumerate(np.eye(len(target.centre))):
        h = 1e-4
        difference = value(target.centre + h * direction) - value(target.centre - h * direction)
        np.testing.assert_allclose(gradient[number], difference / (2 * h), rtol=2e-5, atol=1e-6)
