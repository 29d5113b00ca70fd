"""Unbiased solutions at size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.extensions.iterative.solvers.operators import StoredCovariance, noisy_system
from latentgp.extensions.iterative.solvers.preconditioners.low_rank import Nystrom, random_rows
from latentgp.extensions.iterative.solvers.ulisse import ulisse
from linear_systems import truncation_variance
from slow import slow_parameters

pytestmark = pytest.mark.usefixtures("x64")
NOISE = 0.05
KEY = jax.random.key(0)


def problem(rows):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (rows, 2))
    return jnp.asarray(X), jnp.asarray(np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=rows))


def slowly(j):
    """Weights of increments after the threshold."""
    return jnp.where(j > 0, 1.05, 1.0)


def covariance(lengthscale, X):
    return lgp.RBF(lengthscale=jnp.asarray(lengthscale), variance=jnp.asarray(1.3)).gram(X, X)


@pytest.mark.parametrize("size", [(40, 500), *slow_parameters((200, 10_000))])
@pytest.mark.parametrize("threshold", [0.1, 1.0])
def test_the_mean_of_unbiased_solutions_is_the_solution(size, threshold):
    """Within four standard errors, of every number.

    The weights grow by a twentieth a step: of weights that grow ever faster (the published ones)
    most of the variance is in events that ten thousand draws do not have.
    """
    rows, draws = size
    X, y = problem(rows)
    system = noisy_system(StoredCovariance(covariance(0.8, X)), NOISE)
    P = Nystrom(random_rows(KEY, rows, 5))(system)
    options = {"threshold": threshold, "weights": slowly, "preconditioner": P}
    options["tolerance"] = 1e-10

    @jax.jit
    def estimates(keys):
        def one(key):
            found = ulisse(system, y[:, None], key, copies=1, **options)
            return found.value[0, :, 0], found.steps[0, 0], found.is_unbiased[0]

        return jax.lax.map(one, keys)

    found, steps, unbiased = map(np.asarray, estimates(jax.random.split(KEY, draws)))
    exact = np.linalg.solve(np.asarray(system.times(jnp.eye(rows))), np.asarray(y))
    variance = np.asarray(truncation_variance(system, y[:, None], **options))[:, 0]
    error = np.sqrt(variance / draws)
    assert np.all(unbiased)
    assert np.ptp(steps) > 0
    assert np.median(error) > 1e-6  # the truncation matters
    assert np.max(np.abs(found.mean(axis=0) - exact) / (error + 1e-9)) < 4
    assert 0.7 < np.median(found.var(axis=0) / variance) < 1.4
