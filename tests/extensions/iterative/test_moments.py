"""Estimates by solves at size: unbiased solutions, and evidence within its own standard error."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import latentgp as lgp
from latentgp.extensions.iterative.solvers.evidence import log_evidence_by_solves
from latentgp.extensions.iterative.solvers.operators import (
    StoredCovariance,
    TiledCovariance,
    noisy_system,
)
from latentgp.extensions.iterative.solvers.preconditioners.low_rank import Nystrom, random_rows
from latentgp.extensions.iterative.solvers.ulisse import truncation_variance, ulisse
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


@pytest.mark.parametrize("size", [(60, 20, 256), *slow_parameters((500, 100, 200))])
@pytest.mark.slow
def test_stochastic_evidence_is_within_four_of_its_standard_errors(size):
    """In at least 95 seeds of 100, value and every number of the gradient."""
    rows, seeds, tile = size
    X, y = problem(rows)

    def system_of(parameters):
        kernel = lgp.RBF(lengthscale=parameters[0], variance=jnp.asarray(1.3))
        return noisy_system(TiledCovariance(kernel, X, tile=tile), parameters[1])

    def exact(parameters):
        A = covariance(parameters[0], X) + parameters[1] * jnp.eye(rows)
        return jax.scipy.stats.multivariate_normal.logpdf(y, jnp.zeros(rows), A)

    place = jnp.array([0.8, NOISE])
    value, slope = jax.value_and_grad(exact)(place)
    recipe = Nystrom(random_rows(KEY, rows, 10))

    @jax.jit
    def estimates(keys):
        def one(key):
            found = log_evidence_by_solves(
                system_of, place, y, key, preconditioner=recipe, probes=8, max_steps=80
            )
            return found._replace(solution=found.solution.code)

        return jax.lax.map(one, keys)

    found = estimates(jax.random.split(KEY, seeds))
    assert np.all(found.solution == 0)
    off = [np.abs(found.value - value) / found.standard_error]
    off += list(np.abs(found.gradient - slope).T / found.gradient_standard_error.T)
    for distance in off:
        # Eight probes: four standard errors are those of Student's law of seven degrees of freedom.
        assert np.mean(distance < 4) >= 0.95
        assert np.mean(distance**2) < 3
