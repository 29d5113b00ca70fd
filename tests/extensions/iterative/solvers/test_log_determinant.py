"""Log-determinants by probe vectors against the exact ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linear_systems as cases
from latentgp.extensions.iterative.solvers.log_determinant import (
    block_quadrature,
    log_determinant,
    recorded_block_conjugate_gradients,
)
from latentgp.extensions.iterative.solvers.operators import StoredCovariance
from latentgp.extensions.iterative.solvers.preconditioners.base import Identity
from latentgp.extensions.iterative.solvers.preconditioners.low_rank import Nystrom

ROWS = np.array([2, 11, 17])
SEEDS = 50


def test_errors_are_as_large_as_their_standard_error(x64):
    system = cases.systems()["sites"]
    exact = np.linalg.slogdet(cases.dense("sites", cases.gram()))[1]
    P = Nystrom(ROWS)(system)
    values, errors = [], []
    for key in jax.random.split(jax.random.key(1), SEEDS):
        found, solution = log_determinant(system, key, preconditioner=P, max_steps=26)
        assert solution.complaint is None
        values.append(float(found.value))
        errors.append(float(found.standard_error))
    distance = np.abs(np.array(values) - exact) / np.array(errors)
    assert np.mean(distance < 4) >= 0.95
    assert 0.5 < np.mean(distance**2) < 2
    assert abs(np.mean(values) - exact) < 4 * np.std(values) / np.sqrt(SEEDS)


def test_a_preconditioner_leaves_little_to_estimate(x64):
    system = cases.systems()["sites"]
    exact = np.linalg.slogdet(cases.dense("sites", cases.gram()))[1]
    errors = []
    for P in Identity(), Nystrom(np.arange(0, cases.SIZE, 2))(system):
        found, solution = log_determinant(
            system, jax.random.key(5), preconditioner=P, max_steps=26, tolerance=1e-8
        )
        assert solution.complaint is None
        assert abs(found.value - exact) < 4 * found.standard_error
        errors.append(float(found.standard_error))
    assert errors[1] < 0.3 * errors[0]


def test_breakdown_is_no_number(x64):
    A = StoredCovariance(jnp.diag(jnp.array([1.0, -2.0, 1.0])))
    found, solution = log_determinant(A, jax.random.key(0), probes=3, max_steps=4)
    assert np.isnan(found.value)
    assert "breakdown" in solution.outcomes


@pytest.mark.parametrize(("columns", "max_steps"), [(1, 40), (5, 30)])
def test_block_quadrature_is_the_logarithm(columns, max_steps):
    """Of forms u' log(R^-1 A R^-T) u, where directions are shared, with a preconditioner."""
    with jax.enable_x64(True):
        A = cases.systems()["sites"]
        P = Nystrom(ROWS)(A)
        right = jnp.asarray(np.random.default_rng(5).normal(size=(cases.SIZE, columns)))
        recorded = recorded_block_conjugate_gradients(A, right, P, 1e-9, max_steps)
        assert recorded.solution.complaint is None
        found = block_quadrature(recorded)
        whole = P.solve_root(cases.matrix(A))
        whole = P.solve_root(whole.T)
        values, vectors = np.linalg.eigh(np.asarray(0.5 * (whole + whole.T)))
        exact = np.log(values) @ (vectors.T @ np.asarray(P.solve_root(right))) ** 2
    np.testing.assert_allclose(found, exact, rtol=1e-7)
