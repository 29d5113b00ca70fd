"""Coordinates of hyper-parameters in which their priors are nearly normal."""

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Gamma, InverseGamma, LogNormal
from scipy.stats import kurtosis, skew

import latentgp as lgp
from latentgp.extensions.chains.hyperparameters.straightened import SinhArcsinh
from latentgp.hyperparameters.space import ParameterSpace

MODEL = lgp.LatentGP(lgp.RBF([1.0, 2.0]), lgp.StudentT())
SKEWED = {"kernel.lengthscale": Gamma(1.0, 1.0), "kernel.variance": InverseGamma(1.0, 1.0)}


def space_with(priors):
    return ParameterSpace(MODEL, priors=priors, frozen=("likelihood.degrees_of_freedom",))


def test_draws_of_skewed_priors_become_nearly_normal(x64):
    space = space_with(SKEWED)
    straightened = SinhArcsinh.of(space)
    labels = [label for label, _ in space.entries()]
    known = [number for number, label in enumerate(labels) if label.startswith("kernel")]
    draws = space.prior_vectors(jax.random.key(1))
    assert np.isnan(np.delete(draws, known, axis=1)).all()  # of no prior
    straight = np.asarray(jax.vmap(straightened)(jnp.asarray(draws)))[:, known]
    assert len(known) == 3
    assert np.all(np.abs(skew(draws[:, known])) > 0.9)
    assert np.all(np.abs(skew(straight)) < 0.25)
    assert np.all(kurtosis(draws[:, known]) > 1.5)
    assert np.all(np.abs(kurtosis(straight)) < 0.8)


def test_what_has_no_prior_and_normal_ones_are_kept(x64):
    normal = {path: LogNormal(0.5, 2.0) for path in SKEWED}
    assert SinhArcsinh.of(space_with({})) is None
    assert SinhArcsinh.of(space_with(normal)) is None
    space = space_with(SKEWED)
    straightened = SinhArcsinh.of(space)
    vector = jnp.linspace(-3.0, 4.0, space.size)
    moved = np.asarray(straightened(vector) - vector)
    kept = [not label.startswith("kernel") for label, _ in space.entries()]
    np.testing.assert_allclose(moved[kept], 0.0, atol=1e-12)


def test_the_map_is_inverted_and_tells_its_slope(x64):
    space = space_with(SKEWED)
    straightened = SinhArcsinh.of(space)
    for key in jax.random.split(jax.random.key(0), 20):
        vector = 4 * jax.random.normal(key, (space.size,))
        back = straightened.inverse(straightened(vector))
        np.testing.assert_allclose(back, vector, rtol=1e-9)
        slope = jnp.linalg.slogdet(jax.jacobian(straightened)(vector))[1]
        np.testing.assert_allclose(straightened.log_slope(vector), slope, atol=1e-9)
