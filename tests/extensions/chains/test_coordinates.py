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
    coordinates_at_centre,
    coordinates_of_sites,
)
from latentgp.likelihoods.base import Marginals
from slow import slow_parameters


def all_at(value, latents=1):
    """Laws of f at the rows, each of unit variance."""
    return Marginals(jnp.full((7, latents), value), jnp.ones((7, latents)))


@pytest.mark.parametrize("inducing", [False, True], ids=["dense", "inducing"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("sites", ["sites", "partial", "any", *slow_parameters("whitened")])
def test_the_density_is_that_of_the_white_coefficients(x64, name, inducing, sites):
    target = target_of(name, inducing)
    vector = target.centre + 0.1
    model = target.space.to_model(vector)
    latents = model.likelihood.latent_size
    if sites == "any":
        rng = np.random.default_rng(0)
        linear, precision = rng.normal(size=(7, latents)), rng.gamma(1.0, size=(7, latents))
        coordinates = coordinates_of_sites(ModelAtRows.of(target, model), linear, precision)
    else:
        coordinates = coordinates_at(target, model, sites, all_at(0.0, latents))
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
    coordinates = coordinates_at(target, model, "sites", all_at(5.0))
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
    coordinates = coordinates_at(target, model, "sites", all_at(3.0))
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
    anchor = all_at(0.0, target.space.model.likelihood.latent_size)
    eps = jax.random.normal(jax.random.key(1), (anchor.mean.shape[1], 7))

    def value(vector):
        model = target.space.to_model(vector)
        coordinates = coordinates_at(target, model, "sites", anchor, differentiable=True)
        return coordinates.log_evidence + coordinates.residual(target, model, eps)

    gradient = jax.grad(value)(target.centre)
    for number, direction in enumerate(np.eye(len(target.centre))):
        h = 1e-4
        difference = value(target.centre + h * direction) - value(target.centre - h * direction)
        np.testing.assert_allclose(gradient[number], difference / (2 * h), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("inducing", [False, True], ids=["dense", "inducing"])
def test_partial_centring_has_the_sites_of_its_anchor_under_any_kernel(x64, inducing):
    """And two Cholesky factors: of the prior covariance and of the posterior precision."""
    target = target_of("poisson", inducing)
    anchor = coordinates_at_centre(target, "partial").marginals

    def partial(vector):
        return coordinates_at(target, target.space.to_model(vector), "partial", anchor)

    here, there = partial(target.centre), partial(target.centre - 0.7)
    np.testing.assert_array_equal(here.precision, there.precision)
    # log p(y | f) = y f - exp(f) of Poisson counts, under N(m, s) shrunk to 2 s / (s + 2).
    shrunk = 2 * anchor.variance / (anchor.variance + 2)
    weights = np.asarray(target.data.weights)[:, None]
    np.testing.assert_allclose(
        here.precision, weights * np.exp(anchor.mean + shrunk / 2), rtol=1e-10
    )
    np.testing.assert_allclose(here.centre, anchor.mean, atol=0.05)  # another update of them
    program = jax.jit(partial).lower(target.centre).compile().as_text()
    assert program.count('custom_call_target="lapack_dpotrf') == 2


@pytest.mark.parametrize("inducing", [False, True], ids=["dense", "inducing"])
def test_marginals_of_coordinates_are_those_of_their_map(x64, inducing):
    target = target_of("softmax", inducing)
    coordinates = coordinates_at_centre(target, "sites")
    latents, coefficients = coordinates.root.shape[:2]
    columns = jnp.eye(latents * coefficients).reshape(-1, latents, coefficients)
    variance = jnp.sum(jax.vmap(coordinates.shift)(columns) ** 2, axis=0)
    mean, found = coordinates.marginals
    np.testing.assert_array_equal(mean, coordinates.centre)
    np.testing.assert_allclose(found, variance + coordinates.whitening.residual.T, rtol=1e-12)
