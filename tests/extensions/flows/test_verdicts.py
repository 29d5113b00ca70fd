"""No approximation of a density is called converged with moments that are wrong, without a word."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.extensions.flows import (
    SWAG,
    Adam,
    BatchAndMatch,
    BayesianLearningRule,
    EfficientLowRank,
    FactorCovariance,
    FullRank,
    GaussianFlow,
    GaussianParticleFlow,
    LaplaceApproximation,
    MeanField,
    Pathfinder,
    SteinVariational,
    VariationalOnlineNewton,
)

KEY = jax.random.key(0)
METHODS = {
    "particle flow": GaussianParticleFlow(),
    "mean-field flow": GaussianParticleFlow(structure="mean-field", particles=10),
    "Gaussian flow": GaussianFlow(steps=3000),
    "mean field": MeanField(optimiser=Adam(0.02), steps=3000),
    "full rank": FullRank(optimiser=Adam(0.02), steps=3000),
    "factor covariance": FactorCovariance(rank=2, optimiser=Adam(0.02), steps=3000),
    "efficient low rank": EfficientLowRank(rank=2, optimiser=Adam(0.02), steps=3000),
    "Bayesian learning rule": BayesianLearningRule(steps=500),
    "batch and match": BatchAndMatch(),
    "online Newton": VariationalOnlineNewton(),
    "Stein": SteinVariational(),
    "linear Stein": SteinVariational(kernel="linear"),
    "SWAG": SWAG(),
    "Laplace": LaplaceApproximation(),
    "Pathfinder": Pathfinder(),
}
SCALES = np.array([1e-6, 1.0, 1e6])
WORDS = "no integral|no variance|mean is off|Variances are|nats \\(standard|All variances are zero"


def scales(x):
    return -0.5 * jnp.sum((x / jnp.asarray(SCALES, x.dtype)) ** 2)


def flat(x):
    return 0.0 * jnp.sum(x)


def half_flat(x):
    return -0.5 * x[0] ** 2 + jax.nn.log_sigmoid(x[1])


def cauchy(x):
    return -jnp.sum(jnp.log1p(x**2))


def student(x):
    return -1.25 * jnp.sum(jnp.log1p(x**2 / 1.5))


def funnel(x):
    return -0.5 * (x[0] / 3) ** 2 - 0.5 * x[1] ** 2 * jnp.exp(-x[0]) - 0.5 * x[0]


def banana(x):
    return -0.5 * x[0] ** 2 / 4 - 0.5 * (x[1] - x[0] ** 2) ** 2 / 0.04


DENSITIES = {
    "flat": flat,
    "half flat": half_flat,
    "Cauchy": cauchy,
    "Student-t": student,
    "funnel": funnel,
    "banana": banana,
}


def found_by(name, density, dimension, dtype=np.float64):
    with jax.enable_x64(dtype == np.float64):
        start = np.zeros(dimension, dtype)
        return lgp.gaussian_approximation(density, dimension, METHODS[name], key=KEY, start=start)


def check(name, density, dimension, dtype):
    """Never converged and silent: told, not converged, or refused."""
    try:
        found = found_by(name, density, dimension, dtype)
    except lgp.InputError:
        return
    told = re.search(WORDS, found.verdict) is not None
    assert told or not found.converged, found.verdict


@pytest.mark.parametrize("density", DENSITIES)
def test_the_particle_flow_tells(density):
    check("particle flow", DENSITIES[density], 2, np.float64)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", METHODS)
def test_every_method_tells(name, dtype):
    for density in DENSITIES.values():
        check(name, density, 2, dtype)


@pytest.mark.parametrize("density", ["flat", "half flat"])
def test_what_has_no_integral_has_not_converged(density):
    found = found_by("mean field", DENSITIES[density], 2)
    assert not found.converged
    assert "no integral" in found.verdict


def right_or_told(name, dtype):
    """Deviations of a Gaussian whose scales are 1e12 apart, or a verdict that tells."""
    found = found_by(name, scales, 3, dtype)
    if np.allclose(found.std / SCALES, 1, atol=0.15):
        return True
    assert not found.converged or "times those of the best" in found.verdict, found.verdict
    return False


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", ["particle flow", "mean field", "Laplace"])
def test_scales_far_apart_are_found(name, dtype):
    assert right_or_told(name, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", METHODS)
def test_scales_far_apart_are_found_or_told(name, dtype):
    right_or_told(name, dtype)


def test_a_path_without_noise_has_no_width_and_says_so():
    found = found_by("SWAG", lambda x: -0.5 * jnp.sum(x**2), 2)
    assert not found.converged
    assert "Variances are about" in found.verdict or "All variances are zero" in found.verdict


def test_variances_that_are_too_large_are_told_with_their_size():
    """Five times too large: a kernel that does not fit, too few steps."""
    short = SteinVariational(kernel="linear", steps=5)
    with jax.enable_x64():
        found = lgp.gaussian_approximation(
            lambda x: -2.5 * jnp.sum(x**2), 2, short, key=KEY, start_std=1.0
        )
    ratio = 5 * np.mean(found.std**2)
    assert ratio > 2
    assert not found.converged
    assert "times those of the best Gaussian" in found.verdict


def test_a_gaussian_is_found_without_a_word():
    found = found_by("particle flow", lambda x: -0.5 * jnp.sum((x - 1) ** 2), 3)
    assert found.converged
    assert found.verdict.endswith("and settled.")
