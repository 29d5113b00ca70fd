"""Log-determinants, evidence and gradient by probe vectors against the exact ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
import linear_systems as cases
from latentgp.extensions.iterative.solvers.evidence import log_evidence_by_solves
from latentgp.extensions.iterative.solvers.log_determinant import (
    block_quadrature,
    log_determinant,
    recorded_block_conjugate_gradients,
)
from latentgp.extensions.iterative.solvers.operators import (
    StoredCovariance,
    TiledCovariance,
    noisy_system,
)
from latentgp.extensions.iterative.solvers.preconditioners.base import Identity
from latentgp.extensions.iterative.solvers.preconditioners.low_rank import Nystrom

ROWS = np.array([2, 11, 17])
SEEDS = 50
PARAMETERS = {"lengthscale": cases.LENGTHSCALE, "noise": np.array(0.05)}


def system_of(parameters):
    kernel = lgp.RBF(lengthscale=parameters["lengthscale"], variance=jnp.asarray(cases.VARIANCE))
    return noisy_system(TiledCovariance(kernel, jnp.asarray(cases.X), tile=12), parameters["noise"])


def exact_evidence(parameters):
    kernel = lgp.RBF(lengthscale=parameters["lengthscale"], variance=jnp.asarray(cases.VARIANCE))
    K = kernel.gram(jnp.asarray(cases.X), jnp.asarray(cases.X))
    A = K + parameters["noise"] * jnp.eye(cases.SIZE)
    return jax.scipy.stats.multivariate_normal.logpdf(cases.Y, jnp.zeros(cases.SIZE), A)


def estimate(key):
    return log_evidence_by_solves(
        system_of, PARAMETERS, cases.Y, key, preconditioner=Nystrom(ROWS), probes=16, max_steps=26
    )


@pytest.fixture(scope="module")
def estimates():
    """Of fifty seeds."""
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(1), SEEDS)
        found = [estimate(key) for key in keys]
        return jax.tree.map(lambda *a: np.stack(a), *found)


def test_evidence_within_its_standard_error(estimates):
    with jax.enable_x64(True):
        exact = float(exact_evidence(jax.tree.map(jnp.asarray, PARAMETERS)))
    assert np.all(estimates.solution.code == 0)
    distance = np.abs(estimates.value - exact) / estimates.standard_error
    assert np.mean(distance < 4) >= 0.95
    # Errors are as large as is said, on average over the seeds.
    assert 0.5 < np.mean(distance**2) < 2
    mean = abs(np.mean(estimates.value) - exact)
    assert mean < 4 * np.std(estimates.value) / np.sqrt(SEEDS)


def test_gradient_within_its_standard_error(estimates):
    with jax.enable_x64(True):
        exact = jax.grad(exact_evidence)(jax.tree.map(jnp.asarray, PARAMETERS))
    for name, wanted in exact.items():
        found, error = estimates.gradient[name], estimates.gradient_standard_error[name]
        distance = np.abs(found - np.asarray(wanted)) / error
        assert np.mean(distance < 4) >= 0.95, name
        spread = np.std(found, axis=0) / np.sqrt(SEEDS)
        assert np.all(np.abs(np.mean(found, axis=0) - wanted) < 4 * spread), name


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
