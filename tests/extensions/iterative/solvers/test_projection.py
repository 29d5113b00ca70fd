"""Variances that contain the error of a solve which was stopped."""

import jax.numpy as jnp
import numpy as np
import pytest

import linear_systems as cases
from latentgp.extensions.iterative.solvers.conjugate_gradients import conjugate_gradients
from latentgp.extensions.iterative.solvers.projection import projection

pytestmark = pytest.mark.usefixtures("x64")


def krylov(A, b, number):
    """Orthonormal directions of which the first k span b, A b, ..., A^(k - 1) b, as do iterates."""
    directions = np.zeros((len(b), 0))
    for _ in range(number):
        for _ in range(2):  # once more, as rounding leaves some
            b = b - directions @ (directions.T @ b)
        directions = np.column_stack([directions, b / np.linalg.norm(b)])
        b = A @ directions[:, -1]
    return directions


def test_combined_variance():
    """The mean is the iterate; the variance falls to the exact one, and by what is said."""
    system, y = cases.systems()["noise"], jnp.asarray(cases.Y)
    A = cases.dense("noise", cases.gram())
    new = cases.X[:5] + 0.3
    across = np.asarray(cases.kernel().gram(jnp.asarray(cases.X), jnp.asarray(new)))
    prior, solved = np.full(5, cases.VARIANCE), np.linalg.solve(A, across)
    exact = prior - np.sum(across * solved, axis=0)
    directions = krylov(A, cases.Y, 9)
    last = prior
    for number in (2, 9):
        seen = projection(system, directions[:, :number])
        iterate = conjugate_gradients(system, y[:, None], tolerance=1e-14, max_steps=number)
        np.testing.assert_allclose(seen.solve(y[:, None]), iterate.value, atol=1e-9)
        combined = seen.variance(jnp.asarray(prior), jnp.asarray(across))
        assert np.all(combined > exact)
        assert np.all(combined <= last)
        extra = np.sum(across * (solved - np.asarray(seen.solve(across))), axis=0)
        np.testing.assert_allclose(combined - extra, exact, atol=1e-10)
        last = combined
    seen = projection(system, jnp.eye(cases.SIZE))
    combined = seen.variance(jnp.asarray(prior), jnp.asarray(across))
    np.testing.assert_allclose(combined, exact, atol=1e-9)


def test_directions_that_depend_on_each_other_claim_no_more():
    system = cases.systems()["noise"]
    some = jnp.eye(cases.SIZE)[:, :2]
    across = jnp.asarray(cases.gram()[:, 8:9])
    once = projection(system, some).variance(jnp.ones(1), across)
    both = projection(system, some[:, jnp.arange(9) % 2]).variance(jnp.ones(1), across)
    assert 0 <= float(both[0] - once[0]) < 1e-5
