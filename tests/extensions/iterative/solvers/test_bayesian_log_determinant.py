"""Log-determinants inferred from traces: the posterior by brute force, intervals of the truth."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.extensions.iterative.solvers import bayesian_log_determinant as module
from latentgp.extensions.iterative.solvers.bayesian_log_determinant import (
    bayesian_log_determinant,
    infer_log_determinant,
)
from latentgp.extensions.iterative.solvers.log_determinant import log_determinant
from latentgp.extensions.iterative.solvers.operators import StoredCovariance

pytestmark = pytest.mark.usefixtures("x64")
ROWS = 200


def kernel_matrix(lengthscale, noise):
    """The matrix, bounds of its eigenvalues, and these."""
    X = np.random.default_rng(0).uniform(-3, 3, (ROWS, 2))
    distance = np.sum((X[:, None] - X) ** 2, axis=-1)
    A = np.exp(-0.5 * distance / lengthscale**2) + noise * np.eye(ROWS)
    return A, {"lower": noise, "upper": A.sum(axis=1).max()}, np.linalg.eigvalsh(A)


def exact_moments(values, lower, upper, number):
    angle = np.arccos(np.clip((2 * values - upper - lower) / (upper - lower), -1, 1))
    return np.cos(np.arange(number)[:, None] * angle).mean(axis=1)


def test_posterior_is_that_of_a_fine_grid_of_densities():
    """The same prior conditioned by NumPy on values of the density, without bins."""
    _, bounds, values = kernel_matrix(0.5, 0.3)
    moments = exact_moments(values, **bounds, number=6)
    found = infer_log_determinant(jnp.asarray(moments), ROWS, **bounds)
    points = 1200
    t = (np.arange(points) + 0.5) * np.pi / points
    x = (bounds["upper"] + bounds["lower"]) / 2 + (bounds["upper"] - bounds["lower"]) / 2 * np.cos(
        t
    )
    functionals = np.vstack([np.cos(np.arange(6)[:, None] * t), np.log(x)]) * np.pi / points
    end = np.append((-1.0) ** np.arange(6), np.log(bounds["lower"]))
    prior_mean = functionals.sum(axis=1) / np.pi
    logs, means, variances = [], [], []
    for length in module._RANGES:
        K = np.exp(-np.abs(t[:, None] - t) / length) / np.pi**2
        for scale in module._SCALES:
            C = scale**2 * functionals @ K @ functionals.T + np.outer(end, end)
            S, cross = C[:-1, :-1], C[:-1, -1]
            residual = moments - prior_mean[:-1]
            gain = np.linalg.solve(S, cross)
            logs.append(-0.5 * (residual @ np.linalg.solve(S, residual) + np.linalg.slogdet(S)[1]))
            means.append(prior_mean[-1] + gain @ residual)
            variances.append(C[-1, -1] - gain @ cross)
    weights = np.exp(np.array(logs) - max(logs))
    weights /= weights.sum()
    mean = weights @ means
    deviation = np.sqrt(weights @ (variances + (np.array(means) - mean) ** 2))
    np.testing.assert_allclose(found.mean, ROWS * mean, rtol=1e-3)
    np.testing.assert_allclose(found.standard_deviation, ROWS * deviation, rtol=0.02)


def test_more_exact_traces_contract_the_interval_around_the_truth():
    _, bounds, values = kernel_matrix(0.2, 0.1)
    exact, deviations = np.log(values).sum(), []
    for number in (4, 8, 16):
        moments = jnp.asarray(exact_moments(values, **bounds, number=number))
        found = infer_log_determinant(moments, ROWS, **bounds)
        assert abs(found.mean - exact) < 3 * found.standard_deviation
        deviations.append(float(found.standard_deviation))
    assert deviations[1] < 0.2 * deviations[0]
    assert deviations[2] < 0.2 * deviations[1]


def test_few_products_give_an_interval_that_lanczos_does_not():
    """Five products of a vector: Lanczos has not converged, and its standard error knows not."""
    A, bounds, values = kernel_matrix(1.0, 1e-2)
    exact, errors, others = np.log(values).sum(), [], []
    for seed in range(4):
        key, operator = jax.random.key(seed), StoredCovariance(jnp.asarray(A))
        found = bayesian_log_determinant(operator, key, **bounds, products=5)
        errors.append(float((found.mean - exact) / found.standard_deviation))
        other, _ = log_determinant(operator, key, max_steps=5, tolerance=1e-12)
        others.append(float((other.value - exact) / other.standard_error))
    assert np.abs(errors).max() < 3
    assert np.abs(others).max() > 3


def test_bounds_are_checked():
    with pytest.raises(lgp.InputError, match="0 < lower < upper"):
        infer_log_determinant(jnp.ones(3), 10, lower=0.0, upper=1.0)
