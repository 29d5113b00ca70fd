"""Matrices of a few rows against NumPy, and orthant probabilities against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from latentgp.numerics.orthants import log_orthant_probability
from latentgp.numerics.small_matrices import (
    small_cholesky,
    small_eigh,
    small_inverse,
    small_with_values,
)

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("size", [1, 2, 5])
def test_eigenvalues_and_factors(x64, size):
    generator = np.random.default_rng(size)
    A = generator.normal(size=(6, size, size))
    A = A + A.swapaxes(1, 2)
    A[0], A[1], A[2] = 0.0, np.eye(size), 1.0  # equal eigenvalues, and a rank of one
    values, vectors = small_eigh(A)
    np.testing.assert_allclose(np.sort(values, axis=1), np.linalg.eigvalsh(A), atol=1e-13)
    np.testing.assert_allclose(small_with_values(vectors, values), A, atol=1e-13)
    B = A @ A + np.eye(size)
    np.testing.assert_allclose(small_cholesky(B), np.linalg.cholesky(B), atol=1e-12)
    np.testing.assert_allclose(small_inverse(B), np.linalg.inv(B), atol=1e-12)
    assert np.isnan(small_cholesky(-B)).any()


@pytest.mark.parametrize(("size", "tolerance"), [(1, 1e-12), (2, 1e-10), (3, 3e-4)])
def test_orthant_probability(x64, size, tolerance):
    generator = np.random.default_rng(size)
    root = generator.normal(size=(size, size))
    mean, covariance = generator.normal(size=size), root @ root.T + 0.1 * np.eye(size)
    law = multivariate_normal(np.zeros(size), covariance, abseps=1e-10, releps=1e-10)
    found = jnp.exp(log_orthant_probability(mean, covariance))
    assert found == pytest.approx(law.cdf(mean), rel=tolerance)


def test_orthant_far_out_has_a_slope(x64):
    """Where the probability underflows in single steps its logarithm and slope are right."""
    value, slope = jax.value_and_grad(log_orthant_probability)(jnp.full(2, -30.0), jnp.eye(2))
    alone, of_one = jax.value_and_grad(jax.scipy.special.log_ndtr)(-30.0)
    assert float(value) == pytest.approx(2 * float(alone), rel=1e-9)
    np.testing.assert_allclose(slope, float(of_one), rtol=1e-6)
