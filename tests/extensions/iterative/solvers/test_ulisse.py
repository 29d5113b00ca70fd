"""Random truncation: unbiased, with the variance that is said, and two estimates that are apart."""

import jax
import numpy as np
import pytest

import linear_systems as cases
from latentgp.extensions.iterative.solvers.preconditioners.low_rank import Nystrom
from latentgp.extensions.iterative.solvers.ulisse import ExponentialWeights, ulisse

RIGHT = np.column_stack([cases.Y, cases.X[:, 0]])
THRESHOLD = 0.3 * np.sqrt(cases.SIZE)
SEEDS = 1000


@pytest.fixture(scope="module")
def runs():
    """Estimates of a thousand seeds, and the variance that is said."""
    with jax.enable_x64(True):
        system = cases.systems()["noise"]
        options = {
            "threshold": THRESHOLD,
            "weights": ExponentialWeights(0.1),
            "preconditioner": Nystrom(np.array([2, 17]))(system),
            "tolerance": 1e-10,
        }
        keys = jax.random.split(jax.random.key(0), SEEDS)
        one = jax.jit(lambda key: ulisse(system, RIGHT, key, copies=2, **options))
        estimates = [one(key) for key in keys]
        variance = cases.truncation_variance(system, RIGHT, **options)
        return jax.tree.map(lambda *a: np.stack(a), *estimates), np.asarray(variance)


def test_mean_and_variance(runs):
    found, variance = runs
    exact = np.linalg.solve(cases.dense("noise", cases.gram()), RIGHT)
    assert np.all(found.is_unbiased)
    assert np.max(variance) > 1e-3  # the truncation matters
    each = found.value.reshape(-1, *exact.shape)
    error = np.sqrt(variance / len(each)) + 1e-9
    assert np.max(np.abs(each.mean(axis=0) - exact) / error) < 4
    # Its own standard error from the fourth moment.
    squares = (each - exact) ** 2
    error = squares.std(axis=0) / np.sqrt(len(each)) + 1e-12
    assert np.max(np.abs(squares.mean(axis=0) - variance) / error) < 5


def test_two_estimates_are_independent(runs):
    """The mean of x_1' A x_2 is that of b' A^-1 b, which that of x_1' A x_1 is not."""
    found, _ = runs
    A = cases.dense("noise", cases.gram())
    first, second = found.value[:, 0, :, 0], found.value[:, 1, :, 0]
    products = np.sum(first * (second @ A), axis=1)
    squares = np.sum(first * (first @ A), axis=1)
    exact = cases.Y @ np.linalg.solve(A, cases.Y)
    assert abs(products.mean() - exact) < 4 * products.std() / np.sqrt(SEEDS)
    assert abs(squares.mean() - exact) > 4 * squares.std() / np.sqrt(SEEDS)
    assert np.mean(found.steps[:, 0, 0] == found.steps[:, 1, 0]) < 0.9


def test_steps_are_those_of_the_weights(runs):
    """Every estimate takes the increments to the threshold; the next with probability 1 / w_1."""
    found, _ = runs
    reached = found.threshold_steps[0]
    assert np.all(found.steps >= reached)
    went_on = np.mean(found.steps[:, :, 0] > reached[0])
    expected = np.exp(-0.1)
    assert abs(went_on - expected) < 4 * np.sqrt(expected * (1 - expected) / (2 * SEEDS))


def test_a_run_that_ends_too_early_says_so(x64):
    system = cases.systems()["noise"]
    found = ulisse(system, RIGHT, jax.random.key(0), threshold=1e-3, max_steps=3)
    assert not np.any(found.is_unbiased)
