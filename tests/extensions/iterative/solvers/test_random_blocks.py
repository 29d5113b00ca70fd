"""Solves by random blocks of rows against Cholesky, and what they say when they fail."""

import jax
import numpy as np
import pytest

import linear_systems as cases
from latentgp import InputError
from latentgp.extensions.iterative.solvers.sketch_and_project import sketch_and_project

pytestmark = pytest.mark.usefixtures("x64")

RIGHT = np.column_stack([cases.Y, cases.X[:, 0]])
KEY = 0


def check(solution, name, tolerance):
    A = cases.dense(name, cases.gram())
    residual = np.linalg.norm(RIGHT - A @ solution.value, axis=0) / np.linalg.norm(RIGHT, axis=0)
    np.testing.assert_allclose(solution.relative_residual, residual, rtol=1e-4, atol=1e-12)
    assert np.all(residual <= tolerance)
    assert solution.outcomes == ("converged",) * 2
    # ||x - A^-1 b|| is at most the residual by the smallest eigenvalue.
    error = np.linalg.norm(solution.value - np.linalg.solve(A, RIGHT), axis=0)
    assert np.all(error <= residual * np.linalg.norm(RIGHT, axis=0) / np.linalg.eigvalsh(A)[0])


@pytest.mark.parametrize("name", ["noise", "sites"])
def test_sketch_and_project(name):
    options = {"block": 6, "rank": 3, "tolerance": 1e-5, "max_passes": 500}
    solution = sketch_and_project(cases.systems()[name], RIGHT, jax.random.key(KEY), **options)
    check(solution, name, 1e-5)
    assert 1 < solution.steps < 500


def test_out_of_passes_is_said():
    options = {"block": 6, "rank": 3, "tolerance": 1e-9, "max_passes": 2}
    solution = sketch_and_project(cases.systems()["noise"], RIGHT, jax.random.key(1), **options)
    assert solution.outcomes == ("out of steps",) * 2
    assert solution.steps == 2


@pytest.mark.parametrize(("block", "rank"), [(6, 7), (25, 3), (6, 0)])
def test_blocks_that_cannot_be_are_refused(block, rank):
    with pytest.raises(InputError, match="give a rank from 1 to block"):
        sketch_and_project(
            cases.systems()["noise"], RIGHT, jax.random.key(1), block=block, rank=rank
        )
